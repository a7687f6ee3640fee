"""What do traces cost? The span of a reranking, beside the reranking of 200 chunks.

    OMP_NUM_THREADS=1 python -m benchmarks.traces [--json benchmarks/results/traces.json]

A span alone is timed, of a choice that was made before: a share of 0.1 % is below the noise of
whole choices. Medians of 1,000 spans and of 60 choices count. The SDK hands spans to a processor
that drops them, since a batch is exported in another thread.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from benchmarks.options import options
from benchmarks.report import Report
from benchmarks.words import N_CHUNKS, QUESTION, SHARE, documentation, pool_and_query
from sift_core import ChoiceOptions, choose, load_compiled
from sift_core.choice_spans import select_span, selected
from sift_core.tracing import CONTENT_VARIABLE, traced


def main() -> None:
    arguments = options(__doc__).parse_args()
    report = Report(section="traces")
    load_compiled()
    pool, query = pool_and_query(documentation()[:N_CHUNKS], QUESTION.format(0))
    recording = TracerProvider()
    recording.add_span_processor(SpanProcessor())
    states = {"API alone": (None, ""), "SDK": (recording, ""), "SDK and texts": (recording, "true")}
    for data, words in {"by embeddings alone": 0.0, "with words": SHARE}.items():
        choice = ChoiceOptions(words=words)
        chosen = choose(pool, query, choice)
        whole = median_us(lambda: choose(pool, query, choice), 60)  # noqa: B023
        report.add(data=data, step="choose", us=whole)
        one = traced(select_span, selected)(lambda *_: chosen)  # noqa: B023
        for state, (provider, content) in states.items():
            trace._TRACER_PROVIDER, os.environ[CONTENT_VARIABLE] = provider, content
            us = median_us(lambda: one(pool, query, choice), 1000)  # noqa: B023
            share = us / whole
            report.add(data=data, step=state, us=us, percent=100 * share)
            if provider is None:
                report.judge(f"{state}, {data}, share of a reranking", share, "share", "lower")
        trace._TRACER_PROVIDER = None
    report.finish(arguments.json, ["numpy", "opentelemetry-api", "opentelemetry-sdk"])


def median_us(call: Callable[[], object], times: int) -> float:
    """Return the median of a call's times in microseconds."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(1e6 * (time.perf_counter() - begin))
    return round(statistics.median(taken), 3)


if __name__ == "__main__":
    main()
