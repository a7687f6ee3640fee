"""Several queries in one forward pass: how much faster than one after another, and how equal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks import fine_tuning_rivals as rivals
from benchmarks.fine_tuning_cases import SETTINGS, Effort, add_rows, judge
from benchmarks.fine_tuning_shapes import Shape, small_llama
from benchmarks.fine_tuning_timing import Measured, Visit, alternate
from benchmarks.report import Report
from sift_core.answering import LanguageModel, adapt_many, fine_tune


def measure(report: Report, effort: Effort, *, threads: int) -> None:
    """Measure several queries in one forward pass against one after another."""
    shape = small_llama()
    language_model = shape.language_model()
    for n_tokens in (64, 256):
        report.heading(f"adapt_many: {shape.name}, fp32, {n_tokens} tokens, {threads} thread(s)")
        for n_queries in effort.n_queries:
            case = f"adapt_many, {n_queries} queries, {n_tokens} tokens"
            measured = many_against_sequential(language_model, shape, n_queries, n_tokens, effort)
            times_as_fast = measured.over_ours["one after another"]
            differences = differences_of_many(
                language_model,
                shape.texts(1, n_tokens, seed=99)[0],
                queries_of(shape, n_queries, n_tokens, effort.many_chunks, 0),
            )
            add_rows(report, case, measured, threads=threads, more=differences)
            print(f"  {'':>14}largest differences: {differences}")
            if n_queries >= 4:
                loss = differences["largest_loss_difference"]
                logit = differences["largest_logit_difference"]
                judge(report, f"{case}: loss difference", loss, "many_difference", threads, "lower")
                judge(
                    report, f"{case}: logit difference", logit, "many_difference", threads, "lower"
                )
                if n_tokens == 64:
                    judge(report, f"Sequential ÷ {case}", times_as_fast, "many_64", threads)


def queries_of(
    shape: Shape, n_queries: int, n_tokens: int, n_chunks: int, seed: int
) -> list[list[str]]:
    return [shape.texts(n_chunks, n_tokens, seed=1000 * seed + query) for query in range(n_queries)]


def many_against_sequential(
    language_model: LanguageModel, shape: Shape, n_queries: int, n_tokens: int, effort: Effort
) -> Measured:
    """Return the time of all queries, each way."""

    def visit(run: Callable[[list[list[str]]], Any]) -> Visit:
        def timed(round_: int) -> float:
            queries = queries_of(shape, n_queries, n_tokens, effort.many_chunks, round_)
            started = time.perf_counter()
            run(queries)
            return time.perf_counter() - started

        return timed

    visits = {
        "adapt_many": visit(lambda queries: adapt_many(language_model, queries, SETTINGS)),
        "one after another": visit(
            lambda queries: [fine_tune(language_model, texts, SETTINGS) for texts in queries]
        ),
    }
    return alternate("adapt_many", visits, rounds=effort.rounds)


def differences_of_many(
    language_model: LanguageModel, probe: str, queries: list[list[str]]
) -> dict[str, float]:
    """Return the largest differences in losses, and in the logits of `probe` afterwards."""
    ids = torch.tensor(rivals.model_inputs(language_model, [probe]))
    ids = ids.to(language_model.model.device)

    def logits(adapter: Any) -> Any:
        with language_model.adapted(adapter), torch.inference_mode():
            return language_model.model(input_ids=ids).logits

    loss = logit = 0.0
    for texts, together in zip(queries, adapt_many(language_model, queries, SETTINGS), strict=True):
        alone = fine_tune(language_model, texts, SETTINGS)
        pairs = zip(alone.report.losses, together.report.losses, strict=True)
        loss = max(loss, *(abs(a - b) for a, b in pairs))
        difference = logits(alone.adapter) - logits(together.adapter)
        logit = max(logit, float(difference.abs().max()))
    return {"largest_loss_difference": loss, "largest_logit_difference": logit}
