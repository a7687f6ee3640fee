"""Learning here, generating there: adapters for a running vLLM, each named by its content."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from sift_core.answering.model.adapters import CONFIG_NAME, WEIGHTS_NAME, Adapter
from sift_core.answering.model.base_check import digest_of
from sift_core.answering.vllm_requests import VllmRequests, WrittenPiece, rank_advice
from sift_core.checks import as_count, check_text, shown
from sift_core.errors import AdapterServerError, InvalidInputError, SiftError

logger = logging.getLogger(__name__)


class VllmServer:
    """A running vLLM that generates with what was learned here.

    An adapter is written as a folder in PEFT's format and announced under its `name`: a hash of
    its content, since vLLM's prefix cache goes by the name. Any client of OpenAI's API then sends
    `model=name`. With its last user the name is unloaded and the folder deleted, or later where
    some are kept (`n_kept`). Threads may share
    one server, and one adapter is loaded once for all of them. What another process has loaded is
    used and left loaded; let one process use a server where that one's end would be too early.

    Calls block; from asyncio use `asyncio.to_thread`. vLLM itself has not run with this: it was
    written by vLLM's sources and is tested with a server that answers as they do.

    Args:
        url: Of the server, "http://127.0.0.1:8000", with or without /v1.
        base_model: As given to `vllm serve`. It must be the model that learned here, with nothing
            merged into it.
        folder: Where adapters are written; made where it is missing. The server's user must be
            able to read it. /dev/shm saves writing to a disk.
        folder_there: The same folder by the server's path, in a container for instance; absolute.
            As here if None.
        announces: False where the server's filesystem resolver looks into `folder`
            (VLLM_LORA_RESOLVER_CACHE_DIR) and loads a name when it is first asked for.
        max_lora_rank: As given to `vllm serve --max-lora-rank`; vLLM's own default is 16.
        n_kept: How many stay loaded that nobody uses, those used last, >= 0: the next question of
            a conversation then waits for no loading. `vllm serve --max-cpu-loras` should have
            room for them, and for those in use.
        api_key: As given to `vllm serve --api-key`. It is in no message.
        timeout_s: How long to wait for each answer of the server.

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
        announces: bool = True,
        max_lora_rank: int = 16,
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
        self.base_model, self._announces = base_model, announces
        self._folder = Path(os.path.abspath(folder))
        self._folder_there = (folder_there or str(self._folder)).rstrip("/")
        self._max_rank = as_count("max_lora_rank", max_lora_rank, minimum=1)
        self._n_kept = as_count("n_kept", n_kept, minimum=0)
        self._server = VllmRequests(url, base_model, api_key=api_key, timeout_s=timeout_s)
        self._lock = threading.Lock()
        self._n_users: Counter[str] = Counter()
        self._ours: set[str] = set()  # to be unloaded by us, also where an answer was lost
        self._kept: dict[str, None] = {}  # of these what nobody uses, longest ago first

    def check(self) -> None:
        """Refuse a server that is gone, or serves another model.

        Raises:
            AdapterServerError: If so.
        """
        self._server.models()

    def written(self, request: Mapping[str, Any]) -> Generator[WrittenPiece, None, None]:
        """Yield what the server writes; `VllmGenerator` asks for it.

        Args:
            request: The body of /v1/completions, `model` included, but for what makes it a stream.

        Raises:
            AdapterServerError: If the server is gone, late, refuses, or breaks off.
        """
        return self._server.written(request)

    def name(self, adapter: Adapter) -> str:
        """Return what the server calls an adapter: 64 hexadecimal digits, by its content.

        `Adapter.key` would not do: adapters whose learning was cut by time share one. Costs
        hashing the weights, about 1 GB/s.
        """
        about = {**asdict(adapter.layout), "alpha": adapter.alpha, "base": self.base_model}
        values: Any = adapter.values.detach().cpu().contiguous().numpy()
        return digest_of(["sift vllm 1", json.dumps(about, sort_keys=True), values.tobytes()])

    @contextmanager
    def serving(self, adapter: Adapter) -> Iterator[str]:
        """Have the server know an adapter for the length of a `with` block, and yield its name.

        It is unloaded after an error too; where that fails as well, a warning is logged, so that
        the block's own error is seen.

        Args:
            adapter: What was learned: `session.tuned.adapter`, `fine_tune(…).adapter`.

        Raises:
            InvalidInputError, AdapterServerError: As `load` and `unload`.
        """
        name = self.load(adapter)
        try:
            yield name
        except BaseException:
            try:
                self.unload(name)
            except SiftError as error:
                logger.warning("%s", error)
            raise
        self.unload(name)

    def load(self, adapter: Adapter) -> str:
        """Have the server know an adapter, and return the `model` to ask it for.

        Each call wants its `unload`. Costs hashing and a request; the first user's also a file of
        4 bytes a weight and a second request. Calls take turns.

        Raises:
            InvalidInputError: If it is no adapter, or its rank is above the server's.
            AdapterServerError: If the folder cannot be written, or the server is gone, late, or
                refuses; the message says what to do. Nothing counts as loaded then.
        """
        self._check(adapter)
        name = self.name(adapter)
        with self._lock:
            self._begin(name, adapter)
            self._n_users[name] += 1
            self._kept.pop(name, None)
            self._end_unused()
        return name

    def unload(self, name: str) -> None:
        """End one use of an adapter; unless it is kept, the last one unloads it.

        The server forgets it then, or one that was kept in its place, and its folder is deleted.

        Raises:
            InvalidInputError: If nobody uses it here.
            AdapterServerError: If the server is gone, late, or refuses. The use is over all the
                same; the next `load`, or `close`, tries again.
        """
        with self._lock:
            if not self._n_users[name]:
                raise InvalidInputError(f"no adapter of the name {shown(name)} is loaded here")
            self._n_users[name] -= 1
            if not self._n_users[name]:
                del self._n_users[name]
                self._kept[name] = None
                if len(self._kept) > self._n_kept:
                    self._end(next(iter(self._kept)))

    def close(self) -> None:
        """Unload what is still loaded here, whoever uses it; what fails is logged.

        The folder has nothing of it afterwards.
        """
        with self._lock:
            self._n_users.clear()
            self._kept.clear()
            for name in sorted(self._ours):
                try:
                    self._end(name)
                except AdapterServerError as error:
                    logger.warning("%s", error)
                    self._delete(name)
            self._server.close()

    def __enter__(self) -> VllmServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, adapter: object) -> None:
        if not isinstance(adapter, Adapter):  # nothing was learned, or a copy of the whole model
            raise InvalidInputError(
                f"vLLM takes a LoRA, got {type(adapter).__name__}; learn with mode 'fine_tune' "
                f"or 'both', and not with scope 'full'"
            )
        if adapter.rank > self._max_rank:
            raise InvalidInputError(
                f"the adapter's rank is {adapter.rank}, the server's `max_lora_rank` "
                f"{self._max_rank}; {rank_advice(adapter.rank)}"
            )

    def _begin(self, name: str, adapter: Adapter) -> None:
        loaded = self._server.models()
        if name in loaded and (self._n_users[name] or name not in self._ours):
            return  # also if somebody else has loaded it: the content is the same
        try:
            self._write(name, adapter)
        except OSError as error:
            raise AdapterServerError(
                f"the adapter could not be written to {self._folder}: {error}; free room there, or "
                f"pass another `folder` that vLLM can read"
            ) from error
        was_ours = name in self._ours
        self._ours.add(name)
        if not self._announces or name in loaded:
            return
        try:
            self._server.load(name, f"{self._folder_there}/{name}", rank=adapter.rank)
        except AdapterServerError as error:
            if error.status is None:
                raise  # it may be loaded or not: `close` unloads it
            is_known = error.status == 400 and name in self._server.models()  # since a moment
            if not (is_known and was_ours):  # else by a request of ours that nobody waited for
                self._ours.discard(name)
            if is_known:
                return
            self._delete(name)
            raise

    def _end_unused(self) -> None:
        """Unload what could not be unloaded when its use was over."""
        for name in sorted(self._ours - self._n_users.keys() - self._kept.keys()):
            try:
                self._end(name)
            except AdapterServerError as error:
                logger.warning("%s", error)

    def _end(self, name: str) -> None:
        self._kept.pop(name, None)
        if name not in self._ours:
            return
        self._server.unload(name)
        self._ours.discard(name)
        self._delete(name)

    def _write(self, name: str, adapter: Adapter) -> None:
        """Write an adapter's folder, whole or not at all.

        Raises:
            OSError: If it cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / name
        draft = self._folder / f".{name}.{uuid4().hex}.unfinished"
        draft.mkdir()  # not by `tempfile`, whose folders the server's user cannot read
        try:
            replace(adapter, base_name=self.base_model).save(draft)
            for file in draft.iterdir():
                file.chmod(draft.stat().st_mode & 0o666)  # safetensors' are for the owner alone
            if place.is_dir() and not place.is_symlink():  # left by a process that was killed
                for file_name in (WEIGHTS_NAME, CONFIG_NAME):
                    os.replace(draft / file_name, place / file_name)
            else:
                os.replace(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _delete(self, name: str) -> None:
        shutil.rmtree(self._folder / name, ignore_errors=True)  # what stays costs room alone
