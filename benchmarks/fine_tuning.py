"""What does fine-tuning a model for one query cost, and how much less than without an engine?

    python -m benchmarks.fine_tuning [--quick] [--threads 1 2] [--only throughput memory ...]
        [--json FILE]

Steps against a plain PEFT loop and the HF Trainer, the reset from one query to the next, and peak
memory. Weights are random, which takes as long as trained ones. A call takes seconds, so each visit
is one call, and ours is visited before each rival. A ratio is the median over visits of the rival's
time over that of the visit to ours right before. fine_tuning_rivals.py says what exactly the rivals
are, bars.toml what must be reached. Memory is measured with the last number of threads alone.
`--quick` shows that everything runs; its numbers are rough.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import torch
from transformers.utils import logging

from benchmarks import fine_tuning_memory
from benchmarks import fine_tuning_rivals as rivals
from benchmarks.bars import load_bars
from benchmarks.fine_tuning_shapes import Shape, gpt2, small_llama
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune

PACKAGES = ["torch", "transformers", "peft", "accelerate", "numpy", "sift-rerank"]
PARTS = ("throughput", "reset", "memory")
SETTINGS = FineTuningSettings()
BF16, FP32 = torch.bfloat16, torch.float32
OURS_BF16, OURS_FP32 = "ours, bf16 base", "ours, fp32"
PLAIN_FP32, PLAIN_BF16 = "plain PEFT loop, fp32", "plain PEFT loop, bf16 base"
TRAINER = "HF Trainer, fp32"
Visit = Callable[[int], float]  # number of the round → seconds


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to measure.

    Args:
        rounds: How often each way is visited.
        n_steps: Steps of one visit to a rival; the first one does not count.
        gpt2_tokens: Of a chunk.
        small_only: Whether GPT-2 is left out where it takes minutes.
    """

    rounds: int = 3
    n_steps: int = 3
    gpt2_tokens: int = 512
    small_only: bool = False

    @classmethod
    def quick(cls) -> Effort:
        """Return enough to see that everything runs; its ratios are rough."""
        return cls(rounds=1, n_steps=2, gpt2_tokens=128, small_only=True)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Median seconds of every way by name, and of its time over ours, visit by visit."""

    seconds: dict[str, float]
    over_ours: dict[str, float]


def alternate(ours: str, visits: Mapping[str, Visit], *, rounds: int) -> Measured:
    """Visit ours before each other way, `rounds` times, after one round that does not count.

    Args:
        ours: Name of the way that is visited before each of the others.
        visits: What to measure, ours included; called with 0 to warm up, then with 1, 2, ...
        rounds: How often each is visited.
    """
    for visit in visits.values():
        visit(0)
    seconds: dict[str, list[float]] = {name: [] for name in visits}
    ratios: dict[str, list[float]] = {name: [] for name in visits}
    for round_ in range(1, rounds + 1):
        gc.collect()
        for name in [name for name in visits if name != ours]:
            before = visits[ours](round_)
            seconds[ours].append(before)
            seconds[name].append(visits[name](round_))
            ratios[name].append(seconds[name][-1] / before)
    ratios[ours] = [1.0]
    return Measured(
        seconds={name: median(values) for name, values in seconds.items()},
        over_ours={name: median(values) for name, values in ratios.items()},
    )


def throughput(report: Report, effort: Effort, *, threads: int) -> None:
    """Measure steps against the rivals'; GPT-2 is held against the bars."""
    for shape, n_tokens in ((small_llama(), 256), (gpt2(), effort.gpt2_tokens)):
        report.heading(f"Steps: {shape.name}, chunks of {n_tokens} tokens, {threads} thread(s)")
        why = rivals.why_no_trainer()
        if why:
            report.skip(f"{TRAINER}, {shape.name}", why)
        measured = against_rivals(shape, n_tokens, effort, with_trainer=not why)
        case = f"steps, {shape.name}, {n_tokens} tokens"
        add_rows(report, case, measured, threads=threads, tokens=n_tokens)
        if shape.name == gpt2().name:
            for name, key in (
                (PLAIN_FP32, "bf16_over_plain_fp32"),
                (TRAINER, "bf16_over_trainer"),
                (PLAIN_BF16, "bf16_over_plain_bf16"),
            ):
                if name in measured.over_ours:
                    judge(report, f"{name} ÷ {OURS_BF16}", measured.over_ours[name], key, threads)


