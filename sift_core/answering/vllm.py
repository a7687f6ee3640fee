"""Texts that a running vLLM writes with adapters that were learned here.

`VllmServer` writes adapters into folders, has vLLM load them and unloads them again.
`VllmGenerator` has such a server write the texts of an `AnswerEngine`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from sift_core.addresses import http_client
from sift_core.checks import as_count, as_number, check_text, short_repr
from sift_core.errors import (
    AdapterServerError,
    InvalidInputError,
    MissingDependencyError,
    SiftError,
)

try:  # before transformers, which imports httpx too and would be named in its place
    import httpx
except ImportError as error:
    raise MissingDependencyError("httpx", extra="vllm") from error

from sift_core.answering.model.adapters import CONFIG_NAME, WEIGHTS_NAME, Adapter
from sift_core.answering.model.generation import Generation
from sift_core.answering.model.generation_options import GumbelNoise, check_stop
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.layers import active
from sift_core.answering.model.prefix_cache import Prefix
from sift_core.answering.model.prompt_tokens import Prompt
from sift_core.answering.model.weights_fingerprint import digest_of

logger = logging.getLogger(__name__)

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values that `--max-lora-rank` takes
_SAMPLING = ("temperature", "top_p", "top_k", "min_p")
_LONGEST_MESSAGE = 500  # characters of a server's message; a guess
# JSON of another shape, or nested too deeply
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_ENABLE = "start `vllm serve` with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"


class VllmGenerator:
    """Write the texts of an `AnswerEngine` in a running vLLM. Choosing and learning stay here.

    The prompt is made here and sent as tokens. The active adapter is loaded for each text and
    unloaded after it, also after an error. `VllmServer(n_kept=…)` keeps it for the next text of a
    session. The base model writes if no adapter is active. Closing a stream of the engine ends the
    writing with the next piece. Threads may share a generator.

    The seed of `seeded` is sent to the server. The same seed repeats a text there, but the text
    differs from the one that is written here. A text that repeats itself runs to its end.

    Args:
        server: A server that runs the engine's model.
        language_model: The engine's model.
    """

    def __init__(self, server: VllmServer, language_model: LanguageModel) -> None:
        self._server, self._language_model = server, language_model

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 64,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        prefix: Prefix | None = None,
        **options: Any,
    ) -> Generation:
        """Return the server's continuation of `prompt`. It is greedy by default.

        Args:
            prompt: Prompt as for `LanguageModel.generate`.
            max_new_tokens: Greatest length of the continuation in tokens. Default: 64.
            stop: Texts that end the continuation. Default: none.
            on_text: Function that is called with each piece of the text. An exception that it
                raises ends the text. Default: None.
            prefix: Not used, since the server caches prefixes itself.
            **options: `do_sample`, `temperature`, `top_p`, `top_k`, `min_p`,
                `repetition_penalty`, the result of `seeded`, and `stopping_criteria`. They are
                called before the text and after each piece. Their tokens and scores are None.

        Raises:
            InvalidInputError: If prompt and continuation exceed the window, vLLM has no such
                option, or what was learned is not a LoRA that the server takes.
            AdapterServerError: If the server is gone, late or refuses. Nothing stays loaded.
        """
        check_stop(stop)
        template = options.pop("chat_template_kwargs", None)
        ids = self._language_model.check_prompt(prompt, max_new_tokens, template)
        criteria = [*(options.pop("stopping_criteria", None) or [])]
        request = {"prompt": ids, "max_tokens": max_new_tokens, "stop": [*stop]}
        request |= _sampling_fields(options)

        def is_over() -> bool:
            return any(criterion(None, None) for criterion in criteria)

        learned: Any = active(self._language_model.model)
        model = self._server.base_model if learned is None else self._server.load(learned)
        texts: list[str] = []
        reason, n_new = None, None
        try:
            with closing(self._server.write({"model": model, **request})) as pieces:
                while not is_over() and (piece := next(pieces, None)) is not None:
                    reason = reason or piece.finish_reason
                    n_new = piece.n_new_tokens or n_new
                    if piece.text:
                        texts.append(piece.text)
                        if on_text is not None:
                            on_text(piece.text)
        finally:
            if learned is not None:
                with _log_errors():  # the text is complete all the same
                    self._server.unload(model)
        return Generation(
            text="".join(texts),
            n_prompt_tokens=len(ids),
            n_new_tokens=n_new or len(texts),  # a piece has a token at least
            finish_reason="length" if reason == "length" else "stop",
        )


class WrittenPiece(NamedTuple):
    """One event of a stream of text."""

    text: str  # new text, perhaps empty
    finish_reason: str | None  # None before the text ends
    n_new_tokens: int | None  # tokens of the whole text; None before the last event


class VllmServer:
    """Load adapters that were learned here into a running vLLM, and write texts with it.

    Each adapter is a folder in PEFT's format. Its `name` is a hash of its content, since vLLM's
    prefix cache goes by the name. Any client of OpenAI's API can then send `model=name`. After its
    last user the adapter is unloaded and its folder deleted, unless it is kept (`n_kept`).

    Threads may share a server, which loads an adapter once for all of them. An adapter that
    another process loaded is used and left loaded. Let one process use a server if the other one
    could unload it too early. Calls block: use `asyncio.to_thread` with asyncio. vLLM itself has
    not run with this: it is tested with a server that answers as vLLM's sources do.

    Args:
        url: Address, for instance "http://127.0.0.1:8000", with or without /v1.
        base_model: Name given to `vllm serve`. It must be the model that learned here, with
            nothing merged into it.
        folder: Folder for adapters, which the server's user can read. It is made if it is missing.
            /dev/shm saves writing to a disk.
        folder_there: Absolute path of the folder in the server's container. Default: the same.
        n_kept: Number of unused adapters that stay loaded, the last used ones, >= 0. They save
            loading at the next question of a conversation. `vllm serve --max-cpu-loras` needs room
            for them and for those in use. Default: 0.
        api_key: Key given to `vllm serve --api-key`. No message shows it. Default: none.
        timeout_s: Seconds to wait for each answer of the server, > 0. Default: 60.

    Raises:
        InvalidInputError: If an argument cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        base_model: str,
        folder: str | Path,
        folder_there: str | None = None,
        n_kept: int = 0,
        api_key: str | None = None,
        timeout_s: float = 60.0,  # guess: loading waits for the step that is being generated
    ) -> None:
        check_text("base_model", base_model)
        if not base_model.strip():
            raise InvalidInputError("`base_model` must be as given to `vllm serve`, got no name")
        if folder_there is not None and not folder_there.startswith("/"):
            # vLLM takes any other path that it does not find for a name on the hub.
            raise InvalidInputError(f"`folder_there` must begin with /, got {folder_there!r}")
        headers = {}
        if api_key is not None:
            if not (
                api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key != ""
            ):
                raise InvalidInputError(
                    "`api_key` must be printable ASCII without spaces around it: a header"
                )
            headers = {"authorization": f"Bearer {api_key}"}
        self.base_model = base_model
        self._folder = Path(os.path.abspath(folder))
        self._folder_there = (folder_there or str(self._folder)).rstrip("/")
        self._n_kept = as_count("n_kept", n_kept, minimum=0)
        self._url, self._api_key = _check_url(url), api_key
        self._timeout_s = as_number("timeout_s", timeout_s, above=0)
        make = partial(
            httpx.Client, base_url=f"{self._url}/v1", headers=headers, timeout=self._timeout_s
        )
        self._client = http_client(make, self._url)
        self._lock = threading.Lock()
        self._n_users: dict[str, int] = {}  # 0 for adapters that are kept, longest unused first
        self._owned: set[str] = set()  # to be unloaded from here, also after a lost answer

    def check(self) -> set[str]:
        """Return the names of the server's models, and refuse a server without `base_model`.

        Raises:
            AdapterServerError: If the server is gone, late, no vLLM, or serves another model.
        """
        purpose = "list its models"
        with self._translate_errors(purpose):
            answer = self._client.get("models").raise_for_status()
        try:
            cards = answer.json()["data"]
            names = {str(card["id"]) for card in cards}
            roots = {str(card["root"]) for card in cards if card.get("root")}
        except _MALFORMED as error:
            raise self._refusal(purpose, answer) from error
        if self.base_model not in names | roots:
            raise AdapterServerError(
                f"{self._url} serves {self._clean(', '.join(sorted(names))) or 'no model'}, and "
                f"not {self.base_model!r}, for which the adapter is; pass `base_model` as given "
                f"to `vllm serve`"
            )
        return names

    def write(self, request: Mapping[str, Any]) -> Generator[WrittenPiece, None, None]:
        """Yield a text as the server writes it. Closing the generator ends the writing.

        Args:
            request: Body of /v1/completions, `model` included, without the fields of streaming.

        Raises:
            AdapterServerError: If the server is gone, late, refuses, or breaks off.
        """
        body = {**request, "stream": True, "stream_options": {"include_usage": True}}
        with (
            self._translate_errors("write a text"),
            self._client.stream("POST", "completions", json=body) as answer,
        ):
            if not answer.is_success:
                answer.read()  # `_translate_errors` quotes it
            rest = ""
            # `Response.iter_lines` also ends one at U+2028, which vLLM's JSON holds as it is.
            for text in answer.raise_for_status().iter_text():
                *lines, rest = (rest + text).split("\n")
                for line in lines:
                    if line.rstrip() == "data: [DONE]":
                        return
                    if line.startswith("data:"):
                        yield self._read_piece(line.removeprefix("data:"))
            if rest.rstrip() == "data: [DONE]":  # a proxy may drop the last line's end
                return
        raise AdapterServerError(f"vLLM at {self._url} broke off a text; its log says more")

    def name(self, adapter: Adapter) -> str:
        """Return the server's name of an adapter: 64 hexadecimal digits, by its content.

        `Adapter.key` is not unique: adapters whose learning was cut short by time share one.
        Hashing the weights takes about 1 s per GB.
        """
        about = {**asdict(adapter.layout), "alpha": adapter.alpha, "base": self.base_model}
        values: Any = adapter.values.detach().cpu().contiguous().numpy()
        return digest_of(["sift vllm 1", json.dumps(about, sort_keys=True), values.tobytes()])

    @contextmanager
    def serving(self, adapter: Adapter) -> Iterator[str]:
        """Keep an adapter loaded for the length of a `with` block, and yield its name.

        An error in the block passes on. A second one while unloading is then logged as a warning.

        Args:
            adapter: Adapter to load: `session.tuned.adapter` or `fine_tune(…).adapter`.

        Raises:
            InvalidInputError, AdapterServerError: As `load` and `unload`.
        """
        name = self.load(adapter)
        try:
            yield name
        except BaseException:
            with _log_errors():
                self.unload(name)
            raise
        self.unload(name)

    def load(self, adapter: Adapter) -> str:
        """Have the server load an adapter, and return the name to ask for as `model`.

        Each call needs its own `unload`. Calls take turns. Each call hashes the weights and sends
        one request. The call of the first user also writes 4 bytes per weight and sends another.

        Raises:
            InvalidInputError: If it is no adapter.
            AdapterServerError: If the folder cannot be written, or the server is gone, late, or
                refuses. The message says what to do. Nothing counts as loaded then.
        """
        if not isinstance(adapter, Adapter):  # nothing was learned
            raise InvalidInputError(
                f"vLLM takes a LoRA, got {type(adapter).__name__}; learn with mode 'fine_tune' "
                f"or 'both'"
            )
        name = self.name(adapter)
        with self._lock:
            if name not in self.check():  # else it stays, also if somebody else loaded it
                self._load(name, adapter)
            self._n_users[name] = self._n_users.get(name, 0) + 1
            for leftover in sorted(self._owned - self._n_users.keys()):  # unloading failed before
                with _log_errors():
                    self._remove(leftover)
        return name

    def unload(self, name: str) -> None:
        """End one use of an adapter. The end of the last use unloads it and deletes its folder.

        With `n_kept` > 0 it is kept. If too many are kept, the one unused longest is unloaded.

        Raises:
            InvalidInputError: If nobody uses it here.
            AdapterServerError: If the server is gone, late, or refuses. The use is over all the
                same. The next `load`, or `close`, tries again.
        """
        with self._lock:
            if not self._n_users.get(name):
                raise InvalidInputError(f"no adapter of the name {short_repr(name)} is loaded here")
            self._n_users[name] = self._n_users.pop(name) - 1  # now the last in order
            unused = [one for one, n_users in self._n_users.items() if not n_users]
            if len(unused) > self._n_kept:
                self._remove(unused[0])

    def close(self) -> None:
        """Unload all adapters that were loaded here, delete their folders, and disconnect.

        Adapters in use are unloaded too. A failure to unload is logged as a warning.
        """
        with self._lock:
            for name in sorted(self._owned):
                with _log_errors():
                    self._remove(name)
                self._delete_folder(name)
            self._n_users.clear()
            self._client.close()

    def __enter__(self) -> VllmServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, name: str, adapter: Adapter) -> None:
        try:
            self._write_folder(name, adapter)
        except OSError as error:
            raise AdapterServerError(
                f"the adapter could not be written to {self._folder}: {error}; free room there, or "
                f"pass another `folder` that vLLM can read"
            ) from error
        was_owned = name in self._owned
        self._owned.add(name)
        path = f"{self._folder_there}/{name}"
        body = {"lora_name": name, "lora_path": path, "load_inplace": False}
        try:
            with self._translate_errors(f"load {path}", adapter.rank):
                self._client.post("load_lora_adapter", json=body).raise_for_status()
        except AdapterServerError as error:
            if error.status is None:
                raise  # it may be loaded or not: `close` unloads it
            # 400: perhaps loaded since the check, by others or by our request whose answer was lost
            is_loaded = error.status == 400 and name in self.check()
            if not (is_loaded and was_owned):
                self._owned.discard(name)
            if not is_loaded:
                self._delete_folder(name)
                raise

    def _remove(self, name: str) -> None:
        self._n_users.pop(name, None)
        if name not in self._owned:
            return
        with self._translate_errors("unload an adapter"):
            answer = self._client.post("unload_lora_adapter", json={"lora_name": name})
            if answer.status_code != 404 or _message_of(answer) is None:  # else it is unknown there
                answer.raise_for_status()
        self._owned.discard(name)
        self._delete_folder(name)

    def _write_folder(self, name: str, adapter: Adapter) -> None:
        """Write an adapter's folder, whole or not at all; OSError if it cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / name
        draft = self._folder / f".{name}.{uuid4().hex}.unfinished"
        draft.mkdir()  # not by `tempfile`, whose folders the server's user cannot read
        try:
            replace(adapter, base_name=self.base_model).save(draft)
            if place.is_dir() and not place.is_symlink():  # left by a process that was killed
                for file_name in (WEIGHTS_NAME, CONFIG_NAME):
                    os.replace(draft / file_name, place / file_name)
            else:
                os.replace(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _delete_folder(self, name: str) -> None:
        shutil.rmtree(self._folder / name, ignore_errors=True)  # what stays costs room alone

    @contextmanager
    def _translate_errors(self, purpose: str, rank: int = 0) -> Iterator[None]:
        """Raise AdapterServerError for what httpx raises in the block."""
        try:
            yield
        except httpx.HTTPStatusError as error:
            raise self._refusal(purpose, error.response, rank) from error
        except httpx.TimeoutException as error:
            raise AdapterServerError(
                f"vLLM at {self._url} did not answer {error.request.url.path} in "
                f"{self._timeout_s:g} s; it is too busy or hangs: ask again, or pass a longer "
                f"`timeout_s`"
            ) from error
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: `close` was called
            raise AdapterServerError(
                f"vLLM at {self._url} could not be asked to {purpose}: "
                f"{self._clean(str(error)) or type(error).__name__}; is it running there?"
            ) from error

    def _read_piece(self, event: str) -> WrittenPiece:
        try:
            content = json.loads(event)
            if "error" in content:
                message = self._clean(str(content["error"]["message"]))
                raise AdapterServerError(f"vLLM at {self._url} broke off a text: {message}")
            usage, choice = content.get("usage") or {}, (content["choices"] or [{}])[0]
            text, reason = choice.get("text") or "", choice.get("finish_reason")
            return WrittenPiece(text, reason, usage.get("completion_tokens"))
        except _MALFORMED as error:
            raise AdapterServerError(
                f"vLLM at {self._url} wrote no event of a text: {self._clean(event)!r}; is it vLLM?"
            ) from error

    def _refusal(self, purpose: str, answer: httpx.Response, rank: int = 0) -> AdapterServerError:
        status, message = answer.status_code, _message_of(answer)
        said = self._clean(answer.text if message is None else message) or "without a word"
        advice = _advise(status, message, rank)
        return AdapterServerError(
            f"vLLM at {self._url} did not {purpose}: {status} {said}; {advice}", status=status
        )

    def _clean(self, text: str) -> str:
        """Return a server's words as one short line without the key."""
        if self._api_key is not None:
            text = text.replace(self._api_key, "***")
        text = "".join(c if c.isprintable() else " " for c in text)
        return " ".join(text.split())[:_LONGEST_MESSAGE]


