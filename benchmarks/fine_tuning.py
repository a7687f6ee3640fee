"""What does fine-tuning a model for one query cost, and how much less than without an engine?

    python -m benchmarks.fine_tuning [--quick] [--threads 1 2] [--only throughput memory]
        [--json FILE]

Steps against a plain PEFT loop, and peak memory. Weights are random, which takes as long as trained
ones. A call takes seconds, so each visit is one call, and ours is visited before each rival. A
ratio is the median over visits of the rival's time over that of the visit to ours right before.
fine_tuning_rivals.py says what exactly the rivals are, bars.toml what must be reached. Memory is
measured with the last number of threads alone. `--quick` shows that everything runs.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import torch
from transformers.utils import logging

from benchmarks import fine_tuning_memory
from benchmarks.fine_tuning_rivals import Steps, engine_steps, peft_steps, seconds_a_step
from benchmarks.fine_tuning_shapes import GPT2, Shape
from benchmarks.options import options
from benchmarks.report import Report

PACKAGES = ["torch", "transformers", "peft", "numpy", "sift-rerank"]
PARTS = ("throughput", "memory")
OURS_BF16, OURS_FP32 = "ours, bf16 base", "ours, fp32"
PLAIN_FP32, PLAIN_BF16 = "plain PEFT loop, fp32", "plain PEFT loop, bf16 base"
BARS = {PLAIN_FP32: "bf16_over_plain_fp32", PLAIN_BF16: "bf16_over_plain_bf16"}


class Effort(NamedTuple):
    """How often each way is visited, steps of a visit, the first uncounted, tokens of a chunk."""

    rounds: int = 3
    n_steps: int = 3
    n_tokens: int = 512


QUICK = Effort(rounds=1, n_steps=2, n_tokens=128)


def throughput(report: Report, effort: Effort, *, threads: int) -> None:
    """Measure steps against the rivals' and hold them against the bars."""
    n_tokens = effort.n_tokens
    report.heading(f"Steps: {GPT2.name}, chunks of {n_tokens} tokens, {threads} thread(s)")
    seconds, over_ours = against_rivals(GPT2, ways_on_cpu(), effort)
    for name in seconds:
        report.add(
            case=f"steps, {GPT2.name}, {n_tokens} tokens",
            method=name,
            threads=threads,
            seconds=round(seconds[name], 4),
            over_ours=round(over_ours[name], 4),
            tokens_a_second=round(n_tokens / seconds[name], 1),
        )
    for name, key in BARS.items():
        report.judge(f"{name} ÷ {OURS_BF16}, {threads} thread(s)", over_ours[name], key)


def ways_on_cpu() -> dict[str, Steps]:
    """Return each way with a model of its own, ours first."""
    bf16, fp32 = torch.bfloat16, torch.float32
    return {
        OURS_BF16: engine_steps(GPT2.language_model(bf16)),
        OURS_FP32: engine_steps(GPT2.language_model(fp32)),
        PLAIN_FP32: peft_steps(GPT2.language_model(fp32)),
        PLAIN_BF16: peft_steps(GPT2.language_model(bf16)),
    }


def against_rivals(
    shape: Shape, ways: Mapping[str, Steps], effort: Effort
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median seconds of a step of each way, and of its time over that of the first.

    The first is visited before each other way, `effort.rounds` times, after one round that does not
    count.
    """
    ours = next(iter(ways))

    def visit(name: str, round_: int) -> float:
        n_steps = effort.n_steps if round_ else 2
        return seconds_a_step(ways[name], shape.texts(n_steps, effort.n_tokens, seed=round_))

    for name in ways:
        visit(name, 0)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    ratios[ours] = [1.0]
    for round_ in range(1, effort.rounds + 1):
        gc.collect()
        for name in [name for name in ways if name != ours]:
            before = visit(ours, round_)
            seconds[ours].append(before)
            seconds[name].append(visit(name, round_))
            ratios[name].append(seconds[name][-1] / before)
    return (
        {name: median(values) for name, values in seconds.items()},
        {name: median(values) for name, values in ratios.items()},
    )


def main() -> None:
    parser = options(__doc__, quick="fewer and shorter chunks, one round")
    parser.add_argument(
        "--threads", type=int, nargs="+", help="of torch, in turn; 1 and 2, with --quick 1"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    report = Report(section="fine_tuning")
    for threads in arguments.threads or ([1] if arguments.quick else [1, 2]):
        torch.set_num_threads(threads)
        if "throughput" in arguments.only:
            throughput(report, QUICK if arguments.quick else Effort(), threads=threads)
    if "memory" in arguments.only:
        fine_tuning_memory.measure(report, threads=threads, quick=arguments.quick)
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
