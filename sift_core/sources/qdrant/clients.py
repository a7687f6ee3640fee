"""What the kinds of Qdrant client differ in."""

from __future__ import annotations

from sift_core.errors import MissingDependencyError

try:
    from qdrant_client import AsyncQdrantClient, QdrantClient
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

LONGEST_WAIT_S = 60.0  # for a whole answer where the client has no timeout of its own. Guess.


def is_local(client: QdrantClient | AsyncQdrantClient) -> bool:
    """Return whether a client searches by itself; exactly then, and parameters make it warn."""
    options = client.init_options
    return options.get("location") == ":memory:" or options.get("path") is not None


def timeout_s(client: QdrantClient | AsyncQdrantClient) -> float | None:
    """Return the longest time for an answer; None for a local client, which cannot stall."""
    if is_local(client):
        return None
    timeout = client.init_options.get("timeout")
    return LONGEST_WAIT_S if timeout is None else float(timeout)
