"""Ask one server of OpenAI's protocol: routes, streams of text, and its failures as our errors."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

from sift_core.addresses import http_client, retry_after
from sift_core.answering.model.text_model import Generation
from sift_core.answering.model.thoughts import BEGIN, split_thoughts
from sift_core.checks import as_count, as_number, check_text
from sift_core.errors import GeneratorError, InvalidInputError, MissingDependencyError
from sift_core.tracing import trace_headers

try:
    import httpx
    import openai
    from anyio.from_thread import start_blocking_portal
except ImportError as error:
    raise MissingDependencyError("openai and httpx", extra="openai") from error

# JSON of another shape, or nested too deeply
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_LONGEST_MESSAGE = 500  # characters of a server's message; a guess
_POLL_S = 0.05  # between looks at whether a text is still wanted
_CHARACTERS = 64  # of a token at most; of prose four or five
_CONNECT_S = 10.0  # guess: a machine that is off does not answer at all

Advise: TypeAlias = Callable[["openai.APIStatusError", "str | None"], str]


class _Piece(NamedTuple):
    """One event of a stream of text."""

    text: str
    thoughts: str
    finish_reason: str | None  # None before the text ends
    n_read: int | None  # tokens of the prompt; None before the last event
    n_written: int | None


class Connection:
    """Asks one server. Threads may share it. It holds no open connection between two texts.

    Args:
        url: The address, up to and including /v1.
        called: Name of the server in messages.
        error: Class of the errors that are raised if it fails.
        api_key: Its key, which no message shows. Default: none.
        timeout_s: Seconds to wait for an answer, and for each piece of a text.
        max_retries: Further tries before an answer begins, after 408, 409, 429, 5xx, a time-out or
            a lost connection. `retry-after` of up to a minute is obeyed.

    Raises:
        InvalidInputError: If an argument cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        called: str,
        error: type[GeneratorError],
        api_key: str | None,
        timeout_s: float,
        max_retries: int,
    ) -> None:
        if api_key is not None:
            check_text("api_key", api_key)
            is_plain = api_key.isascii() and api_key.isprintable() and api_key == api_key.strip()
            if not (api_key and is_plain):
                raise InvalidInputError(
                    "`api_key` must be printable ASCII without spaces around it: a header"
                )
        self.url: str = url
        self.called: str = called
        self._error, self._api_key = error, api_key
        self._timeout_s = as_number("timeout_s", timeout_s, above=0)
        # What the environment says of OpenAI's own accounts is not for this server.
        omitted = ["OpenAI-Organization", "OpenAI-Project", *([] if api_key else ["Authorization"])]
        self._headers = {name: openai.Omit() for name in omitted}
        self._options: dict[str, Any] = {
            "base_url": url,
            "api_key": api_key or "none",
            "max_retries": as_count("max_retries", max_retries, minimum=0),
        }
        # A redirect would send texts of the documents to another address.
        self._http = {
            "timeout": httpx.Timeout(self._timeout_s, connect=min(_CONNECT_S, self._timeout_s)),
            "follow_redirects": False,
            "limits": httpx.Limits(max_keepalive_connections=0),
            "verify": httpx.create_ssl_context(),  # once, as it takes 50 ms
        }
        self._client = openai.OpenAI(http_client=self._made(httpx.Client), **self._options)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def get(self, path: str, purpose: str, advise: Advise) -> httpx.Response:
        """Return the answer to a GET; `advise` says what to do about a refusal."""
        with self._translated(purpose, advise):
            answer: httpx.Response = self._client.get(path, cast_to=httpx.Response, **self._request)
        return answer

    def post(self, path: str, body: object, purpose: str, advise: Advise) -> httpx.Response:
        """Return the answer to a POST of JSON."""
        with self._translated(purpose, advise):
            answer: httpx.Response = self._client.post(
                path, cast_to=httpx.Response, body=body, **self._request
            )
        return answer

    def models(self, advise: Advise) -> list[dict[str, Any]]:
        """Return what /v1/models says, a mapping with "id" for each model."""
        answer = self.get("models", "list its models", advise)
        try:
            return [{**card, "id": str(card["id"])} for card in answer.json()["data"]]
        except MALFORMED as error:
            raise self.failure(
                f"did not list its models: {self.clean(answer.text) or 'an empty answer'}; is this "
                f"the address of an API, which mostly ends in /v1?",
                answer.status_code,
            ) from error

    def write(
        self,
        path: str,
        body: Mapping[str, Any],
        advise: Advise,
        *,
        is_unwanted: Callable[[], bool],
        on_text: Callable[[str], object] | None = None,
    ) -> Generation:
        """Return a text, whose pieces are passed on as they come. Leaving it disconnects.

        Pieces may end within a character or a thought: the rest is waited for. Lone halves of
        characters become U+FFFD. A text of 64 characters a token is cut, whatever the server does.

        Args:
            path: "completions" or "chat/completions".
            body: Without `stream`.
            advise: As for `get`.
            is_unwanted: From `latch`. Ends the text. Called before it and at least each 50 ms.
            on_text: Called with each piece. What it raises passes. Default: None.
        """
        content, half, spoken, passed, reason = "", "", "", 0, None
        n_read = n_written = n_pieces = 0
        thoughts = text = ""
        lengths = (body.get(name) for name in ("max_tokens", "max_completion_tokens"))
        most = _CHARACTERS * max((n for n in lengths if type(n) is int), default=10**9)
        body = {**body, "stream": True}
        with closing(self._events(path, body, advise, is_unwanted)) as events:
            for event in events:
                piece = self._read_piece(event)
                reason = piece.finish_reason or reason
                n_read, n_written = piece.n_read or n_read, piece.n_written or n_written
                n_pieces += bool(piece.text or piece.thoughts)
                spoken += piece.thoughts
                new, half = _whole(half + piece.text)
                content += new
                thoughts, text = split_thoughts(content, is_open=False)
                if BEGIN.startswith(content.strip()):
                    text = ""  # it may begin a thought
                text = text.lstrip() if spoken else text
                if on_text is not None and len(text) > passed:
                    fresh, passed = text[passed:], len(text)
                    on_text(fresh)
                if len(content) + len(spoken) > most:
                    reason = "length"
                    break
        rest = content if BEGIN.startswith(content.strip()) else text
        rest += "\ufffd" if half else ""
        if on_text is not None and len(rest) > passed:
            on_text(rest[passed:])
        if reason is None and not is_unwanted():
            raise self.failure(
                f"broke off a text after {len(content)} characters; ask again, or see its log"
            )
        return Generation(
            text=rest,
            n_prompt_tokens=n_read,
            n_new_tokens=n_written or n_pieces,  # a piece has a token at least
            finish_reason="length" if reason in ("length", "content_filter") else "stop",
            thoughts="\n\n".join(filter(None, [spoken.strip(), thoughts])),
        )

    def _events(
        self, path: str, body: object, advise: Advise, is_unwanted: Callable[[], bool]
    ) -> Generator[Any, None, None]:
        """Yield the events of a stream until its end, or until it is unwanted.

        They are read in an event loop of another thread: there a read that waits, and a pause
        before another try, can be cancelled, which closes the connection.
        """
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        end, kind, n_events, request = object(), "", 0, self._request

        async def read() -> None:
            nonlocal kind
            try:
                async with openai.AsyncOpenAI(
                    http_client=self._made(httpx.AsyncClient), **self._options
                ) as client:
                    stream = await client.post(
                        path,
                        cast_to=object,
                        body=body,
                        stream=True,
                        stream_cls=openai.AsyncStream[object],
                        **request,
                    )
                    async with stream:
                        kind = stream.response.headers.get("content-type", "")
                        try:
                            async for event in stream:
                                events.put(event)
                        except openai.APIConnectionError as error:  # as 3 wraps what 2 lets pass
                            raise error.__cause__ or error from None
            finally:
                events.put(end)

        with self._translated("write a text", advise), start_blocking_portal() as portal:
            job = portal.start_task_soon(read)
            try:
                while not is_unwanted():
                    with suppress(queue.Empty):
                        if (event := events.get(timeout=_POLL_S)) is end:
                            job.result()  # raises what went wrong
                            break
                        n_events += 1
                        yield event
                else:
                    return
            finally:
                job.cancel()
        if not n_events:
            raise self.failure(
                f"broke off a text before its first event, with {self.clean(kind) or 'nothing'!r}; "
                f"is this the address of an API, which mostly ends in /v1?"
            )

    def failure(self, what: str, status: int | None = None) -> GeneratorError:
        """Return the error that the server did something wrong."""
        return self._error(f"{self.called} at {self.url} {what}", status=status)

    def clean(self, text: str) -> str:
        """Return a server's words as one short line without the key."""
        if self._api_key is not None:
            text = text.replace(self._api_key, "***")
        text = "".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST_MESSAGE])
        return " ".join(text.split())[:_LONGEST_MESSAGE]

    @property
    def _request(self) -> dict[str, Any]:
        """Return the headers of a request, which is a part of the current span."""
        return {"options": {"headers": {**self._headers, **trace_headers()}}}

    def _made(self, kind: Callable[..., Any]) -> Any:
        return http_client(lambda **environment: kind(**self._http, **environment), self.url)

    @contextmanager
    def _translated(self, purpose: str, advise: Advise) -> Iterator[None]:
        """Raise our error for what the clients raise in the block."""
        try:
            yield
        except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
            said = self.clean(str(getattr(error, "doc", error)))
            raise self.failure(f"wrote no event of a text: {said!r}; is it an API?") from error
        except openai.APIStatusError as error:
            raise self._refusal(purpose, error, advise) from error
        except (openai.APITimeoutError, httpx.TimeoutException) as error:
            raise self.failure(
                f"did not answer {error.request.url.path} in {self._timeout_s:g} s; it is too "
                f"busy or hangs: ask again, or pass a longer `timeout_s`"
            ) from error
        except (openai.APIConnectionError, RuntimeError) as error:  # or it was closed
            cause = error.__cause__ or error
            raise self.failure(
                f"could not be asked to {purpose}: "
                f"{self.clean(str(cause)) or type(cause).__name__}; is it running there?"
            ) from error
        except (openai.APIError, httpx.HTTPError) as error:  # in the middle of a stream
            said = self.clean(getattr(error, "message", "") or str(error)) or type(error).__name__
            raise self.failure(f"broke off a text: {said}; ask again, or see its log") from error

    def _refusal(
        self, purpose: str, error: openai.APIStatusError, advise: Advise
    ) -> GeneratorError:
        status, headers = error.status_code, error.response.headers
        message = message_of(error.response)
        said = self.clean(error.response.text if message is None else message) or "without a word"
        if 300 <= status < 400:
            place = self.clean(headers.get("location", ""))
            advice = f"it redirects to {place!r}: pass that address if you trust it"
        else:
            advice = advise(error, message)
        refusal = self.failure(f"did not {purpose}: {status} {said}; {advice}", status)
        refusal.retry_after_s = retry_after(headers.get("retry-after", ""))
        return refusal

    def _read_piece(self, event: Any) -> _Piece:
        try:
            usage, choice = event.get("usage") or {}, (event["choices"] or [{}])[0]
            delta = choice.get("delta") or choice
            texts = [
                delta.get("content") or delta.get("text") or "",
                delta.get("reasoning_content") or delta.get("reasoning") or "",
            ]
            counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
            reason = choice.get("finish_reason")
            are_texts = all(isinstance(one, str) for one in (*texts, reason or ""))
            are_counts = all(n is None or (isinstance(n, int) and 0 <= n < 2**63) for n in counts)
            if not (are_texts and are_counts):
                raise TypeError("texts and counts are expected")
            return _Piece(texts[0], texts[1], reason, counts[0], counts[1])
        except MALFORMED as error:
            raise self.failure(
                f"wrote no event of a text: {self.clean(repr(event))}; is it an API?"
            ) from error


