"""Settings of the service: keys, limits, times."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields

from sift_core.checks import as_count, as_number, check_text
from sift_core.errors import InvalidInputError

KEY_VARIABLE = "SIFT_API_KEY"
WAITING_ANSWERS = 8  # for each that is computed. A guess, like the next.
WAITING_RANKINGS = 32
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Limits and times of the service, and who may call it.

    Args:
        api_key: The key that clients send as `Authorization: Bearer KEY`. Default: None, which
            asks for none.
        model_name: The name by which clients call the language model. Default: the last part of
            its own name, so that no path is visible.
        allowed_origins: Web pages of other hosts that may call, "https://example.org". Default:
            none, without CORS.
        allowed_hosts: Names by which the service may be called, without a port. Default: any. On
            the loopback without a key they stop a web page that makes its own name point here.
        max_body_bytes: Size of a request. All requests that are being served may have four times
            as much together; more are refused (429). Default: 32 MiB.
        max_documents: Documents of a rerank, texts to embed, candidates of a search. Default:
            10,000.
        max_new_tokens: Tokens of one answer that a request may ask for. Default: 4096.
        n_answers: Answers that are computed at once; they take turns on the model. Eight times as
            many may wait; more are refused (429). Default: 4.
        n_rankings: Reranks, searches and embeddings at once. 32 times as many may wait; more are
            refused (429). Default: 4.
        n_sessions: Sessions that are kept, the least recently used dropped first, and each after
            an hour without a question. Default: 16.
        timeout_s: An answer ends after this time with the text that there is. Default: 300.

    Raises:
        InvalidInputError: If a number is out of its range, a name is empty, the key is one that
            no header can hold, or a text stands where several belong.

    Example:
        >>> settings = ServiceSettings(api_key="a-long-secret", timeout_s=60)
        >>> app = create_app(source=source, embedder=embedder, settings=settings)
    """

    api_key: str | None = field(default=None, repr=False)
    model_name: str | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_documents: int = 10_000  # Cohere's own limit
    max_new_tokens: int = 4096
    n_answers: int = 4  # as many as a model has worker threads
    n_rankings: int = 4
    n_sessions: int = 16
    timeout_s: float = 300.0

    @property
    def n_requests(self) -> int:
        """How many requests run or wait at once before more are refused."""
        return (1 + WAITING_ANSWERS) * self.n_answers + (1 + WAITING_RANKINGS) * self.n_rankings

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.type == "int":
                as_count(one.name, getattr(self, one.name), minimum=1)
        as_number("timeout_s", self.timeout_s, above=0)
        self._check_texts()

    def _check_texts(self) -> None:
        for name in ("allowed_origins", "allowed_hosts"):
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
