"""`sift serve`: the index and the model as one HTTP service."""

from __future__ import annotations

import ipaddress
import os
from contextlib import ExitStack
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sift_core.cli.models import load_language_model
from sift_core.cli.output import stderr_console, working
from sift_core.cli.settings import (
    DEFAULT_MODEL,
    DEFAULT_STORE,
    CandidatesOption,
    DeviceOption,
    EmbedderOption,
    ModelOption,
    NContextOption,
    StepsOption,
    StoreOption,
)
from sift_core.cli.stores import StoreAddress, embedder_of, open_store
from sift_core.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine
    from sift_core.service import ServiceSettings

KEY_VARIABLE = "SIFT_API_KEY"
MAX_CONNECTIONS = 512  # more are told 503; a process may often open 1,024 files
GRACE_S = 10  # that answers have to end in when the service is stopped


def serve(
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = DEFAULT_MODEL,
    embedder: EmbedderOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than the loopback need a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8123,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="VARIABLE",
            help="Name of the environment variable that holds the key which clients must send. "
            f"{KEY_VARIABLE} is taken where it is set; the key itself is no argument.",
            show_default=False,
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Let anybody who reaches the address call.")
    ] = False,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Rank, search and embed alone, without a model.")
    ] = False,
    model_name: Annotated[
        str | None,
        typer.Option(help="What clients call the model; the end of its name if left out."),
    ] = None,
    n_context: NContextOption = 10,
    candidates: CandidatesOption = 200,
    steps: StepsOption = 50,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Length of an answer where a request says none, in tokens.")
    ] = 256,
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
    device: DeviceOption = None,
) -> None:
    """Serve the index and the model to clients of OpenAI's, Cohere's, Jina's and TEI's APIs.

    Examples:
    sift serve
    curl http://127.0.0.1:8123/v1/models
    SIFT_API_KEY=... sift serve --host 0.0.0.0
    """
    from sift_core.service import create_app  # first: it may not be installed

    settings = _settings(
        host,
        _key(api_key),
        no_auth=no_auth,
        model_name=model_name or PurePath(model).name.replace(":", "-"),
        timeout=timeout,
        origins=(allow_origin or "").replace(",", " ").split(),
    )
    address = StoreAddress.parse(store)
    with ExitStack() as stack:
        source = stack.enter_context(open_store(address, embedder_name=embedder))
        vectors = embedder_of(source, address, embedder)
        engine: AnswerEngine | None = None
        if not no_model:
            with working("Loading the language model …") as status:
                from sift_core.answering import AnswerEngine  # with torch

                engine = AnswerEngine(
                    language_model=load_language_model(model, device, console=status.console),
                    source=source,
                    embedder=vectors,
                    n_context=n_context,
                    n_candidates=candidates,
                    n_steps=steps,
                    max_new_tokens=max_new_tokens,
                )
        app = create_app(engine, source=source, embedder=vectors, settings=settings)
        _run(app, host, port)


def _settings(
    host: str,
    key: str | None,
    *,
    no_auth: bool,
    model_name: str | None,
    timeout: float,
    origins: list[str],
) -> ServiceSettings:
    """Return what the service allows; refuse to be open to others by mistake.

    Raises:
        InvalidInputError: If the address is not the loopback and nobody said who may call.
    """
    is_loopback = _is_loopback(host)
    if no_auth and key is not None:
        raise InvalidInputError(
            f"--no-auth and a key contradict each other; leave one out (is {KEY_VARIABLE} set?)"
        )
    if not is_loopback and key is None and not no_auth:
        raise InvalidInputError(
            f"{host} can be reached by others: put a key into {KEY_VARIABLE}, or say --no-auth if "
            f"everybody who reaches it may call"
        )
    from sift_core.service import ServiceSettings

    is_for_this_machine = is_loopback and key is None
    return ServiceSettings(
        api_key=key,
        model_name=model_name,
        timeout_s=timeout,
        allowed_origins=tuple(origins),
        allowed_hosts=("localhost", "127.0.0.1", "[::1]", host) if is_for_this_machine else (),
    )


def _key(variable: str | None) -> str | None:
    """Return the key in the environment; the name of a missing variable may be a key itself.

    Raises:
        InvalidInputError: If the variable that was named is not set or empty.
    """
    key = os.environ.get(variable or KEY_VARIABLE, "").strip()
    if variable is not None and not key:
        raise InvalidInputError(
            "--api-key takes the name of an environment variable that holds the key, and there is "
            f"none of that name, or it is empty; export {KEY_VARIABLE}=… and leave --api-key out"
        )
    return key or None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _run(app: Any, host: str, port: int) -> None:
    """Serve until somebody stops it."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingDependencyError("uvicorn", extra="serve") from error

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http="h11",  # the other that Uvicorn may find takes headers of any size
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_S,
    )
    listener = listener_at(host, port)
    shown = f"[{host}]" if ":" in host else host
    at = f"http://{shown}:{listener.getsockname()[1]}"
    stderr_console().say(f"Serving at {at}, for OpenAI's clients at {at}/v1. Ctrl-C stops it.")

    class Server(uvicorn.Server):
        def handle_exit(self, *signal: Any) -> None:
            app.state.service.stopping.set()  # answers end at their next step
            super().handle_exit(*signal)

    Server(config).run(sockets=[listener])


def listener_at(host: str, port: int) -> Any:
    """Return a listening socket.

    Raises:
        InvalidInputError: If there is no such address here, or the port is taken.
    """
    import socket

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen at {host}:{port} ({error.strerror or error}); is the port taken? "
            f"--port 0 takes a free one"
        ) from error
    # asyncio sets this for sockets that it makes itself; without it small answers wait 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
