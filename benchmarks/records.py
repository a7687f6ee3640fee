"""The JSON that every benchmark writes: rows, bars, versions, machine, commit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def write_record(
    path: Path, *, rows: list[dict[str, Any]], bars: list[dict[str, Any]], packages: list[str]
) -> None:
    """Write a benchmark's record; `packages` are those whose versions matter."""
    record = {
        "rows": rows,
        "bars": bars,
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in packages}},
        "machine": {
            "processor": _processor(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "load_average": round(os.getloadavg()[0], 1),  # over cores: others worked too
        },
        "commit": _commit(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


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


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
        changed = subprocess.check_output([*git, "status", "--porcelain"], text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}{' with changes' if changed else ''}"
