"""What vLLM is asked over HTTP, and what its refusals mean; formats alone."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sift_core.checks import as_number
from sift_core.errors import AdapterServerError, InvalidInputError, MissingDependencyError

try:
    import httpx
except ImportError as error:
    raise MissingDependencyError("httpx", extra="vllm") from error

_ENABLE = "start `vllm serve` with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what `--max-lora-rank` can be
_LONGEST_SAID = 500  # characters of a server's message; a guess


@dataclass(frozen=True, kw_only=True)
class WrittenPiece:
    """What one event of a stream says.

    Args:
        text: New text, perhaps none.
        finish_reason: Why the text ended; None before that.
        n_new_tokens: Of the whole text; None before the last event.
    """

    text: str = ""
    finish_reason: str | None = None
    n_new_tokens: int | None = None


class VllmRequests:
    """Requests to one vLLM. Threads may share it.

    Args:
        url: Of the server, with or without /v1.
        base_model: As given to `vllm serve`.
        api_key: Likewise; None for none. It is in no message.
        timeout_s: How long to wait for each answer.

    Raises:
        InvalidInputError: If an argument cannot be used.
    """

    def __init__(self, url: str, base_model: str, *, api_key: str | None, timeout_s: float) -> None:
        if api_key is not None and not (api_key.isascii() and api_key.strip() == api_key != ""):
            raise InvalidInputError("`api_key` must be ASCII without spaces around it: a header")
        self._url, self._base_model, self._api_key = _checked_url(url), base_model, api_key
        self._timeout_s = as_number("timeout_s", timeout_s, above=0)
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._client = httpx.Client(headers=headers, timeout=self._timeout_s)

    def models(self) -> set[str]:
        """Return the names that the server knows.

        Raises:
            AdapterServerError: If it is gone, late or no vLLM, or serves another base.
        """
        answer = self._ask("GET", "models")
        try:
            cards = answer.raise_for_status().json()["data"]
            names = {str(card["id"]) for card in cards}
            roots = {str(card["root"]) for card in cards if card.get("root")}
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._refused("list its models", answer) from error
        if self._base_model not in names | roots:
            raise AdapterServerError(
                f"{self._url} serves {self._clean(', '.join(sorted(names))) or 'no model'}, and "
                f"not {self._base_model!r}, for which the adapter is; pass `base_model` as given "
                f"to `vllm serve`"
            )
        return names

    def load(self, name: str, path: str, *, rank: int) -> None:
        """Have the server load an adapter.

        Args:
            name: What it is to be called.
            path: Of its folder, absolute, as the server sees it.
            rank: The adapter's, for advice.

        Raises:
            AdapterServerError: If it does not; `status` 400 also where it knows the name already.
        """
        body = {"lora_name": name, "lora_path": path, "load_inplace": False}
        answer = self._ask("POST", "load_lora_adapter", body)
        if answer.status_code != 200:
            raise self._refused(f"load {path}", answer, rank)

    def unload(self, name: str) -> None:
        """Have the server forget an adapter; one that it does not know is forgotten.

        Raises:
            AdapterServerError: If it is gone, late, or does not.
        """
        answer = self._ask("POST", "unload_lora_adapter", {"lora_name": name})
        is_unknown = answer.status_code == 404 and _message(answer) is not None
        if answer.status_code != 200 and not is_unknown:
            raise self._refused("unload an adapter", answer)

    def written(self, request: Mapping[str, Any]) -> Generator[WrittenPiece, None, None]:
        """Yield the continuation of a prompt as it is written; closing it ends the writing.

        Args:
            request: The body of /v1/completions, but for what makes it a stream.

        Raises:
            AdapterServerError: If the server is gone, late, refuses, or breaks off.
        """
        body = {**request, "stream": True, "stream_options": {"include_usage": True}}
        place = f"{self._url}/v1/completions"
        with self._errors("completions"), self._client.stream("POST", place, json=body) as answer:
            if answer.status_code != 200:
                answer.read()
                raise self._refused("write a text", answer)
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    return
                if line.startswith("data:"):
                    yield self._piece(line.removeprefix("data:"))
        raise AdapterServerError(f"vLLM at {self._url} broke off a text; its log says more")

    def _piece(self, event: str) -> WrittenPiece:
        try:
            told = json.loads(event)
            if "error" in told:
                said = self._clean(str(told["error"]["message"]))
                raise AdapterServerError(f"vLLM at {self._url} broke off a text: {said}")
            usage, choice = told.get("usage") or {}, (told["choices"] or [{}])[0]
            return WrittenPiece(
                text=choice.get("text") or "",
                finish_reason=choice.get("finish_reason"),
                n_new_tokens=usage.get("completion_tokens"),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise AdapterServerError(
                f"vLLM at {self._url} wrote no event of a text: {self._clean(event)!r}; is it vLLM?"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, method: str, route: str, body: Any = None) -> httpx.Response:
        with self._errors(route):
            return self._client.request(method, f"{self._url}/v1/{route}", json=body)

    @contextmanager
    def _errors(self, route: str) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise AdapterServerError(
                f"vLLM at {self._url} did not answer /v1/{route} in {self._timeout_s:g} s; it is "
                f"too busy or hangs: ask again, or pass a longer `timeout_s`"
            ) from error
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: `close` was called
            raise AdapterServerError(
                f"vLLM at {self._url} could not be asked for /v1/{route}: "
                f"{self._clean(str(error)) or type(error).__name__}; is it running there?"
            ) from error

    def _refused(self, what: str, answer: httpx.Response, rank: int = 0) -> AdapterServerError:
        status, told = answer.status_code, _message(answer)
        if status == 401:
            advice = "pass the `api_key` that it was started with"
        elif status == 403 or (told is None and status in (404, 405)):
            advice = f"adapters cannot be changed there: {_ENABLE}, or correct the address"
        elif told is not None and "max_lora_rank" in told:
            advice = rank_advice(rank)
        elif told is not None and "LoRA is not enabled" in told:
            advice = _ENABLE
        elif told is not None and "target modules" in told:
            advice = "learn on layers that it adapts: `LoraConfig(target_modules=…)`"
        elif told is not None and "does not exist" in told:
            advice = (
                "pass `base_model` as given to `vllm serve`, or let nobody else unload adapters"
            )
        elif status == 404:
            advice = "pass its own path of the folder as `folder_there`, and let its user read it"
        else:
            advice = "its log says more"
        said = self._clean(told if told is not None else answer.text) or "without a word"
        return AdapterServerError(
            f"vLLM at {self._url} did not {what}: {status} {said}; {advice}", status=status
        )

    def _clean(self, text: str) -> str:
        """Return a server's words as one short line without the key."""
        if self._api_key is not None:
            text = text.replace(self._api_key, "***")
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text[:_LONGEST_SAID]


def rank_advice(rank: int) -> str:
    """Return what to do where a rank is above the server's."""
    lower = "learn with a lower rank: `FineTuningSettings(lora=LoraConfig(r=…))`"
    larger = next((one for one in RANKS if one >= rank), None)
    if larger is None:
        return f"vLLM takes at most {RANKS[-1]}: {lower}"
    return (
        f"start `vllm serve` with --max-lora-rank {larger} or more and pass that as "
        f"`max_lora_rank`, or {lower}"
    )


def _checked_url(url: str) -> str:
    """Return an address without /v1. One that is refused is not told: it may hold a secret."""
    try:
        parsed = httpx.URL(url.strip().rstrip("/").removesuffix("/v1"))
    except (httpx.InvalidURL, TypeError, AttributeError) as error:
        raise InvalidInputError("`url` must be vLLM's address, http://127.0.0.1:8000") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInputError("`url` must begin with http:// or https:// and name a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidInputError(
            "`url` must have no password, query or fragment; pass a key as `api_key`"
        )
    return str(parsed).rstrip("/")


def _message(answer: httpx.Response) -> str | None:
    """Return what vLLM says in an error, in its older or newer form; None if it is not vLLM's."""
    try:
        body = answer.json()
        return str(body.get("error", body)["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
