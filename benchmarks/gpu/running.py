"""Sections one after another, each in a process with a time limit, and the record they fill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.records import as_text
from sift_core.files import write_whole

POLL_S = 0.5  # how often the record is brought up to date
LIMIT_VARIABLE = "SIFT_GPU_SECTION_S"  # tells a section how many seconds it has
N_ERROR_LINES = 20  # of what a failed section printed last


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the run: its name, the seconds that it may take, and the command that runs it.

    The path of a file follows the command. To that file it appends rows and bars.
    """

    name: str
    limit_s: float
    command: Sequence[str]


@dataclass(kw_only=True)
class Record:
    """What is known so far, in a file that is whole at any time, with versions and machine."""

    path: Path
    made_with: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[dict[str, Any]] = field(default_factory=list)

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, as_text(self.rows, self.bars, self.made_with).encode())


def run(
    sections: Sequence[Section], record: Record, *, until: float, environ: Mapping[str, str]
) -> bool:
    """Run sections while time is left; return whether none failed.

    One that fails or exceeds its limit leaves the rows that it had written, and a row with its
    status. The others run nevertheless.

    Args:
        sections: In this order.
        record: Is saved with each new row.
        until: Of `time.monotonic`; afterwards no section begins, and none goes on.
        environ: Of their processes.
    """
    statuses = []
    for section in sections:
        limit_s = min(section.limit_s, until - time.monotonic())
        print(f"\n== {section.name}: at most {max(0.0, limit_s):.0f} s", flush=True)
        status = {"status": "not begun", "error": "the time of the run was over"}
        if limit_s > 0:
            status = run_section(section, limit_s, record, environ)
        print(f"== {section.name}: {status['status']}", flush=True)
        record.rows.append({"section": section.name, **status})
        record.save()
        statuses.append(status["status"])
    return set(statuses) <= {"done"}


def run_section(
    section: Section, limit_s: float, record: Record, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Run one section and add its rows to the record; return its status and seconds."""
    begin, is_late = time.monotonic(), False
    n_rows, n_bars = len(record.rows), len(record.bars)
    with tempfile.TemporaryDirectory() as folder:
        file, errors = Path(folder) / "rows.jsonl", Path(folder) / "stderr"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [*section.command, str(file)],
                stderr=stderr,
                env={**environ, LIMIT_VARIABLE: str(limit_s)},
                start_new_session=True,  # so that all that it starts ends with it
            )
        try:
            while process.poll() is None and not is_late:
                time.sleep(POLL_S)
                is_late = time.monotonic() - begin > limit_s
                lines = _whole_lines(file)
                if len(lines) > len(record.rows) - n_rows + len(record.bars) - n_bars:
                    _put(record, section.name, lines, n_rows, n_bars)
        finally:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _put(record, section.name, _whole_lines(file), n_rows, n_bars)
        status: dict[str, Any] = {"status": "done", "seconds": round(time.monotonic() - begin, 1)}
        if is_late and process.returncode:
            status |= {"status": "too late", "error": f"it took more than {limit_s:.0f} s"}
        elif process.returncode:
            printed = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            print("\n".join(printed[-N_ERROR_LINES:]), flush=True)
            last = printed[-1] if printed else "it printed nothing"
            status |= {"status": "failed", "error": f"exit status {process.returncode}: {last}"}
        return status


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _put(
    record: Record, name: str, lines: Sequence[dict[str, Any]], n_rows: int, n_bars: int
) -> None:
    """Save what a section has written so far behind the `n_rows` and `n_bars` of those before."""
    record.rows[n_rows:] = [{"section": name, **one["rows"]} for one in lines if "rows" in one]
    record.bars[n_bars:] = [one["bars"] for one in lines if "bars" in one]
    record.save()
