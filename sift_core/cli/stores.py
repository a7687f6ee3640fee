"""From a `--store` address to an open store, and from a name to an embedder."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from sift_core.cli.settings import DEFAULT_STORE
from sift_core.cli.stored_files import faiss_files, qdrant_files
from sift_core.errors import CandidateSourceError, InvalidInputError

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from sift_core.embedders import SentenceTransformerEmbedder
    from sift_core.sources import FaissSource, QdrantSource

DEFAULT_COLLECTION = "sift"
API_KEY_VARIABLE = "QDRANT_API_KEY"
TIMEOUT_S = 20  # of one call to a Qdrant server: a guess between patience and a dead host

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
        """Return the address that `--store` gives: `faiss:FOLDER`, `qdrant:FOLDER[#COLLECTION]`...

        Raises:
            InvalidInputError: If it is none, or a URL holds a secret, which is not repeated.
        """
        kind, _, rest = text.partition(":")
        location, _, collection = rest.partition("#") if kind == "qdrant" else (rest, "", "")
        if kind not in ("faiss", "qdrant") or not location.strip():
            shown = repr(text) if "@" not in text else "one with an @ in it"
            raise InvalidInputError(f"a store must be {_FORMS}, got {shown}")
        if "://" in location:
            _check_url(kind, location)
        elif re.fullmatch(r"[\w.-]+:\d+", location):
            raise InvalidInputError(
                f"{location!r} looks like a host with a port; a server is written "
                f"qdrant:http://{location}"
            )
        return cls(
            kind="faiss" if kind == "faiss" else "qdrant",
            location=location,
            collection=collection or DEFAULT_COLLECTION,
        )

    @property
    def is_server(self) -> bool:
        """Whether it is a Qdrant server rather than a folder."""
        return "://" in self.location

    @property
    def option(self) -> str:
        """What the end of a command says to mean this store; "" for the default one."""
        return "" if str(self) == DEFAULT_STORE else f" --store '{self}'"

    def __str__(self) -> str:
        """Return what `parse` reads; it never holds a secret, since `parse` refuses them."""
        end = "" if self.collection == DEFAULT_COLLECTION else f"#{self.collection}"
        return f"{self.kind}:{self.location}{end}"


@dataclass(frozen=True, kw_only=True)
class OpenedStore:
    """An index that `sift index` writes to.

    Args:
        source: The store; knows the embedder's name where it is recorded.
        files: Returns, by content id, which file each stored chunk is from.
    """

    source: FaissSource | QdrantSource
    files: Callable[[], dict[str, str]]


def has_place(address: StoreAddress) -> bool:
    """Return whether there is a store to open: a server, or a folder that one was made in.

    Raises:
        InvalidInputError: If a file is where the folder would be.
    """
    if address.is_server:
        return True
    if Path(address.location).is_file():
        raise InvalidInputError(
            f"{address.location!r} is a file; a store needs a folder of its own"
        )
    manifest = "manifest.json" if address.kind == "faiss" else "meta.json"
    return Path(address.location, manifest).is_file()


@contextmanager
def open_store(
    address: StoreAddress, *, embedder_name: str | None = None
) -> Iterator[FaissSource | QdrantSource]:
    """Open an index that is there; a context manager, since a folder of Qdrant is locked.

    Args:
        address: Where it is.
        embedder_name: The model that the caller wants to embed with; None for the recorded one.

    Raises:
        CandidateSourceError: If the store fails or its folder is in use.
        InvalidInputError: If there is no index yet, or it was made by another embedder.
    """
    if not has_place(address):
        raise _no_index(address)
    with open_for_writing(address, embedder_name=embedder_name, may_be_new=False) as opened:
        yield opened.source


@contextmanager
def open_for_writing(
    address: StoreAddress, *, embedder_name: str | None = None, may_be_new: bool = True
) -> Iterator[OpenedStore]:
    """Open a store at a place that `has_place`; a collection may have to be created in it.

    Raises:
        CandidateSourceError: If the store fails or its folder is in use.
        InvalidInputError: If it was made by another embedder, or there is no such collection and
            `may_be_new` is false.
    """
    if address.kind == "faiss":
        from sift_core.sources import FaissSource

        source = FaissSource.load(address.location)
        _check_embedder(address, source.embedder_name, embedder_name)
        yield OpenedStore(source=source, files=partial(faiss_files, source))
        return
    with _qdrant_client(address) as client:
        from sift_core.sources.qdrant.calls import Collection

        collection = Collection(client=client, name=address.collection)
        is_there = collection.exists()
        if not is_there and not may_be_new:
            raise _no_index(address)
        recorded = collection.embedder_name()
        _check_embedder(address, recorded, embedder_name)
        from sift_core.sources import QdrantSource

        yield OpenedStore(
            source=QdrantSource(
                client, address.collection, embedder_name=recorded or embedder_name
            ),
            files=partial(qdrant_files, client, address.collection) if is_there else dict,
        )


@contextmanager
def create_or_open_store(
    address: StoreAddress, *, embedder_name: str, dimension: int
) -> Iterator[FaissSource | QdrantSource]:
    """Open an index for writing; where there is none, begin an empty one.

    Args:
        address: Where it is or shall be; a folder is created with its parents.
        embedder_name: The model whose vectors it holds.
        dimension: Numbers in one of that model's vectors.

    Raises:
        CandidateSourceError: If the store fails, or its folder cannot be written or is in use.
        InvalidInputError: If it was made by another embedder.
    """
    if address.kind == "faiss":
        _begin_faiss_folder(address, embedder_name, dimension)
    with open_for_writing(address, embedder_name=embedder_name) as opened:
        yield opened.source


def stored_embedder_name(source: FaissSource | QdrantSource) -> str | None:
    """Return the model recorded beside the vectors of an opened store; None where there is none."""
    return source.embedder_name


def load_embedder(name: str) -> SentenceTransformerEmbedder:
    """Load a sentence-transformers model without the libraries' bars and remarks.

    Raises:
        InvalidInputError: If there is no such model.
        MissingDependencyError: If sentence-transformers is not installed.
    """
    from sift_core.cli.model_places import model_place
    from sift_core.embedders import SentenceTransformerEmbedder, packaged_path

    quieten_transformers()
    if packaged_path(name) is None:
        # Names without an owner are those of sentence-transformers.
        place = Path(name).expanduser()
        is_short = "/" not in name and not name.startswith((".", "~")) and not place.is_dir()
        short = f"sentence-transformers/{name}" if is_short else name
        model_place(short, "sentence-transformers")
    return SentenceTransformerEmbedder(name)


def quieten_transformers() -> None:
    """Have transformers and the hub print errors alone: stdout and stderr belong to the command."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the hub's, too
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # "Retrying in 4s"