def against_rivals(
    shape: Shape, n_tokens: int, effort: Effort, *, with_trainer: bool = True
) -> Measured:
    """Return the time of a step of each; every way has a model of its own."""
    ways = {
        OURS_BF16: rivals.engine_steps(shape.language_model(BF16), SETTINGS),
        OURS_FP32: rivals.engine_steps(shape.language_model(FP32), SETTINGS),
        PLAIN_FP32: rivals.peft_steps(shape.language_model(FP32)),
        PLAIN_BF16: rivals.peft_steps(shape.language_model(BF16)),
    }
    if with_trainer:
        ways[TRAINER] = rivals.trainer_steps(shape.language_model(FP32))

    def visit(steps: rivals.Steps) -> Visit:
        def run(round_: int) -> float:
            n_steps = effort.n_steps if round_ else 2
            return rivals.seconds_a_step(steps, shape.texts(n_steps, n_tokens, seed=round_))

        return run

    visits = {name: visit(steps) for name, steps in ways.items()}
    return alternate(OURS_BF16, visits, rounds=effort.rounds)


def reset(report: Report, *, threads: int, repetitions: int = 11) -> None:
    """Measure how long it takes from one query's adapter to the next one's fresh one."""
    report.heading(f"A fresh adapter: GPT-2, {threads} thread(s)")
    shape = gpt2()
    slowest = 0.0
    for name, dtype in ((OURS_FP32, FP32), (OURS_BF16, BF16)):
        language_model = shape.language_model(dtype)
        fine_tune(language_model, shape.texts(1, 32), SETTINGS)  # one query before

        def fresh(language_model: LanguageModel = language_model) -> None:
            fine_tune(language_model, [], SETTINGS)

        ours_s = median_seconds(fresh, repetitions)
        slowest = max(slowest, ours_s)
        add_row(report, "reset, GPT-2", name, threads=threads, ms=round(ours_s * 1000, 2))
    model = shape.model()

    def peft_model() -> float:
        started = time.perf_counter()
        with rivals.adapted(model):  # what ends the block, PEFT's `unload`, does not count
            return time.perf_counter() - started

    peft_model()
    theirs_s = median([peft_model() for _ in range(repetitions)])
    name = "get_peft_model, fp32"
    add_row(report, "reset, GPT-2", name, threads=threads, ms=round(theirs_s * 1000, 2))
    judge(report, "Reset, GPT-2, ms", slowest * 1000, "reset_ms", threads, better="lower")


def median_seconds(call: Callable[[], object], repetitions: int) -> float:
    """Return the median time of a call after one that does not count."""
    call()
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def add_rows(
    report: Report, case: str, measured: Measured, *, threads: int, tokens: int | None = None
) -> None:
    """Add and print one row a way; `tokens` of a step also give tokens a second."""
    for name, seconds in measured.seconds.items():
        row = {"seconds": round(seconds, 4), "over_ours": round(measured.over_ours[name], 4)}
        if tokens is not None:
            row["tokens_a_second"] = round(tokens / seconds, 1)
        add_row(report, case, name, threads=threads, **row)


def add_row(report: Report, case: str, method: str, *, threads: int, **numbers: float) -> None:
    """Add one row and print it."""
    report.rows.append({"case": case, "method": method, "threads": threads, **numbers})
    shown = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    print(f"  {method:>28}  {shown}", flush=True)


def judge(
    report: Report,
    name: str,
    value: float,
    key: str,
    threads: int,
    better: Literal["higher", "lower"] = "higher",
) -> None:
    """Judge a bar of one number of threads."""
    report.judge(f"{name}, {threads} thread(s)", value, key, better)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter chunks, one round")
    parser.add_argument(
        "--threads", type=int, nargs="+", help="of torch, in turn; 1 and 2, with --quick 1"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    report = Report(bar_numbers=load_bars("fine_tuning"))
    effort = Effort.quick() if arguments.quick else Effort()
    for threads in arguments.threads or ([1] if arguments.quick else [1, 2]):
        torch.set_num_threads(threads)
        if "throughput" in arguments.only:
            throughput(report, effort, threads=threads)
        if "reset" in arguments.only:
            reset(report, threads=threads)
    if "memory" in arguments.only:
        fine_tuning_memory.measure(report, threads=threads, quick=arguments.quick)
    report.summarize()
    if arguments.json:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
