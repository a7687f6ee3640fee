"""Times of the engine: against its rivals, from query to query, and by scope.

All with random weights, which take as long as trained ones; fine_tuning_quality.py has what each
way to save time costs in bits per byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from benchmarks import fine_tuning_rivals as rivals
from benchmarks.fine_tuning_shapes import Shape, gpt2, small_llama
from benchmarks.fine_tuning_timing import Measured, Visit, alternate
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune

SETTINGS = FineTuningSettings()
BF16, FP32 = torch.bfloat16, torch.float32
OURS_BF16, OURS_FP32 = "ours, bf16 base", "ours, fp32"
PLAIN_FP32, PLAIN_BF16 = "plain PEFT loop, fp32", "plain PEFT loop, bf16 base"
TRAINER = "HF Trainer, fp32"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to measure.

    Args:
        rounds: How often each way is visited.
        n_steps: Steps of one visit to a rival; the first one does not count.
        n_chunks: Chunks of one visit to a scope.
        gpt2_tokens: Of a chunk.
        small_only: Whether GPT-2 is left out where it takes minutes.
    """

    rounds: int = 3
    n_steps: int = 3
    n_chunks: int = 4
    gpt2_tokens: int = 512
    small_only: bool = False

    @classmethod
    def quick(cls) -> Effort:
        """Return enough to see that everything runs; its ratios are rough."""
        return cls(
            rounds=1,
            n_steps=2,
            n_chunks=2,
            gpt2_tokens=128,
            small_only=True,
        )


def throughput(report: Report, effort: Effort, *, threads: int) -> None:
    """Measure steps against the rivals'; GPT-2 is held against the bars."""
    for shape, n_tokens in ((small_llama(), 256), (gpt2(), effort.gpt2_tokens)):
        report.heading(f"Steps: {shape.name}, chunks of {n_tokens} tokens, {threads} thread(s)")
        why = rivals.why_no_trainer()
        if why:
            report.skip(f"{TRAINER}, {shape.name}", why)
        measured = against_rivals(shape, n_tokens, effort, with_trainer=not why)
        add_rows(
            report,
            f"steps, {shape.name}, {n_tokens} tokens",
            measured,
            threads=threads,
            tokens=n_tokens,
        )
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
        with rivals.adapted(model):
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
    report: Report,
    case: str,
    measured: Measured,
    *,
    threads: int,
    tokens: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Add and print one row a way; `tokens` of a step also give tokens a second."""
    for name, seconds in measured.seconds.items():
        row = {"seconds": round(seconds, 4), "over_ours": round(measured.over_ours[name], 4)}
        if tokens is not None:
            row["tokens_a_second"] = round(tokens / seconds, 1)
        add_row(report, case, name, threads=threads, **row, **(more or {}))


def add_row(report: Report, case: str, method: str, *, threads: int, **numbers: Any) -> None:
    """Add one row and print it."""
    report.rows.append({"case": case, "method": method, "threads": threads, **numbers})
    shown = "  ".join(
        f"{name} {value:.4g}" for name, value in numbers.items() if not name.startswith("largest")
    )
    print(f"  {method:>28}  {shown}", flush=True)


def judge(
    report: Report, name: str, value: float, key: str, threads: int, better: Any = "higher"
) -> None:
    """Judge a bar of one number of threads."""
    report.judge(f"{name}, {threads} thread(s)", value, key, better)
