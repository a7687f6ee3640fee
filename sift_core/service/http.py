"""Requests and answers in JSON: cheap to refuse, fast to read.

Pydantic reports each fault of a list or an object. Two million of them took gigabytes and half a
minute, from a body of two megabytes. So the first fault ends the reading of a list, and an object
has a hundred keys at most.

JSON is read in one piece on the event loop, and nothing else is served meanwhile. Its time grows
with the number of values and not with the length of texts: a million lists took six seconds. So
the values are counted before any is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from anyio import to_thread
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, FailFast, model_validator
from pydantic_core import from_json

from sift_core.option_fields import OptionsModel
from sift_core.service.errors import RefusedError

T = TypeVar("T")
MAX_KEYS = 100
# Documents that are put into order of choice, and from how many of the nearest: no reader looks at
# more, and all of 10,000 documents would take a minute.
MAX_CHOICES = 256
MAX_CANDIDATES = 1000
MAX_QUERIES = 16  # each embeds a text and fetches as many candidates as one alone
# Values of a body: 1,000 vectors of 500 numbers. They are read in 0.1 s on two cores of a Zen 3.
MAX_VALUES = 500_000
MAX_CONTAINERS = 100_000  # lists, objects and their keys, which take five times as long as numbers
MAX_ESCAPES = 2_000_000  # such as \u00e9 in texts; they are read in 0.1 s
_BLOCK = 1 << 20  # bytes that are looked at in one step
_MAX_REPAIRS = 10_000
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class _FirstFault(FailFast):
    __hash__ = object.__hash__  # without one it can be no part of a union


Many: TypeAlias = Annotated[list[T], _FirstFault()]
"""A list of which only the first fault is reported."""


def _check_keys(value: Any) -> Any:
    """Refuse an object with more keys than any request has."""
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise ValueError(f"must have at most {MAX_KEYS} keys, got {len(value):,}")
    return value


FewKeys: BeforeValidator = BeforeValidator(_check_keys)


class Body(BaseModel):
    """An object in a request."""

    _few_keys = model_validator(mode="before")(_check_keys)


class ChoiceBody(Body, OptionsModel):
    """An object with options of a choice among its fields, by `with_option_fields`."""


def dumped(content: Any) -> str:
    """Return JSON in one line, with half a surrogate pair escaped.

    Raises:
        ValueError: If a number is NaN or infinite.
    """
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


class JsonAnswer(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return dumped(content).encode()


class _Request(Request):
    """A request whose JSON is read in Rust: 200 vectors in 4 ms instead of 60."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = _read(await self.body())
        return self._json


def check_values(body: bytes) -> None:
    """Refuse JSON of more values than a request may have, before any of them is made.

    Takes O(len(body)) time: 0.1 s for 32 MiB, in steps of a few milliseconds.

    Raises:
        RefusedError: 413, if it has more than `MAX_VALUES` values, more than `MAX_CONTAINERS`
            lists, objects and keys, or more than `MAX_ESCAPES` escapes.
    """
    if body.count(b"\\") > MAX_ESCAPES:
        raise RefusedError(
            f"the body must have at most {MAX_ESCAPES:,} escapes; send texts as UTF-8",
            status=413,
            code="request_too_large",
        )
    n_values = body.count(b",")
    n_containers = body.count(b"[") + body.count(b"{") + body.count(b":")
    if n_values <= MAX_VALUES and n_containers <= MAX_CONTAINERS:
        return  # these may stand in texts, too
    n_values = n_containers = start = 0
    is_text = False
    while start < len(body):
        block = body[start : start + _BLOCK]
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # the next byte belongs to its last one
            block = body[start : start + _BLOCK + 1]
        start += len(block)
        plain = block.replace(rb"\\", b"__").replace(rb"\"", b"__")
        signs = np.frombuffer(plain, dtype=np.uint8)
        quotes = np.cumsum(signs == ord('"'), dtype=np.int32)
        outside = signs[(quotes + is_text) % 2 == 0]
        is_text ^= bool(quotes[-1] % 2)
        counts = np.bincount(outside, minlength=128)
        n_values += int(counts[ord(",")])
        n_containers += sum(int(counts[ord(sign)]) for sign in "[{:")
        if n_values > MAX_VALUES or n_containers > MAX_CONTAINERS:
            raise RefusedError(
                f"the body must have at most {MAX_VALUES:,} values, and {MAX_CONTAINERS:,} lists, "
                f"objects and keys; send fewer at once, and vectors as float32 in base64",
                status=413,
                code="request_too_large",
            )


def _read(body: bytes) -> Any:
    """Return what a body says; half a surrogate pair, as of a cut emoji, becomes U+FFFD.

    Raises:
        json.JSONDecodeError: If it is no JSON.
    """
    try:
        return from_json(body)
    except ValueError as error:
        if "hex escape" in str(error):
            plain = body.replace(rb"\\", rb"\u005c")  # so that each \u begins an escape
            repaired = _LONE_SURROGATE.sub(rb"\\ufffd", plain, count=_MAX_REPAIRS)
            if repaired != plain:
                with suppress(ValueError):
                    return from_json(repaired)
        raise json.JSONDecodeError(str(error), "", 0) from error


class JsonRoute(APIRoute):
    """A route that reads such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def read_fast(request: Request) -> Response:
            request = _Request(request.scope, request.receive)
            body = await request.body()
            if len(body) > _BLOCK:
                await to_thread.run_sync(check_values, body)
            else:
                check_values(body)
            return await handle(request)

        return read_fast