def latch(criteria: Sequence[Callable[..., Any]]) -> Callable[[], bool]:
    """Return a function that is true from the first time on that one of the criteria is."""
    is_over = False

    def is_unwanted() -> bool:
        nonlocal is_over
        is_over = is_over or any(criterion(None, None) for criterion in criteria)
        return is_over

    return is_unwanted


def _whole(text: str) -> tuple[str, str]:
    """Return a text with whole characters, and half a surrogate pair at its end."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    encoded = text[: len(text) - len(half)].encode("utf-16-le", "surrogatepass")
    return encoded.decode("utf-16-le", "replace"), half


def message_of(answer: Any) -> str | None:
    """Return the message of an error, in any of the forms that there are; None if it has none."""
    try:
        body = answer.json()
        error = body.get("error", body)
        return error if isinstance(error, str) else str(error["message"])
    except MALFORMED:
        return None


def check_url(name: str, url: str) -> httpx.URL:
    """Return an address. No refusal shows it, since it may hold a secret.

    Raises:
        InvalidInputError: If it is none, or has a password, query or fragment.
    """
    try:
        parsed = httpx.URL(url.strip().rstrip("/"))
    except (httpx.InvalidURL, TypeError, AttributeError) as error:
        raise InvalidInputError(f"`{name}` must be an address, http://127.0.0.1:8000") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInputError(f"`{name}` must begin with http:// or https:// and name a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidInputError(
            f"`{name}` must have no password, query or fragment; pass a key as `api_key`"
        )
    return parsed
