"""Errors that clients read. No path, environment or traceback is in a message."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from sift_core.errors import (
    AnswerError,
    BusyError,
    CandidateSourceError,
    GeneratorError,
    InvalidInputError,
    MissingDependencyError,
    NumericalError,
    SiftError,
)

logger: logging.Logger = logging.getLogger(__name__)
request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""Name of the request that is served: in its answer's x-request-id, and in the log."""

_OPENAI_TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


class RefusedError(SiftError):
    """A request that is not served, with the reason that the client reads.

    Args:
        message: The fault, the value that arrived, and the remedy.
        status: HTTP's status. Default: 400.
        code: A word for programs, such as "model_not_found". Default: None.
        param: The wrong field. Default: None.
        retry_after_s: Seconds after which to ask again. Default: None, where that would not help.
        headers: Further headers of the answer. Default: none.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status: int = status
        self.code: str | None = code
        self.param: str | None = param
        self.retry_after_s: float | None = retry_after_s
        self.headers: Mapping[str, str] = headers or {}


def stopping() -> RefusedError:
    """Return the refusal of a service that is being stopped."""
    return RefusedError("the service is being stopped", status=503, retry_after_s=10.0)


def refusal_of(error: BaseException) -> RefusedError:
    """Return the refusal that a client reads of an error; what it need not know is logged."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, BusyError):
        return RefusedError(str(error), status=429, code="overloaded", retry_after_s=5.0)
    if isinstance(error, InvalidInputError):
        return RefusedError(str(error))
    if isinstance(error, NumericalError):
        return RefusedError(f"these numbers are out of the range of float64: {error}")
    logger.error("request %s failed", request_id.get(), exc_info=error)
    if isinstance(error, MissingDependencyError):
        return RefusedError(f"the service is not completely installed: {error}", status=501)
    status, code, retry_after_s = 500, "internal_error", None
    message = "the service failed; its log says why under this answer's x-request-id"
    if isinstance(error, CandidateSourceError):
        return _of_store(error)
    elif isinstance(error, GeneratorError):
        status, code = 502, "generator_failed"
        if error.status in (None, 429, 503):  # it is gone, or has too much to do
            status, retry_after_s = 503, error.retry_after_s or 5.0
        message = "the server that generates failed; ask again, and see the service's log"
    elif isinstance(error, AnswerError):
        code = "model_failed"
        message = (
            "the language model failed on this request; it is as before. The service's log says "
            "more under this answer's x-request-id"
        )
    return RefusedError(message, status=status, code=code, retry_after_s=retry_after_s)


def _of_store(error: CandidateSourceError) -> RefusedError:
    if error.is_lasting:
        message = "the entries of the store do not suit this service; its log says why"
        return RefusedError(message, status=500, code="store_failed")
    message = "the store of documents failed; ask again, and see the service's log"
    seconds = error.retry_after_s or 5.0
    return RefusedError(message, status=503, code="store_failed", retry_after_s=seconds)


def openai_error(refused: RefusedError) -> dict[str, Any]:
    """Return what stands under "error" in OpenAI's dialect, in answers and in streams."""
    other = "server_error" if refused.status >= 500 else "invalid_request_error"
    kind = _OPENAI_TYPES.get(refused.status, other)
    return {"message": str(refused), "type": kind, "param": refused.param, "code": refused.code}
