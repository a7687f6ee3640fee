"""Read the address that `--store` gives."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sift_core.cli.options import DEFAULT_STORE
from sift_core.errors import InvalidInputError

DEFAULT_COLLECTION = "sift"
API_KEY_VARIABLE = "QDRANT_API_KEY"

_WITH_PASSWORD = re.compile(r"(?![A-Za-z]:[\\/]).*:.*@", re.DOTALL)  # the first is a drive
_FORMS = "faiss:FOLDER, qdrant:FOLDER or qdrant:http://HOST:6333"


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where an index is.

    Args:
        kind: Which store.
        location: A folder, or the URL of a Qdrant server.
        collection: Qdrant's name for the index; Faiss has one index a folder.
    """

    kind: Literal["faiss", "qdrant"]
    location: str
    collection: str = DEFAULT_COLLECTION

    @classmethod
    def parse(cls, text: str) -> StoreAddress:
        """Return the address that `--store` gives.

        Raises:
            InvalidInputError: If it is none, or a URL holds a secret, which is not repeated.
        """
        kind, _, rest = text.partition(":")
        location, _, collection = rest.partition("#") if kind == "qdrant" else (rest, "", "")
        if kind not in ("faiss", "qdrant") or not location.strip() or location.startswith("//"):
            shown = repr(text) if "@" not in text else "one with an @ in it"
            raise InvalidInputError(f"a store must be {_FORMS}, got {shown}")
        if "://" in location:
            _check_url(kind, location, collection)
        elif _WITH_PASSWORD.match(location):
            raise InvalidInputError(f"a store must be {_FORMS}, got one with a user and password")
        elif re.fullmatch(r"[\w.-]+:\d+", location):
            raise InvalidInputError(
                f"{location!r} looks like a host with a port; a server is written "
                f"qdrant:http://{location}"
            )
        folder = os.path.expanduser(location)
        if folder.startswith("~"):
            raise InvalidInputError(
                f"there is no user {location.split('/')[0]!r}; a folder of that name is written "
                f"{kind}:./{location}"
            )
        return cls(
            kind="faiss" if kind == "faiss" else "qdrant",
            location=folder,
            collection=collection or DEFAULT_COLLECTION,
        )

    @property
    def is_server(self) -> bool:
        """Whether it is a Qdrant server rather than a folder."""
        return "://" in self.location

    @property
    def option(self) -> str:
        """What the end of a command says to mean this store; "" for the default one."""
        return "" if str(self) == DEFAULT_STORE else f" --store {shlex.quote(str(self))}"

    @property
    def name(self) -> str:
        """Name of the index for readers: its folder, or the one around a folder that is hidden.

        An index in Qdrant has the name of its collection, but for the default one of a folder.
        """
        if self.is_server or self.collection != DEFAULT_COLLECTION:
            return self.collection
        folder = Path(os.path.abspath(self.location))
        if not folder.name.startswith("."):
            return folder.name or "index"
        return folder.parent.name or folder.name.lstrip(".") or "index"

    def __str__(self) -> str:
        """Return what `parse` reads; it never holds a secret, since `parse` refuses them."""
        end = "" if self.collection == DEFAULT_COLLECTION else f"#{self.collection}"
        return f"{self.kind}:{self.location}{end}"


def _check_url(kind: str, url: str, collection: str) -> None:
    """Refuse what is no URL of a Qdrant server; a message never repeats a secret."""
    if any(sign in f"{url}#{collection}" for sign in "@?"):  # also in a password with a "#"
        raise InvalidInputError(
            f"the URL of a store must hold no user, password or key; put the server's key into "
            f"the environment variable {API_KEY_VARIABLE}"
        )
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half an IPv6 address, or no port
        is_url = False
    if kind == "faiss" or not is_url:
        raise InvalidInputError(f"a store must be {_FORMS}, got {f'{kind}:{url}'!r}")
