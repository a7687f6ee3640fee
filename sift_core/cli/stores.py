"""Open the store at an address, with the embedder of its documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sift_core.addresses import http_client
from sift_core.checks import short_repr
from sift_core.cli.models import check_recorded_embedder, load_embedder
from sift_core.cli.options import DEFAULT_LAYOUT, StoreLayout
from sift_core.cli.output import Working
from sift_core.cli.store_addresses import API_KEY_VARIABLE, StoreAddress
from sift_core.embedders.prompts import model_of
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.places import NOTE
from sift_core.types import Query

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from sift_core.embedders.loading import LoadedEmbedder
    from sift_core.sources import FaissSource, QdrantSource
    from sift_core.sources.qdrant.collection import Collection

TIMEOUT_S = 20  # of one call to a Qdrant server: a guess between patience and a dead host


@dataclass(frozen=True, kw_only=True)
class OpenedStore:
    """An index that `sift index` writes to.

    Args:
        source: The store; knows the embedder's name where it is recorded.
        files: Returns, by content id, which file each stored chunk is from.
    """

    source: FaissSource | QdrantSource
    files: Callable[[], dict[str, str]]


class NoIndexError(InvalidInputError):
    """There is no index at an address.

    Args:
        address: Where it was looked for.
        others: Names of the collections that are there. Default: none.
    """

    def __init__(self, address: StoreAddress, others: Sequence[str] = ()) -> None:
        there = f"; or name a collection that is there after #: {short_repr([*others])}"
        super().__init__(
            f"no index at {address}; make one: sift index FOLDER{address.option}"
            f"{there if others else ''}"
        )
        self.address = address


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
    return Path(address.location, manifest).is_file() or _is_of_another_tool(address)


def _is_of_another_tool(address: StoreAddress) -> bool:
    """Return whether a folder has a Faiss index that `sift` has not written."""
    folder = Path(address.location)
    if address.kind == "qdrant" or not folder.is_dir() or (folder / "manifest.json").is_file():
        return False
    from sift_core.sources.faiss.other_tools import find_documents

    return find_documents(folder) is not None


@contextmanager
def open_store(
    address: StoreAddress,
    *,
    embedder_name: str | None = None,
    layout: StoreLayout = DEFAULT_LAYOUT,
) -> Iterator[FaissSource | QdrantSource]:
    """Open an index that is there; a context manager, since a folder of Qdrant is locked.

    Args:
        address: Where it is.
        embedder_name: The model that the caller wants to embed with. Default: the recorded one.
        layout: How to read a collection of Qdrant that another tool filled.

    Raises:
        CandidateSourceError: If the store fails or its folder is in use.
        NoIndexError: If there is no index yet.
        InvalidInputError: If it was made by another embedder, or `layout` does not fit it.
    """
    if not has_place(address):
        raise NoIndexError(address)
    with open_for_writing(
        address, embedder_name=embedder_name, may_be_new=False, layout=layout
    ) as opened:
        yield opened.source


@contextmanager
def open_for_writing(
    address: StoreAddress,
    *,
    embedder_name: str | None = None,
    dimension: int | None = None,
    may_be_new: bool = True,
    layout: StoreLayout = DEFAULT_LAYOUT,
) -> Iterator[OpenedStore]:
    """Open a store; a collection of Qdrant is created by the first write.

    Args:
        address: Where it is; a place that `has_place`, unless `dimension` is given.
        embedder_name: The model that the caller wants to embed with. Default: the recorded one.
        dimension: Numbers in one of that model's vectors: where there is no Faiss index yet, an
            empty one is begun, in a folder that is created with its parents.
        may_be_new: Whether a collection of Qdrant may be missing.
        layout: How to read a collection of Qdrant that another tool filled, and to begin one.

    Raises:
        CandidateSourceError: If the store fails, or its folder cannot be written or is in use.
        InvalidInputError: If it was made by another embedder, there is no such collection and
            `may_be_new` is false, or `layout` does not fit the store.
    """
    if address.kind == "faiss":
        if layout != DEFAULT_LAYOUT:
            raise InvalidInputError(
                f"--text-key and --vector-name are for collections of Qdrant, got the store "
                f"{address}; leave them out"
            )
        if may_be_new and _is_of_another_tool(address):
            raise InvalidInputError(
                f"the store {address} was filled by another tool and is only read; index into "
                f"another --store"
            )
        from sift_core.sources import FaissSource

        if dimension is None:
            source = FaissSource.load(address.location)
        else:
            from sift_core.sources.faiss.entries import faiss

            # Exact, and every document can be removed again; fast enough to some 100,000 chunks.
            index = faiss.IndexFlatIP(dimension)
            source = FaissSource.open(address.location, index, embedder_name=embedder_name)
        _check_embedder(address, source.embedder_name, embedder_name)
        yield OpenedStore(source=source, files=partial(_faiss_files, source))
        return
    with _qdrant_client(address) as client:
        from sift_core.sources.qdrant.collection import Collection
        from sift_core.sources.qdrant.points import PointReader

        reader = PointReader(place=f"the store {address}")
        collection = Collection(client=client, name=address.collection, reader=reader)
        try:
            is_there = collection.exists()
        except CandidateSourceError as error:
            raise CandidateSourceError(f"cannot open the store {address}: {error}") from error
        if not is_there and not may_be_new:
            raise NoIndexError(address, collection.others())
        recorded = collection.embedder_name()
        _check_embedder(address, recorded, embedder_name)
        from sift_core.sources import QdrantSource

        named = layout.vector_name
        yield OpenedStore(
            source=QdrantSource(
                client,
                address.collection,
                vector_name=collection.vector_to_search(named) if is_there else named or "",
                text_key=layout.text_key,
                embedder_name=recorded,
            ),
            files=partial(_qdrant_files, collection) if is_there else dict,
        )


class OpenedIndex(NamedTuple):
    """An index that is searched.

    Args:
        address: Where it is.
        source: The store.
        embedder: The model that embedded its documents, loaded.
    """

    address: StoreAddress
    source: FaissSource | QdrantSource
    embedder: LoadedEmbedder


@contextmanager
def open_with_embedder(
    store: str,
    embedder: str | None,
    layout: StoreLayout = DEFAULT_LAYOUT,
    *,
    unrecorded: str | None = None,
) -> Iterator[OpenedIndex]:
    """Open the index that `--store` and `--embedder` mean, and load its embedder.

    Args:
        store: Its address.
        embedder: The model that the user named. Default: the recorded one.
        layout: How to read a collection of Qdrant that another tool filled. A store that names no
            embedder is asked once, so that what does not fit is said here.
        unrecorded: The model of a store that records none, if `embedder` is None. Default: none.

    Raises:
        CandidateSourceError: If the store fails, its folder is in use, or its entries have no such
            text or vector.
        InvalidInputError: If there is no such index, it was made by another embedder, nobody said
            by which, there is no such model, or the store alone names one that was not used on
            this machine before.
    """
    address = StoreAddress.parse(store)
    with open_store(address, embedder_name=embedder, layout=layout) as source:
        if source.embedder_name is None:
            embedder = embedder or unrecorded
        name = named_embedder(source, address, embedder)
        if name != embedder:
            check_recorded_embedder(name, str(address))
        with Working(f"Loading the embedder {name} …"):
            loaded = load_embedder(name)
        if source.embedder_name not in (None, loaded.name):
            raise InvalidInputError(
                f"the documents of {address} are recorded as {source.embedder_name!r}, the model "
                f"now embeds as {loaded.name!r}; index them again into another --store"
            )
        if source.embedder_name is None:
            source.fetch(Query(text="text", embedding=loaded.embed_query("text")), 2)
        yield OpenedIndex(address, source, loaded)


def named_embedder(
    source: FaissSource | QdrantSource, address: StoreAddress, asked: str | None
) -> str:
    """Return the name of the model that embedded an opened store's documents.

    Raises:
        InvalidInputError: If neither the store nor the user names one.
    """
    name = asked or source.embedder_name
    if name is None:
        raise InvalidInputError(
            f"the store {address} does not say which model embedded its documents; pass it with "
            f"--embedder"
        )
    return model_of(name)


def _check_embedder(address: StoreAddress, recorded: str | None, asked: str | None) -> None:
    if recorded and asked and asked not in (recorded, model_of(recorded)):
        raise InvalidInputError(
            f"the index at {address} was made with the embedder {recorded!r}, not {asked!r}; "
            f"leave --embedder out (and SIFT_EMBEDDER, and the settings file's), or index into "
            f"another --store"
        )


@contextmanager
def _qdrant_client(address: StoreAddress) -> Iterator[QdrantClient]:
    # The source's own module first: it names the extra where qdrant-client is missing.
    import sift_core.sources.qdrant  # noqa: F401

    from qdrant_client import QdrantClient  # isort: skip

    try:
        if address.is_server:
            make = partial(
                QdrantClient,
                url=address.location,
                api_key=os.environ.get(API_KEY_VARIABLE) or None,
                timeout=TIMEOUT_S,
                check_compatibility=False,
            )
            client = http_client(make, address.location)
        else:
            client = QdrantClient(path=address.location)
    except InvalidInputError:
        raise
    except Exception as error:  # whatever unpickling a damaged folder raises
        raise CandidateSourceError(
            f"cannot open Qdrant at {address.location!r}: {type(error).__name__}: {error}; is it a "
            f"folder that this user may write, and no other process's? One that is damaged is to "
            f"be restored, or indexed again into another"
        ) from error
    try:
        yield client
    finally:
        client.close()


def _faiss_files(source: FaissSource) -> dict[str, str]:
    return {
        content_id: _file_of(document.metadata, document.document_id)
        for content_id, document in source.documents().items()
        if not document.document_id.startswith(NOTE)
    }


def _qdrant_files(collection: Collection) -> dict[str, str]:
    """Return the file of each chunk in a collection; points of others are left out."""
    from sift_core.sources.qdrant.points import DOCUMENT_ID_KEY

    return {
        str(point.id): _file_of(point.payload, str(point.payload[DOCUMENT_ID_KEY]))
        for point in collection.stored(payload=[DOCUMENT_ID_KEY, "source"])
        if not str(point.payload[DOCUMENT_ID_KEY]).startswith(NOTE)
    }


def _file_of(metadata: Mapping[str, Any], document_id: str) -> str:
    source = metadata.get("source")
    return source if isinstance(source, str) else document_id
