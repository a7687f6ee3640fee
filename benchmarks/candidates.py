"""What does a source cost over the bare call of the store behind it?

    python -m benchmarks.candidates [--quick] [--json FILE]

One thread. Every time is a median of one run in which the bare call and ours alternate, on the
same queries. The bare call is what brings the vectors: Faiss' `search_and_reconstruct`,
and qdrant-client's `query_points`, by REST and by gRPC, against a server on this machine that
answers from memory, so that hardly anything but the client's own work is on the other side of the
ratio.
candidates_cases.py has the cases, bars.toml what must be reached.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and Faiss load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

from pathlib import Path

from benchmarks import candidates_cases
from benchmarks.bars import load_bars
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core import load_compiled

PACKAGES = ["numpy", "numba", "faiss-cpu", "qdrant-client", "grpcio", "sift-rerank"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller stores, fewer rounds")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(bar_numbers=load_bars("candidates"))
    effort = candidates_cases.Effort.quick() if arguments.quick else candidates_cases.Effort()
    candidates_cases.measure(report, effort)
    report.summarize()
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
