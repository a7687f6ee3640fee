"""Addresses of servers: which of them mean this machine, and how HTTP clients are made for them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from sift_core.errors import InvalidInputError

Client = TypeVar("Client")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine: "localhost", names below it, 127.0.0.0/8 or ::1."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def http_client(make: Callable[..., Client], url: str) -> Client:
    """Return a client built on httpx, which goes to this machine without a proxy.

    Proxies of the environment (HTTP_PROXY, ALL_PROXY and the like) stay in force for all others.

    Args:
        make: Called with `trust_env` of `httpx.Client`.
        url: The server's address.

    Raises:
        InvalidInputError: If the environment names a SOCKS proxy and httpx cannot use one.
    """
    try:
        return make(trust_env=not is_loopback(urlsplit(url).hostname or ""))
    except ImportError as error:  # of `socksio`, while the client is made
        raise InvalidInputError(
            "the environment (ALL_PROXY, HTTPS_PROXY or HTTP_PROXY) names a SOCKS proxy, which "
            "needs one more package; run `pip install 'httpx[socks]'`, or name the server's host "
            "in NO_PROXY"
        ) from error
