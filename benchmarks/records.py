"""The JSON that every benchmark writes: rows, bars, versions, machine, commit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sift_core.processor import BFLOAT16_INSTRUCTIONS, instructions, usable_cpus


def write_record(
    path: Path, *, rows: list[dict[str, Any]], bars: list[dict[str, Any]], packages: list[str]
) -> None:
    """Write a benchmark's record; `packages` are those whose versions matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made_with = environment(packages, folder=Path(__file__).parent)
    path.write_text(as_text(rows, bars, made_with), encoding="utf-8")


def as_text(
    rows: list[dict[str, Any]], bars: list[dict[str, Any]], made_with: dict[str, Any]
) -> str:
    """Return a record as JSON: a line a row and bar, then the environment."""
    lists = "".join(
        f'  "{name}": [\n' + ",\n".join(f"    {json.dumps(one)}" for one in ones) + "\n  ],\n"
        for name, ones in (("rows", rows), ("bars", bars))
    )
    return f"{{\n{lists}{json.dumps(made_with, indent=2)[2:]}\n"


def environment(packages: Iterable[str], *, folder: Path) -> dict[str, Any]:
    """Return "versions", "machine" and "commit" for a record of results.

    Args:
        packages: Distributions whose versions matter.
        folder: A folder of the work tree whose commit is recorded; "unknown" outside of git.
    """
    return {
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in packages}},
        "machine": {
            "processor": _processor(),
            "architecture": platform.machine(),
            "avx512": _has("avx512f"),
            "bfloat16": _has(*BFLOAT16_INSTRUCTIONS),
            "cores": usable_cpus(),
            "load_average": _load_average(),  # over cores: others worked too
        },
        "commit": _commit(folder),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _has(*names: str) -> bool | None:
    """Return whether the processor has one of these instructions; None if nobody knows."""
    known = instructions()
    return None if known is None else not known.isdisjoint(names)


def _load_average() -> float | None:
    """Return the load of the last minute where the system tells it; Windows does not."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def _commit(folder: Path) -> str:
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.check_output(
            [*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL
        ).strip()
        changed = subprocess.check_output([*git, "status", "--porcelain"], text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}{' with changes' if changed else ''}"
