"""HTTP connections that are closed where a request's headers do not come in time.

Uvicorn waits for headers for ever: its `timeout_keep_alive` ends with the first byte. This can go
when it has the option that https://github.com/Kludex/uvicorn/issues/157 asks for.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PromptHeaders(H11Protocol):
    """Uvicorn's protocol, which closes a connection whose headers take longer than `headers_s`.

    The time of a connection's first request begins with the connection, that of a later one with
    its first byte.
    """

    headers_s = 20.0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for headers."""
        super().connection_made(transport)  # type: ignore[arg-type]  # TCP has no other kind
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what has come; wait on while it is no whole request's headers."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(self.headers_s, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
