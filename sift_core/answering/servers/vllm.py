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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

# First: transformers imports httpx too, and would be named where that is missing.
from sift_core.answering.servers.connection import (
    Connection,
    check_url,
    latch,
    message_of,
)

# isort: split
from sift_core.answering.model.adapters import CONFIG_NAME, WEIGHTS_NAME, Adapter
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.layers import active
from sift_core.answering.model.prefix_cache import Prefix
from sift_core.answering.model.text_model import Generation, Prompt, check_stop
from sift_core.answering.model.weights_fingerprint import digest_of
from sift_core.answering.servers.sampling import sampling_fields
from sift_core.checks import as_count, check_text, short_repr
from sift_core.errors import AdapterServerError, InvalidInputError, SiftError

if TYPE_CHECKING:
    import openai

logger: logging.Logger = logging.getLogger(__name__)

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values that `--max-lora-rank` takes
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

    Example:
        >>> base = language_model.name
        >>> server = VllmServer("http://localhost:8000", base_model=base, folder=folder)
        >>> writer = VllmGenerator(server, language_model)
        >>> engine = AnswerEngine(
        ...     language_model=language_model, generator=writer, source=source, embedder=embedder
        ... )
        >>> engine.choose(question, mode="context", n_select=1).read.chunks.texts
        ('A ticket for the ferry costs four crowns.',)
    """

    provider_name = "vllm"  # in traces

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
        is_unwanted = latch(options.pop("stopping_criteria", None) or [])
        request = {"prompt": ids, "max_tokens": max_new_tokens, "stop": [*stop]}
        request |= sampling_fields(options, "vLLM")
        if "logits_processor" in options:
            # -1 and 0: no limit, whatever the model's own settings there say.
            request |= {"top_k": -1, "min_p": 0.0}

        learned: Any = active(self._language_model.model)
        model = self._server.base_model if learned is None else self._server.load(learned)
        usage = {"stream_options": {"include_usage": True}}
        request = {"model": model, **request, **usage}
        try:
            written = self._server.write(request, is_unwanted=is_unwanted, on_text=on_text)
        finally:
            if learned is not None:
                with _log_errors():  # the text is complete all the same
                    self._server.unload(model)
        return replace(written, n_prompt_tokens=len(ids))


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

    Example:
        >>> base = language_model.name
        >>> server = VllmServer("http://localhost:8000", base_model=base, folder=folder)
        >>> learned = fine_tune(language_model, ["The ferry sails at nine."])
        >>> len(server.name(learned.adapter))
        64
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
        self.base_model = base_model
        self._folder = Path(os.path.abspath(folder))
        self._folder_there = (folder_there or str(self._folder)).rstrip("/")
        self._n_kept = as_count("n_kept", n_kept, minimum=0)
        self._url = str(check_url("url", url)).rstrip("/").removesuffix("/v1").rstrip("/")
        self._connection = Connection(
            f"{self._url}/v1",
            called="vLLM",
            error=AdapterServerError,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=0,  # an adapter may be loaded though the answer is lost
        )
        self.write: Callable[..., Generation] = partial(
            self._connection.write, "completions", advise=_advise
        )
        self._lock = threading.Lock()
        self._n_users: dict[str, int] = {}  # 0 for adapters that are kept, longest unused first
        self._owned: set[str] = set()  # to be unloaded from here, also after a lost answer

    def check(self) -> set[str]:
        """Return the names of the server's models, and refuse a server without `base_model`.

        Raises:
            AdapterServerError: If the server is gone, late, no vLLM, or serves another model.
        """
        cards = self._connection.models(_advise)
        names = {card["id"] for card in cards}
        roots = {str(card["root"]) for card in cards if card.get("root")}
        if self.base_model not in names | roots:
            listed = self._connection.clean(", ".join(sorted(names))) or "no model"
            raise AdapterServerError(
                f"{self._url} serves {listed}, and not {self.base_model!r}, for which the adapter "
                f"is; pass `base_model` as given to `vllm serve`"
            )
        return names

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
            self._connection.close()

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
            advise = partial(_advise, rank=adapter.rank)
            self._connection.post("load_lora_adapter", body, f"load {path}", advise)
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
        body = {"lora_name": name}
        try:
            self._connection.post("unload_lora_adapter", body, "unload an adapter", _advise)
        except AdapterServerError as error:
            answer = getattr(error.__cause__, "response", None)
            if error.status != 404 or message_of(answer) is None:  # else it is unknown there
                raise
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


def _larger_rank(rank: int) -> str:
    """Return what to do where a rank is above the server's."""
    lower = "learn with a lower rank: `FineTuningSettings(lora=LoraConfig(r=…))`"
    if rank > _RANKS[-1]:
        return f"vLLM takes at most {_RANKS[-1]}: {lower}"
    larger = next(one for one in _RANKS if one >= rank)
    return f"start `vllm serve` with --max-lora-rank {larger} or more, or {lower}"


def _advise(error: openai.APIStatusError, message: str | None, rank: int = 0) -> str:
    """Return what to do about a refusal; `rank` is that of the refused adapter."""
    status = error.status_code
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


@contextmanager
def _log_errors() -> Iterator[None]:
    """Log an error of the block as a warning in place of raising it."""
    try:
        yield
    except SiftError as error:
        logger.warning("%s", error)
