"""Servers: which addresses mean this machine, how clients are made, and when to ask again."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import urlsplit

from sift_core.errors import InvalidInputError
from sift_core.installing import add_command

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
            f"needs one more package; run `{add_command('httpx[socks]')}`, or name the server's "
            "host in NO_PROXY"
        ) from error


def retry_after(header: str) -> float | None:
    """Return the seconds that a Retry-After header asks for, a number or a date; else None."""
    value = header.strip()
    if value.isdecimal():
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=timezone.utc)
    return max(0.0, (until - datetime.now(timezone.utc)).total_seconds())
