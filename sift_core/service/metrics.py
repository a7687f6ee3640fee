"""Figures for Prometheus: requests, seconds by stage, queues, learning, caches, tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# A rerank of given vectors takes milliseconds, a fine-tuning minutes.
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)


class Metrics:
    """The figures of one service; several in a process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        seconds = partial(Histogram, registry=self._registry, buckets=_SECONDS)
        self.requests: Counter = counter("sift_requests", "Requests answered", ["route", "status"])
        self.request_seconds: Histogram = seconds(
            "sift_request_seconds",
            "Seconds from a request's arrival to the end of its answer",
            ["route"],
        )
        self._stages = seconds("sift_stage_seconds", "Seconds by stage of the work", ["stage"])
        self._running = gauge("sift_queue_running", "Requests being computed", ["queue"])
        self._waiting = gauge("sift_queue_waiting", "Requests that wait", ["queue"])
        self.learning_steps: Counter = counter("sift_learning_steps", "Training steps taken")
        self._cache = counter("sift_cache", "Look-ups in caches", ["cache", "result"])
        self._tokens = counter("sift_tokens", "Tokens", ["kind"])
        self.clients_gone: Counter = counter(
            "sift_clients_gone", "Clients that went away before their answer"
        )

    def queue(
        self, name: str, n_running: Callable[[], float], n_waiting: Callable[[], float]
    ) -> None:
        """Ask how full a queue is whenever the figures are read."""
        self._running.labels(name).set_function(n_running)
        self._waiting.labels(name).set_function(n_waiting)

    def stages(self, timings: Mapping[str, float]) -> None:
        """Count seconds by stage."""
        for stage, seconds in timings.items():
            self._stages.labels(stage).observe(seconds)

    def looked_up(self, cache: str, hits: int, misses: int) -> None:
        """Count look-ups in a cache."""
        self._cache.labels(cache, "hit").inc(hits)
        self._cache.labels(cache, "miss").inc(misses)

    def tokens(self, **numbers: int) -> None:
        """Count tokens by kind: prompt, completion, embedding."""
        for kind, number in numbers.items():
            self._tokens.labels(kind).inc(number)

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self._registry)
