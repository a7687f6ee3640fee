"""A disk that is full at a random point: an error of ours, and what was stored before stays."""

import resource
import warnings
from contextlib import closing, contextmanager, suppress

import faiss as library
import torch
from qdrant_client import QdrantClient

from sift_core.answering import AdapterCache
from sift_core.documents import index_documents
from sift_core.errors import AdapterCacheWarning, SiftError
from sift_core.sources import FaissSource, QdrantSource
from sift_core.sources.content_ids import content_id
from tests.attacks.commands import sift
from tests.attacks.damage import (
    EMBEDDER,
    KEY,
    REPORT,
    adapter_of,
    assert_whole,
    documents_of,
    embedding_cache,
)
from tests.attacks.frame import Failed


@contextmanager
def full_at(n_bytes):
    """Let no file become larger than so many bytes."""
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def faiss_source(path):
    yield FaissSource.open(path, library.IndexFlatIP(16), embedder_name=EMBEDDER.name)


@contextmanager
def qdrant_source(path):
    with closing(QdrantClient(path=str(path))) as client:
        yield QdrantSource(client, "docs")


def indexing(rng, folder, opened, n_bytes):
    wanted, store = documents_of(60), folder / "store"
    before = wanted[:20]
    with opened(store) as source:
        index_documents(source, before, EMBEDDER, progress=False)
    with full_at(rng.randrange(n_bytes)), suppress(SiftError), opened(store) as source:
        index_documents(source, wanted, EMBEDDER, batch_size=16, progress=False)
        before = wanted
    with opened(store) as source:
        if lost := {content_id(document) for document in before} - source.content_ids():
            raise Failed(f"{len(lost)} stored documents are lost")
        index_documents(source, wanted, EMBEDDER, progress=False)
    with opened(store) as source:
        assert_whole(source, wanted)


def faiss(rng, folder):
    indexing(rng, folder, faiss_source, 30_000)


def qdrant(rng, folder):
    indexing(rng, folder, qdrant_source, 100_000)


def caches(rng, folder):
    """For adapters a full disk is a warning, for embeddings an error; nothing is left behind."""
    texts = [document.text for document in documents_of(rng.randint(1, 60))]
    adapters, cache = AdapterCache(folder / "a", max_memory_bytes=0), embedding_cache(folder / "e")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdapterCacheWarning)
        with full_at(rng.randrange(10_000)):
            is_kept = adapters.put(KEY, adapter_of(1), REPORT)
            with suppress(SiftError):
                cache.embed(texts)
        found = adapters.get(KEY)
    if is_kept != (found is not None) or list(folder.rglob("*.unfinished")):
        raise Failed(f"kept: {is_kept}; there are {list(folder.rglob('*'))}")
    assert found is None or torch.equal(found.adapter.values, adapter_of(1).values)
    assert (cache.embed(texts) == EMBEDDER.embed_documents(texts)).all()


def output(rng, folder):
    """What a command prints into a full disk is one line of error."""
    (folder / "a.md").write_text("Cats purr.\n")
    commands = (("doctor",), ("doctor", "--json"), ("--help",), ("index", "a.md"))
    sift(folder, *rng.choice(commands), stdout="/dev/full").checked(1, 2)


def indexed_folder(rng, folder):
    """`sift index`: one line of error, and the store answers as before."""
    (folder / "docs").mkdir()
    (folder / "docs/a.md").write_text("# Cats\n\nCats purr.\n")
    sift(folder, "index", "docs").checked(0)
    (folder / "docs/b.md").write_text("# Dogs\n\nDogs bark.\n" * rng.randint(1, 40))
    with full_at(rng.randrange(4_000, 40_000)):  # what is printed has room
        sift(folder, "index", "docs").checked(0, 2)
    found = sift(folder, "search", "cats?").checked(0)
    if "Cats purr" not in found.out:
        raise Failed(f"lost: {found.out}")


ATTACKS = {one.__name__: one for one in (faiss, qdrant, caches, output, indexed_folder)}
