"""The service on a cluster: the same application in replicas behind Ray Serve.

    serve run examples/serve/ray.yaml

Ray's proxies see headers alone, not the body in which `sift.session` stands. Requests with the same
header `x-session-id` go to the same replica; decision 0019 says why this way. Another header can be
named by RAY_SERVE_SESSION_ID_HEADER_KEY on all nodes. Without it each replica learns for itself.

- The key is SIFT_API_KEY in the environment of `ray start` on each node.
- Each replica opens the store: a Faiss folder that all nodes have, or a Qdrant server.
- Limits are those of each replica, and `/metrics` tells of the one that answers.
- When a replica dies, its requests end with a 500 or a stream without `data: [DONE]`. Its sessions
  are learned again elsewhere. One that is to end has `timeout_s` for its answers.
"""

# No `from __future__ import annotations`: Ray reads the type of the builder's argument.
import inspect
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.service.settings import KEY_VARIABLE, ServiceSettings, key_of

try:
    from fastapi import FastAPI
    from pydantic import BaseModel, ConfigDict, Field, ImportString, model_validator
    from ray import serve
    from ray.serve.config import RequestRouterConfig
    from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
    from ray.serve.request_router import PendingRequest, RunningReplica
except ImportError as error:
    raise MissingDependencyError("ray", extra="ray") from error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_QUEUED = 512  # requests that wait in a proxy for a replica; Ray tells more of them 503
_REQUEST_ID = b"x-request-id"


class RayArguments(BaseModel):
    """What stands under `args` of the application in Serve's config file.

    Args:
        open_app: Import path of what opens the application in each replica, such as
            "sift_core.cli.serve:opened_app": called with the settings and, by name, the options;
            returns a context manager.
        options: Its options, such as the store's address and the model's name.
        settings: Limits and times of each replica, by name, as of `ServiceSettings`. The key is
            none of them, since Ray shows arguments: it is in each replica's environment.
        no_auth: Whether whoever reaches Ray's proxy may call; else a replica without a key does
            not start.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)

    open_app: ImportString[Callable[..., AbstractContextManager[FastAPI]]]
    options: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    no_auth: bool = False

    @model_validator(mode="after")
    def _check(self) -> "RayArguments":
        """Refuse here, rather than in each replica, what cannot work."""
        try:
            settings = self.service_settings()
            inspect.signature(self.open_app).bind(settings, **self.options)
        except TypeError as error:
            raise ValueError(f"settings or options do not fit: {error}") from error
        if settings.api_key is not None:
            raise ValueError(f"the key is no argument; put it into {KEY_VARIABLE} on each node")
        return self

    def service_settings(self) -> ServiceSettings:
        """Return the settings, without a key."""
        lists = {name: tuple(it) for name, it in self.settings.items() if isinstance(it, list)}
        return ServiceSettings(**(self.settings | lists))


class SessionRouter(ConsistentHashRouter):
    """Sends a session to one replica as long as that lives; the rest to where fewer wait."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return whom to ask; of several the one with the shortest queue is taken."""
        if pending_request is None or pending_request.metadata.session_id:
            chosen: list[list[RunningReplica]] = await super().choose_replicas(
                candidate_replicas, pending_request
            )
            return chosen
        pending_request.routing_context.should_backoff = True
        return [random.sample(candidate_replicas, min(2, len(candidate_replicas)))]


@serve.ingress()
class Replica:
    """One process with the model and the whole application.

    Raises:
        InvalidInputError: If there is no key and nobody said that none is needed.
    """

    def __init__(self, arguments: RayArguments) -> None:
        key = None if arguments.no_auth else key_of()
        if key is None and not arguments.no_auth:
            raise InvalidInputError(
                f"a replica found no key: put one into {KEY_VARIABLE} where Ray is started on each "
                f"node, or say `no_auth: true` if everybody who reaches the proxy may call"
            )
        settings = replace(arguments.service_settings(), api_key=key)
        self._opened = ExitStack()  # as long as the process
        self._app = self._opened.enter_context(arguments.open_app(settings, **arguments.options))
        self._app.add_middleware(_Unnamed)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return what Ray serves."""
        return self._app


class _Unnamed:
    """Takes `x-request-id` off answers: Ray's proxy adds it, and it would stand there twice."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        async def unnamed(message: "Message") -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                message["headers"] = [one for one in headers if one[0] != _REQUEST_ID]
            await send(message)

        await self._app(scope, receive, unnamed)


def app(arguments: RayArguments) -> serve.Application:
    """Return the application that `serve run` and `serve deploy` run.

    A replica is sent all that its own queues take, so that a rerank never waits behind answers
    and the service itself says when to come back; one that is to end has the time of an answer.
    The config file's `deployments` goes before this.
    """
    settings = arguments.service_settings()
    deployment = serve.deployment(
        name="sift",
        max_ongoing_requests=settings.n_requests,
        max_queued_requests=MAX_QUEUED,
        graceful_shutdown_timeout_s=settings.timeout_s,
        request_router_config=RequestRouterConfig(
            request_router_class=SessionRouter,  # type: ignore[arg-type]  # its __init__ is mistyped
            # A replica that is slow to tell its queue would else lose its sessions to another.
            request_router_kwargs={"num_fallback_replicas": 0},
        ),
    )
    return deployment(Replica).bind(arguments)
