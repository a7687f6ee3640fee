"""More held-back bodies of `benchmarks.completion`, where that module and the weights are there.

It runs in a process of its own and has its rows on disk at once, so that its report tells of those
that the time sufficed for. pip finds the packages that it asks for among the carried wheels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from json import loads
from pathlib import Path

import torch

from benchmarks.gpu.carrying import FOLDER
from benchmarks.gpu.running import LIMIT_VARIABLE
from benchmarks.report import Report
from sift_core.answering.model.bundled import missing_packages

MODULE = "benchmarks.completion"
OPTIONS = ["--sets", "transformers,a2a-sdk,mcp,pydantic-evals", "--bodies", "240"]
FOR_REPORT_S = 60  # left of the section's time


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Measure for as long as the section may, and take over the rows of the report."""
    until = time.monotonic() + float(os.environ.get(LIMIT_VARIABLE, 600)) - FOR_REPORT_S
    if find_spec(MODULE) is None:
        report.skip(MODULE, "there is no such module")
        return
    if missing := missing_packages():
        report.skip(MODULE, f"it needs trained weights, and {' and '.join(missing)} are missing")
        return
    wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(FOLDER / "wheels")}
    with tempfile.TemporaryDirectory() as folder:
        record, results = Path(folder) / "completion.json", Path(folder) / "results.jsonl"
        command = [sys.executable, "-m", MODULE, "--results", str(results)]
        if tiny:
            subprocess.run([*command, *OPTIONS, "--help"], check=True, stdout=subprocess.DEVNULL)
            report.skip(MODULE, "a dry run asks whether its options are known, and no more")
            return
        try:
            left = max(1.0, until - time.monotonic())
            subprocess.run([*command, *OPTIONS], check=True, env=os.environ | wheels, timeout=left)
        except subprocess.TimeoutExpired:
            print("The time is over: the report is of what was measured.", flush=True)
        if not results.is_file():
            report.skip(MODULE, "the time did not suffice for one body")
            return
        subprocess.run([*command, "--report", "--json", str(record)], check=True)
        for row in loads(record.read_text(encoding="utf-8"))["rows"]:
            report.add(**row)
