"""What the service allows: keys, limits, times."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from sift_core.checks import as_count, as_number, check_text
from sift_core.errors import InvalidInputError

KEY_VARIABLE = "SIFT_API_KEY"
_COUNTS = (
    "max_body_bytes",
    "max_held_bytes",
    "max_documents",
    "max_new_tokens",
    "n_answers",
    "n_rankings",
    "vector_cache_bytes",
    "n_sessions",
)
_WAITING = ("n_waiting_answers", "n_waiting_rankings")
_SEVERAL = ("allowed_origins", "allowed_hosts")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")
_SECONDS = ("timeout_s", "body_timeout_s", "keep_alive_s", "session_s")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """What the service allows, and how long it waits.

    Args:
        api_key: What clients send as `Authorization: Bearer KEY`; None asks for none.
        model_name: What clients call the language model; the end of its own name if None, so
            that no path is told.
        allowed_origins: Web pages of other hosts that may call, "https://example.org"; none
            if empty (no CORS).
        allowed_hosts: Names by which the service may be called, without a port; any if empty. On
            the loopback without a key these keep a web page from calling under a name of its own
            that it lets point here.
        max_body_bytes: Of a request.
        max_held_bytes: Of the bodies of all requests that are being served; more are refused (429).
        max_documents: Documents of a rerank, texts to embed, candidates of a search.
        max_new_tokens: Of one answer; what a request may ask for at most.
        n_answers: Answers that are computed at once; they take turns on the model.
        n_waiting_answers: That wait for it; more are refused (429).
        n_rankings: Reranks, searches and embeddings at once.
        n_waiting_rankings: Likewise.
        timeout_s: After which an answer ends with what there is.
        body_timeout_s: In which a request must have arrived.
        keep_alive_s: Between comments in a stream in which nothing else is written.
        n_sessions: Sessions that are kept, the least recently used dropped first.
        session_s: How long an unused session is kept.
        vector_cache_bytes: For vectors of texts that were embedded before.

    Raises:
        InvalidInputError: If a number is out of its range, a name is empty, the key is one that
            no header can hold, or a text stands where several belong.
    """

    api_key: str | None = field(default=None, repr=False)
    model_name: str | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_held_bytes: int = 128 << 20  # read as JSON they may take 60 times as much
    max_documents: int = 10_000  # Cohere's own limit
    max_new_tokens: int = 4096
    n_answers: int = 4  # as many as a model has worker threads
    n_waiting_answers: int = 32
    n_rankings: int = 4
    n_waiting_rankings: int = 128
    timeout_s: float = 300.0
    body_timeout_s: float = 60.0
    keep_alive_s: float = 5.0
    n_sessions: int = 16
    session_s: float = 3600.0
    vector_cache_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for name in _COUNTS:
            as_count(name, getattr(self, name), minimum=1)
        if self.max_held_bytes < self.max_body_bytes:
            raise InvalidInputError(
                f"`max_held_bytes` must be >= `max_body_bytes`, {self.max_body_bytes}, got "
                f"{self.max_held_bytes}"
            )
        for name in _WAITING:
            as_count(name, getattr(self, name), minimum=0)
        for name in _SECONDS:
            as_number(name, getattr(self, name), above=0)
        self._check_texts()

    def _check_texts(self) -> None:
        for name in _SEVERAL:
            if isinstance(getattr(self, name), str):
                raise InvalidInputError(
                    f"`{name}` must be a tuple of texts, got one text; put a comma behind it"
                )
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidInputError(
                    f"`allowed_origins` must be as browsers send them, https://example.org without "
                    f"a path or a slash behind it, or *, got {origin!r}"
                )
        if self.api_key is not None:
            check_text("api_key", self.api_key)
            if not re.fullmatch(r"[!-~]+", self.api_key):
                raise InvalidInputError(
                    "`api_key` must be ASCII text without spaces and not empty: it is sent in a "
                    "header"
                )
        if self.model_name is not None:
            check_text("model_name", self.model_name)
            if ":" in self.model_name or not self.model_name.strip():
                raise InvalidInputError(
                    f"`model_name` must not be empty or hold a colon, behind which the way to "
                    f"answer stands, got {self.model_name!r}"
                )


def key_of(variable: str = KEY_VARIABLE) -> str | None:
    """Return the key that an environment variable holds; None if it is not set, or empty."""
    return os.environ.get(variable, "").strip() or None
