"""What went wrong, as each dialect tells it. No path, environment or traceback is in a message."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sift_core.errors import (
    AdapterServerError,
    AnswerError,
    BusyError,
    CandidateSourceError,
    InvalidInputError,
    MissingDependencyError,
    NumericalError,
    SiftError,
)

logger = logging.getLogger(__name__)
request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""Name of the request that is served: in its answer's x-request-id, and in the log."""

_OPENAI_TYPES = {
    401: "authentication_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}
_TEI_TYPES = {422: "Validation", 424: "Backend", 429: "Overloaded", 503: "Unhealthy"}
_INTERNAL = "the service failed; its log says why under this answer's x-request-id"


class RefusedError(SiftError):
    """A request that is not served, and what the client is told.

    Args:
        message: What was wrong, what arrived and what to do; the client reads it.
        status: HTTP's.
        code: A word for programs, such as "model_not_found".
        param: The field that is wrong; None for none.
        retry_after_s: When to ask again; None where that would not help.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True)
class Told:
    """An error as it is sent.

    Args:
        status: HTTP's.
        body: JSON.
        headers: Beside those of every answer.
    """

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def refusal_of(error: BaseException) -> RefusedError:
    """Return what a client is told of an error; what it need not know is logged."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, BusyError):
        return RefusedError(str(error), status=429, code="overloaded", retry_after_s=5.0)
    if isinstance(error, InvalidInputError):
        return RefusedError(str(error))
    if isinstance(error, NumericalError):
        return RefusedError(f"these numbers are out of the range of float64: {error}")
    logger.error("request %s failed", request_id.get(), exc_info=error)
    if isinstance(error, CandidateSourceError):
        return RefusedError(
            "the store of documents failed; ask again, and see the service's log",
            status=503,
            code="store_failed",
            retry_after_s=error.retry_after_s or 5.0,
        )
    if isinstance(error, AdapterServerError):
        is_gone = error.status is None
        return RefusedError(
            "the server that generates failed; ask again, and see the service's log",
            status=503 if is_gone else 502,
            code="generator_failed",
            retry_after_s=5.0 if is_gone else None,
        )
    if isinstance(error, AnswerError):
        return RefusedError(
            "the language model failed on this request; it is as before. The service's log says "
            "more under this answer's x-request-id",
            status=500,
            code="model_failed",
        )
    if isinstance(error, MissingDependencyError):
        return RefusedError(f"the service is not completely installed: {error}", status=501)
    return RefusedError(_INTERNAL, status=500, code="internal_error")


def told(path: str, refused: RefusedError) -> Told:
    """Return an error in the dialect of a path.

    Args:
        path: Of the request. Under /v1/rerank, which several dialects share, the body has the
            keys of all of them.
        refused: The error.
    """
    message, status = str(refused), refused.status
    headers: dict[str, str] = {}
    if refused.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(refused.retry_after_s)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if path.endswith("/rerank"):
        if path == "/rerank" and status == 400:
            status = 422  # as Jina and TEI have it
        if path == "/rerank" and status == 500:
            status = 424  # of TEI: the model failed
        body: dict[str, Any] = {"message": message, "detail": message}
        if path == "/rerank":
            body |= {"error": message, "error_type": _TEI_TYPES.get(status, "Validation")}
        return Told(status=status, body=body, headers=headers)
    if path.startswith("/v1/"):
        return Told(status=status, body={"error": openai_error(refused)}, headers=headers)
    return Told(status=status, body={"detail": message}, headers=headers)


def openai_error(refused: RefusedError) -> dict[str, Any]:
    """Return what stands under "error" in OpenAI's dialect, in answers and in streams."""
    kind = _OPENAI_TYPES.get(refused.status)
    if kind is None:
        kind = "server_error" if refused.status >= 500 else "invalid_request_error"
    return {
        "message": str(refused),
        "type": kind,
        "param": refused.param,
        "code": refused.code,
    }
