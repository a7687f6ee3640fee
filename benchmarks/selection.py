"""How fast is selection, against activeft, its bare arithmetic, pyversity and a Faiss search?

    python -m benchmarks.selection [--quick] [--json FILE] [--plot FILE]

One thread. Every time is a median over queries and repetitions of one run in which ours and each
rival alternate; a bar is held against the worse of two kinds of data (selection_data.py).
selection_rivals.py says what exactly is timed of each rival, bars.toml what must be reached.
`--quick` shows that everything runs; its ratios are rough.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

from pathlib import Path

from benchmarks import selection_cases, selection_gpu, selection_plot
from benchmarks.bars import load_bars
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core import load_compiled

PACKAGES = ["numpy", "numba", "faiss-cpu", "pyversity", "activeft", "torch", "sift-rerank"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer queries and repetitions")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--plot", type=Path, help="where to draw time against K (PNG)")
    arguments = parser.parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(bar_numbers=load_bars("selection"))
    effort = selection_cases.Effort.quick() if arguments.quick else selection_cases.Effort()
    selection_cases.measure(report, effort)
    selection_gpu.measure(report)
    if arguments.plot:
        selection_plot.measure_and_draw(report, arguments.plot, quick=arguments.quick)
    report.summarize()
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
