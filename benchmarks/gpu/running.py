"""Sections one after another, each in a process with a time limit, and the record they fill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.records import as_text
from sift_core.files import write_whole

POLL_S = 0.5  # how often the record is brought up to date
N_ERROR_LINES = 20  # of what a failed section printed last


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the run.

    Args:
        name: In the record.
        limit_s: Seconds that it may take at most.
        command: What runs it. The path of a file follows, to which it appends rows and bars.
    """

    name: str
    limit_s: float
    command: Sequence[str]


@dataclass(kw_only=True)
class Record:
    """The rows and bars found so far, in a file that is whole at any time.

    Args:
        path: The file.
        made_with: Versions, machine and commit, in the record behind the rows.
    """

    path: Path
    made_with: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[dict[str, Any]] = field(default_factory=list)

    def save(
        self, rows: Iterable[dict[str, Any]] = (), bars: Iterable[dict[str, Any]] = ()
    ) -> None:
        """Write what is known, and rows and bars that may still change."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = as_text([*self.rows, *rows], [*self.bars, *bars], self.made_with)
        write_whole(self.path, text.encode())


def run(
    sections: Sequence[Section], record: Record, *, until: float, environ: Mapping[str, str]
) -> bool:
    """Run sections while time is left; return whether none failed.

    A section that fails or exceeds its limit leaves the rows that it had written, and a row with
    its status. The others run nevertheless.

    Args:
        sections: In this order.
        record: Is saved with each new row.
        until: Of `time.monotonic`; afterwards no section begins, and none goes on.
        environ: Of their processes.
    """
    is_good = True
    for section in sections:
        limit = min(section.limit_s, until - time.monotonic())
        print(f"\n== {section.name}: at most {max(0.0, limit):.0f} s", flush=True)
        if limit > 0:
            status = run_section(section, limit, record, environ)
        else:
            status = {"status": "not begun", "error": "the time of the run was over"}
        print(f"== {section.name}: {status['status']}", flush=True)
        record.rows.append({"section": section.name, **status})
        record.save()
        is_good &= status["status"] == "done"
    return is_good


def run_section(
    section: Section, limit_s: float, record: Record, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Run one section and add its rows to the record; return its status and seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file, errors = Path(folder) / "rows.jsonl", Path(folder) / "stderr"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [*section.command, str(file)],
                stderr=stderr,
                env=dict(environ),
                start_new_session=True,  # so that its children end with it
            )
            try:
                is_late = _wait(process, begin + limit_s, section.name, file, record)
            finally:
                _end(process)
        found = _read(file, section.name)
        record.rows += found["rows"]
        record.bars += found["bars"]
        status: dict[str, Any] = {"status": "done", "seconds": round(time.monotonic() - begin, 1)}
        if is_late:
            status |= {"status": "too late", "error": f"it took more than {limit_s:.0f} s"}
        elif process.returncode:
            told = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            print("\n".join(told[-N_ERROR_LINES:]), flush=True)
            last = told[-1] if told else "it printed nothing"
            status |= {"status": "failed", "error": f"exit status {process.returncode}: {last}"}
        return status


def _wait(
    process: subprocess.Popen[bytes], until: float, name: str, file: Path, record: Record
) -> bool:
    """Bring the record up to date until the process ends; return whether it was too late."""
    n_saved = 0
    while process.poll() is None:
        if time.monotonic() > until:
            return True
        found = _read(file, name)
        if (n_found := len(found["rows"]) + len(found["bars"])) > n_saved:
            record.save(**found)
            n_saved = n_found
        time.sleep(POLL_S)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()


def _read(file: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows and bars that a section has written whole, with its name in each row."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return {
        "rows": [{"section": name, **line["rows"]} for line in lines if "rows" in line],
        "bars": [line["bars"] for line in lines if "bars" in line],
    }
