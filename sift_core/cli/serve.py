"""`sift serve`: the index and the model as one HTTP service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sift_core.addresses import is_loopback
from sift_core.cli import options as flags
from sift_core.cli.engine import load_engine
from sift_core.cli.output import Terminal
from sift_core.cli.stores import OpenedIndex, open_with_embedder
from sift_core.cli.traces import sent_traces
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions
from sift_core.service.server import listener_at, serve_at
from sift_core.service.settings import KEY_VARIABLE, ServiceSettings, key_of

if TYPE_CHECKING:
    import socket

    from sift_core.answering import AnswerEngine, LanguageModel, VllmServer

VLLM_KEY_VARIABLE = "VLLM_API_KEY"  # as vLLM's own
# Names of this machine inside containers of Docker and Podman. Nobody can register a name below
# .internal, so that no web page on the internet has one.
CONTAINER_HOSTS = ("host.docker.internal", "host.containers.internal")
FORMER_KEY_VARIABLE = "SIFT_SERVE_API_KEY"  # named a variable; ignored, it would open a service

# Options that a request can name, or that are set once for a model or a vLLM, have no flag.
SETTINGS = (
    "options",
    "effort",
    "steps",
    "cite",
    "on_off_topic",
    "query_rewriting",
    "calibration",
    "device",
    "dtype",
    "generator_window",
    "vllm_model",
    "vllm_max_rank",
)


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """What a service has beside index and model; each field is a flag."""

    adapters: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="What sift learn has made, for the modes learned and learned_context.",
            show_default=False,
        ),
    ] = None
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Length of an answer where a request says none, in tokens.")
    ] = 256
    vllm: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A running vLLM that writes the answers; choosing and learning stay here. Its key "
            f"is read from {VLLM_KEY_VARIABLE}.",
            show_default=False,
        ),
    ] = None
    vllm_folder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where what was learned is written for vLLM, at the same path there.",
            show_default=False,
        ),
    ] = None
    vllm_model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model as given to `vllm serve`; that of --model if left out.",
            show_default=False,
        ),
    ] = None
    vllm_max_rank: Annotated[
        int, typer.Option(min=1, help="As given to `vllm serve --max-lora-rank`.")
    ] = 16

    def server(self, model: str) -> VllmServer | None:
        """Return the vLLM that writes the answers; None if there is none.

        Args:
            model: The language model, which vLLM serves unless `vllm_model` names another.

        Raises:
            InvalidInputError: If there is no folder for what is learned, or the URL is none.
        """
        if self.vllm is None:
            return None
        if self.vllm_folder is None:
            raise InvalidInputError(
                "--vllm needs --vllm-folder: a folder, at the same path for vLLM and readable for "
                "it, where what was learned is written; /dev/shm/sift for instance"
            )
        from sift_core.answering import VllmServer

        return VllmServer(
            self.vllm,
            base_model=self.vllm_model or model,
            folder=self.vllm_folder,
            n_kept=ServiceSettings.n_sessions,
            api_key=key_of(VLLM_KEY_VARIABLE),
        )


@flags.with_flags(n_select="n_context", settings=SETTINGS)
def serve(
    store: flags.StoreOption = flags.DEFAULT_STORE,
    model: flags.ModelOption = flags.DEFAULT_MODEL,
    embedder: flags.EmbedderOption = None,
    host: flags.HostOption = "127.0.0.1",
    port: flags.PortOption = 8123,
    no_auth: flags.NoAuthOption = False,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Rank, search and embed alone, without a model.")
    ] = False,
    model_name: Annotated[
        str | None,
        typer.Option(help="What clients call the model; the end of its name if left out."),
    ] = None,
    also_store: flags.AlsoStoreOption = None,
    *,
    layout: flags.StoreLayout,
    options: ChoiceOptions,
    answers: flags.AnswerOptions,
    app: AppOptions,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which an answer ends with what there is.")
    ] = 300.0,
    allow_origin: Annotated[
        str | None,
        typer.Option(
            metavar="ORIGINS",
            help="Web pages that may call, separated by commas, as https://example.org.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve the index and the model to clients of OpenAI's, Cohere's, Jina's and TEI's APIs.

    Examples:
    sift serve
    curl http://127.0.0.1:8123/v1/models
    SIFT_API_KEY=... sift serve --host 0.0.0.0
    """
    if os.environ.get(FORMER_KEY_VARIABLE):
        raise InvalidInputError(
            f"{FORMER_KEY_VARIABLE} is no longer read: put the key itself into {KEY_VARIABLE}, and "
            f"unset {FORMER_KEY_VARIABLE}"
        )
    settings = _settings(
        host,
        key_of(),
        no_auth=no_auth,
        model_name=model_name,
        timeout=timeout,
        max_new_tokens=app.max_new_tokens,
        origins=(allow_origin or "").replace(",", " ").split(),
    )
    with (
        listener_at(host, port) as listener,  # before what takes its time
        opened_app(
            settings,
            store=store,
            model=None if no_model else model,
            embedder=embedder,
            also_store=also_store or (),
            layout=layout,
            options=options,
            answers=answers,
            app=app,
        ) as service,
    ):
        at = url_of(host, listener)
        notice = f"Serving at {at}, for OpenAI's clients at {at}/v1. Ctrl-C stops it."
        serve_at(
            listener,
            service,
            on_start=lambda: Terminal(stderr=True).say(notice),
            on_stop=service.state.service.stopping.set,  # answers end at their next step
        )