def _check_url(kind: str, url: str) -> None:
    """Refuse what is no URL of a Qdrant server; a message never repeats a secret."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise InvalidInputError(
            f"the URL of a store must hold no user, password or key; put the server's key into "
            f"the environment variable {API_KEY_VARIABLE}"
        )
    if kind == "faiss" or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError(f"a store must be {_FORMS}, got {f'{kind}:{url}'!r}")


def _no_index(address: StoreAddress) -> InvalidInputError:
    return InvalidInputError(f"no index at {address}; make one: sift index FOLDER{address.option}")


def _check_embedder(address: StoreAddress, recorded: str | None, asked: str | None) -> None:
    if None not in (recorded, asked) and recorded != asked:
        raise InvalidInputError(
            f"the index at {address} was made with the embedder {recorded!r}, not {asked!r}; "
            f"leave --embedder out (and SIFT_EMBEDDER, and the settings file's), or index into "
            f"another --store"
        )


def _begin_faiss_folder(address: StoreAddress, embedder_name: str, dimension: int) -> None:
    from sift_core.sources.faiss.index import FaissSource
    from sift_core.sources.faiss.search import faiss

    # Exact, and every document can be removed again; fast enough up to some 100,000 chunks.
    FaissSource.open(address.location, faiss.IndexFlatIP(dimension), embedder_name=embedder_name)


@contextmanager
def _qdrant_client(address: StoreAddress) -> Iterator[QdrantClient]:
    # The source's own module first: it names the extra where qdrant-client is missing.
    from sift_core.sources.qdrant.failures import STORE_ERRORS

    from qdrant_client import QdrantClient  # isort: skip

    try:
        if address.is_server:
            client = QdrantClient(
                url=address.location,
                api_key=os.environ.get(API_KEY_VARIABLE) or None,
                timeout=TIMEOUT_S,
                check_compatibility=False,
            )
        else:
            client = QdrantClient(path=address.location)
    except (*STORE_ERRORS, sqlite3.Error) as error:
        raise CandidateSourceError(
            f"cannot open Qdrant at {address.location!r}: {error}; is it a folder that this user "
            f"may write, and no other process's?"
        ) from error
    try:
        yield client
    finally:
        client.close()