def _check_url(url: str) -> str:
    """Return an address without /v1. No refusal shows it, since it may hold a secret."""
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


def _message_of(answer: httpx.Response) -> str | None:
    """Return vLLM's message of an error, in its older or newer form; None if it is not vLLM's."""
    try:
        body = answer.json()
        return str(body.get("error", body)["message"])
    except _MALFORMED:
        return None


def _larger_rank(rank: int) -> str:
    """Return what to do where a rank is above the server's."""
    lower = "learn with a lower rank: `FineTuningSettings(lora=LoraConfig(r=…))`"
    if rank > _RANKS[-1]:
        return f"vLLM takes at most {_RANKS[-1]}: {lower}"
    larger = next(one for one in _RANKS if one >= rank)
    return f"start `vllm serve` with --max-lora-rank {larger} or more, or {lower}"


def _advise(status: int, message: str | None, rank: int) -> str:
    """Return what to do about a refusal; `rank` is that of the refused adapter."""
    if status == 401:
        return "pass the `api_key` that it was started with"
    if status == 403 or (message is None and status in (404, 405)):
        return f"adapters cannot be changed there: {_ENABLE}, or correct the address"
    by_message = {
        "max_lora_rank": _larger_rank(rank),
        "LoRA is not enabled": _ENABLE,
        "target modules": "learn on layers that it adapts: `LoraConfig(target_modules=…)`",
        "does not exist": "pass `base_model` as given to `vllm serve`, or let nobody else unload "
        "adapters",
    }
    for part, advice in by_message.items():
        if part in (message or ""):
            return advice
    if status == 404:
        return "pass its own path of the folder as `folder_there`, and let its user read it"
    return "its log says more"


