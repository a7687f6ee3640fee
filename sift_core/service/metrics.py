"""What Prometheus reads: requests, seconds by stage, queues, learning, caches, tokens."""

from __future__ import annotations

from collections.abc import Mapping

from sift_core.errors import MissingDependencyError

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
    )
except ImportError as error:
    raise MissingDependencyError("prometheus-client", extra="serve") from error

CONTENT_TYPE = CONTENT_TYPE_LATEST

# A rerank of given vectors takes milliseconds, a fine-tuning minutes.
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)


class Metrics:
    """The figures of one service; several in a process do not mix."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "sift_requests", "Requests answered", ["route", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "sift_request_seconds",
            "Seconds from a request's arrival to the end of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._stages = Histogram(
            "sift_stage_seconds",
            "Seconds by stage of the work",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._running = Gauge(
            "sift_queue_running", "Requests being computed", ["queue"], registry=registry
        )
        self._waiting = Gauge(
            "sift_queue_waiting", "Requests that wait", ["queue"], registry=registry
        )
        self._learning_steps = Counter(
            "sift_learning_steps", "Training steps taken", registry=registry
        )
        self._cache = Counter(
            "sift_cache", "Look-ups in caches", ["cache", "result"], registry=registry
        )
        self._tokens = Counter("sift_tokens", "Tokens", ["kind"], registry=registry)
        self._vanished = Counter(
            "sift_clients_gone", "Clients that went away before their answer", registry=registry
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route=route, status=str(status)).inc()
        self._request_seconds.labels(route=route).observe(seconds)

    def stages(self, timings: Mapping[str, float]) -> None:
        """Count seconds by stage."""
        for stage, seconds in timings.items():
            self._stages.labels(stage=stage).observe(seconds)

    def queue(self, name: str, *, running: int, waiting: int) -> None:
        """Note how full a queue is."""
        self._running.labels(queue=name).set(running)
        self._waiting.labels(queue=name).set(waiting)

    def learning_step(self) -> None:
        """Count a training step."""
        self._learning_steps.inc()

    def looked_up(self, cache: str, *, hits: int, misses: int) -> None:
        """Count look-ups in a cache."""
        self._cache.labels(cache=cache, result="hit").inc(hits)
        self._cache.labels(cache=cache, result="miss").inc(misses)

    def tokens(self, **numbers: int) -> None:
        """Count tokens by kind: prompt, completion, embedding."""
        for kind, number in numbers.items():
            self._tokens.labels(kind=kind).inc(number)

    def client_gone(self) -> None:
        """Count a client that went away."""
        self._vanished.inc()

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self._registry)