@flags.with_flags(n_select="n_context")
@contextmanager
def opened_app(
    settings: ServiceSettings,
    *,
    store: str = flags.DEFAULT_STORE,
    model: str | None = flags.DEFAULT_MODEL,
    embedder: str | None = None,
    also_store: Sequence[str] = (),
    layout: flags.StoreLayout,
    options: ChoiceOptions,
    answers: flags.AnswerOptions,
    app: AppOptions,
) -> Iterator[Any]:
    """Open the store, load the models, and yield the service over them.

    Args:
        settings: What the service allows; the model's name is the end of `model` if it has none.
        store: Address of the index.
        model: Id or folder. With None the service only ranks, searches and embeds.
        embedder: The embedding model. Default: the one that the index names.
        also_store: Addresses of further stores, each a collection beside the first.
        layout: How to read a collection that another tool filled. Also by name, as the flags of
            `sift serve`, like the next three.
        options: What the choice of chunks for a prompt obeys, unless a request says otherwise.
        answers: How the model is loaded, learns and answers, unless a request says otherwise.
        app: Adapters, the length of answers, and a vLLM that writes them.

    Raises:
        SiftError: If there is no such store, model or server, or they do not go together.
    """
    from sift_core.service import create_app  # first: it may not be installed

    with ExitStack() as stack:
        if model is None and app.vllm is not None:
            raise InvalidInputError("--vllm writes what --no-model leaves out; drop one")
        if answers.generator is not None and (model is None or app.vllm is not None):
            other = "--vllm" if app.vllm is not None else "--no-model"
            raise InvalidInputError(f"--generator writes the answers, which {other} rules out")
        server = None if model is None else app.server(model)
        if server is not None:
            stack.enter_context(server).check()
        opened = stack.enter_context(open_with_embedder(store, embedder, layout))
        engine: AnswerEngine | None = None
        if model is not None:
            if settings.model_name is None:
                named = answers.generator_model or model
                name = PurePath(named).name.replace(":", "-") or "model"
                settings = replace(settings, model_name=name)
            engine = load_engine(
                model,
                opened,
                options=options,
                answers=answers,
                max_new_tokens=app.max_new_tokens,
                adapters=app.adapters,
            )
            if server is not None:
                engine = engine_of_server(engine, server, app.vllm_max_rank)
        others = [
            stack.enter_context(open_with_embedder(one, None, unrecorded=embedder))
            for one in also_store
        ]
        stack.enter_context(sent_traces())
        first, *further = _by_name([opened, *others]).items()
        yield create_app(
            engine,
            source=opened.source,
            embedder=opened.embedder,
            settings=settings,
            name=first[0],
            collections={name: (one.source, one.embedder) for name, one in further},
        )


def _by_name(opened: Sequence[OpenedIndex]) -> dict[str, OpenedIndex]:
    """Return indexes by name. Signs that no path of a URL should have become hyphens.

    Raises:
        InvalidInputError: If two have the same name.
    """
    named: dict[str, OpenedIndex] = {}
    for one in opened:
        name = re.sub(r"[^\w.-]+", "-", one.address.name, flags=re.ASCII)
        name = name.strip(".-")[:100] or "index"
        if name in named:
            raise InvalidInputError(
                f"two stores are called {name!r}: {named[name].address} and {one.address}; rename "
                f"a folder or a collection, or leave one out"
            )
        named[name] = one
    return named


def _settings(
    host: str,
    key: str | None,
    *,
    no_auth: bool,
    model_name: str | None,
    timeout: float,
    max_new_tokens: int,
    origins: list[str],
) -> ServiceSettings:
    """Return what the service allows; refuse to be open to others by mistake."""
    return ServiceSettings(
        **access_to(host, key, no_auth=no_auth),
        model_name=model_name,
        timeout_s=timeout,
        max_new_tokens=max(max_new_tokens, ServiceSettings.max_new_tokens),
        allowed_origins=tuple(origins),
    )


def access_to(host: str, key: str | None, *, no_auth: bool) -> dict[str, Any]:
    """Return the key, and the names by which a service is called; refuse to be open by mistake.

    Args:
        host: Where it listens. Beyond the loopback it needs a key.
        key: What clients send. None asks for none.
        no_auth: Whether anybody who reaches the address may call.

    Returns:
        `api_key` and `allowed_hosts` of `ServiceSettings`.

    Raises:
        InvalidInputError: If the address is not the loopback and nobody said who may call.
    """
    is_local = is_loopback(host)
    if no_auth and key is not None:
        raise InvalidInputError(
            f"--no-auth and a key contradict each other; leave one out (is {KEY_VARIABLE} set?)"
        )
    if not is_local and key is None and not no_auth:
        raise InvalidInputError(
            f"{host} can be reached by others: put a key into {KEY_VARIABLE}, or say --no-auth if "
            f"everybody who reaches it may call"
        )
    is_for_this_machine = is_local and key is None
    names = ("localhost", "127.0.0.1", "[::1]", *CONTAINER_HOSTS, host)
    return {"api_key": key, "allowed_hosts": names if is_for_this_machine else ()}


def url_of(host: str, listener: socket.socket) -> str:
    """Return the address of a service that listens."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def engine_of_server(engine: AnswerEngine, server: VllmServer, max_rank: int) -> AnswerEngine:
    """Return an engine that learns with a rank that a vLLM takes, and has it write."""
    from peft import LoraConfig

    from sift_core.answering import VllmGenerator
    from sift_core.answering.settings import DEFAULT_ALPHA

    learning = engine.learning
    rank = min(learning.settings.rank, max_rank)
    lora = LoraConfig(r=rank, lora_alpha=int(DEFAULT_ALPHA), target_modules="all-linear")
    return replace(
        engine,
        learning=replace(learning, settings=replace(learning.settings, lora=lora)),
        generator=VllmGenerator(server, cast("LanguageModel", engine.language_model)),
    )