def _sampling_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of /v1/completions for options of `LanguageModel.generate`.

    Raises:
        InvalidInputError: If an option has no counterpart there.
    """
    rest = dict(options)
    penalty, is_sampled = rest.pop("repetition_penalty", None), rest.pop("do_sample", False)
    settings = {name: rest.pop(name, None) for name in _SAMPLING}
    processors = [*(rest.pop("logits_processor", None) or [])]
    if rest or not all(isinstance(one, GumbelNoise) for one in processors):
        names = ", ".join(sorted(rest)) or "logits_processor"
        raise InvalidInputError(
            f"vLLM is not asked for {short_repr(names)} from here; there are do_sample, "
            f"{', '.join(_SAMPLING)}, repetition_penalty and what `seeded` returns"
        )
    if processors:
        noise = processors[0]
        settings = {"temperature": noise.temperature, "top_p": noise.top_p, "seed": noise.seed}
        # -1 and 0: no limit, whatever the model's own settings there say.
        settings |= {"top_k": -1, "min_p": 0.0}
    elif not is_sampled:
        settings = {"temperature": 0.0}
    settings["repetition_penalty"] = penalty
    return {name: value for name, value in settings.items() if value is not None}


@contextmanager
def _log_errors() -> Iterator[None]:
    """Log an error of the block as a warning in place of raising it."""
    try:
        yield
    except SiftError as error:
        logger.warning("%s", error)
