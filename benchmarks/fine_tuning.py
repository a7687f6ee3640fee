"""What does fine-tuning a model for one query cost, and how much less than without an engine?

    python -m benchmarks.fine_tuning --data FOLDER [--quick] [--threads 1 2]
        [--only throughput memory ...] [--json FILE] [--plot FILE]

Steps against a plain PEFT loop and the HF Trainer, peak memory, the reset from one query to the
next, and what each of them costs in bits per byte. Ratios are
medians over visits of one run in which ours and each rival alternate. fine_tuning_rivals.py says
what exactly the rivals are, bars.toml what must be reached. Parts that do not depend on it run with
the last number of threads alone. `--quick` shows that everything runs, in three minutes; its
numbers are rough.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers.utils import logging

from benchmarks import (
    fine_tuning_cases,
    fine_tuning_gpu,
    fine_tuning_memory,
    fine_tuning_plot,
    fine_tuning_quality,
)
from benchmarks.bars import load_bars
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.answering.model.bundled import SMOLLM2

PACKAGES = ["torch", "transformers", "peft", "accelerate", "numpy", "sift-rerank"]
PARTS = ("throughput", "reset", "memory", "quality", "figure", "gpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter chunks, one round")
    parser.add_argument(
        "--threads", type=int, nargs="+", help="of torch, in turn; 1 and 2, with --quick 1"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    parser.add_argument("--model", default=SMOLLM2, help="for the part quality: name, or folder")
    parser.add_argument("--data", type=Path, help="folder with minipile/, for the part quality")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--plot", type=Path, help="where to draw time and memory (PNG)")
    arguments = parser.parse_args()
    if "quality" in arguments.only and arguments.data is None:
        parser.error("the part quality needs --data FOLDER; --only names the parts to run")
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    report = Report(bar_numbers=load_bars("fine_tuning"))
    for threads in arguments.threads or ([1] if arguments.quick else [1, 2]):
        torch.set_num_threads(threads)
        measure_times(report, arguments.only, threads=threads, quick=arguments.quick)
    if "memory" in arguments.only:
        fine_tuning_memory.measure(report, threads=threads, quick=arguments.quick)
    if "quality" in arguments.only:
        n_documents, n_chunks = (2, 4) if arguments.quick else (6, 6)
        fine_tuning_quality.measure(
            report,
            arguments.data,
            model=arguments.model,
            threads=threads,
            n_documents=n_documents,
            n_chunks=n_chunks,
        )
    if "figure" in arguments.only:
        fine_tuning_plot.measure_and_draw(
            report, arguments.plot, threads=threads, quick=arguments.quick
        )
    if "gpu" in arguments.only:
        fine_tuning_gpu.measure(report)
    report.summarize()
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


def measure_times(report: Report, parts: Sequence[str], *, threads: int, quick: bool) -> None:
    """Measure the parts that depend on the number of threads."""
    effort = fine_tuning_cases.Effort.quick() if quick else fine_tuning_cases.Effort()
    if "throughput" in parts:
        fine_tuning_cases.throughput(report, effort, threads=threads)
    if "reset" in parts:
        fine_tuning_cases.reset(report, threads=threads)


if __name__ == "__main__":
    main()
