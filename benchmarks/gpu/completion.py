"""More prompts of `benchmarks.completion`, in a process of its own, where that module exists."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.report import Report
from sift_core.answering.model.bundled import missing_packages

MODULE = "benchmarks.completion"
OPTIONS: tuple[str, ...] = ()  # beyond --json: the more prompts that the time allows


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Run it and take over its rows. A dry run asks for its options alone."""
    if find_spec(MODULE) is None:
        report.skip(MODULE, "there is no such module")
        return
    if missing := missing_packages():
        report.skip(MODULE, f"it needs trained weights, and {' and '.join(missing)} are missing")
        return
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "completion.json"
        options = ["--help"] if tiny else ["--json", str(record), *OPTIONS]
        subprocess.run([sys.executable, "-m", MODULE, *options], check=True)
        if not tiny:
            for row in json.loads(record.read_text(encoding="utf-8"))["rows"]:
                report.add(**row)
