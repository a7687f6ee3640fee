"""What do traces cost? The span of a reranking, beside the reranking of 200 chunks.

    OMP_NUM_THREADS=1 python -m benchmarks.traces [--json benchmarks/results/traces.json]

A span is timed alone, since 0.1 % is below the noise of choices. The fastest of 1,000 spans and 60
choices count. The SDK drops what it recorded: batches are exported in another thread.
"""

from __future__ import annotations

import os
import timeit
from collections.abc import Callable
from functools import partial

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

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
    sdk = TracerProvider()
    states = {"SDK": (sdk, ""), "SDK and texts": (sdk, "true"), "API alone": (None, "")}
    for data, words in {"by embeddings alone": 0.0, "with words": SHARE}.items():
        choice = ChoiceOptions(words=words)
        report.add(
            data=data, step="choose", us=fastest_us(partial(choose, pool, query, choice), 60)
        )
        whole, chosen = report.rows[-1]["us"], choose(pool, query, choice)
        one = traced(select_span, selected)(lambda *_: chosen)  # noqa: B023
        for state, (provider, content) in states.items():
            trace._TRACER_PROVIDER, os.environ[CONTENT_VARIABLE] = provider, content
            us = fastest_us(partial(one, pool, query, choice), 1000)
            report.add(data=data, step=state, us=us, percent=100 * us / whole)
            if provider is None:
                report.judge(f"{state}, {data}, share of a choice", us / whole, "share", "lower")
    report.finish(arguments.json, ["numpy", "opentelemetry-api", "opentelemetry-sdk"])


def fastest_us(call: Callable[[], object], times: int) -> float:
    return round(1e6 * min(timeit.repeat(call, number=1, repeat=times)), 3)


if __name__ == "__main__":
    main()
