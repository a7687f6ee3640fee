"""A disk that is full at a random point: an error of ours, and what was stored before stays."""

import resource
import warnings
from contextlib import contextmanager, suppress

from sift_core.answering import AdapterCache
from sift_core.documents import index_documents
from sift_core.errors import AdapterCacheWarning, SiftError
from sift_core.sources.content_ids import content_id
from tests.attacks.commands import assert_cats, sift, write_cats
from tests.attacks.damage import KEY, REPORT, adapter_of, assert_whole, check_cache, embedding_cache
from tests.attacks.frame import Failed
from tests.documents.kill_indexing import EMBEDDER, STORES, documents_of


@contextmanager
def full_at(n_bytes):
    """Let no file become larger than so many bytes."""
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def stores(rng, folder):
    """Indexing into a Faiss folder or a Qdrant folder."""
    name, n_bytes = rng.choice([("faiss", 50_000), ("qdrant-folder", 200_000)])
    before, wanted, path = documents_of(0)[:20], documents_of(0), folder / "store"
    with STORES[name](path, "none") as source:
        index_documents(source, before, EMBEDDER, progress=False)
    with full_at(rng.randrange(n_bytes)), suppress(SiftError), STORES[name](path, "none") as source:
        index_documents(source, wanted, EMBEDDER, batch_size=16, progress=False)
        before = wanted
    with STORES[name](path, "none") as source:
        if lost := {content_id(document) for document in before} - source.content_ids():
            raise Failed(f"{len(lost)} stored documents are lost")
        index_documents(source, wanted, EMBEDDER, progress=False)
    with STORES[name](path, "none") as source:
        assert_whole(source, wanted)


def caches(rng, folder):
    """For adapters a full disk is a warning, for embeddings an error; nothing is left behind."""
    n, cache = rng.randint(1, 60), embedding_cache(folder / "e")
    adapters = AdapterCache(folder / "a", max_memory_bytes=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdapterCacheWarning)
        with full_at(rng.randrange(10_000)):
            is_kept = adapters.put(KEY, adapter_of(1), REPORT)
            with suppress(SiftError):
                check_cache(cache, n)
        found = adapters.get(KEY)
    if is_kept != (found is not None) or list(folder.rglob("*.unfinished")):
        raise Failed(f"kept: {is_kept}; there are {list(folder.rglob('*'))}")
    check_cache(cache, n)


def output(rng, folder):
    """What a command prints into a full disk is one line of error."""
    (folder / "a.md").write_text("Cats purr.\n")
    commands = (("doctor",), ("doctor", "--json"), ("--help",), ("index", "a.md"))
    sift(folder, *rng.choice(commands), stdout="/dev/full").checked(1, 2)


def indexed_folder(rng, folder):
    """`sift index`: one line of error, and the store answers as before."""
    write_cats(folder, range(2))
    sift(folder, "index", "docs").checked(0)
    write_cats(folder, range(2, rng.randint(3, 40)))
    with full_at(rng.randrange(4_000, 60_000)):  # what is printed has room
        sift(folder, "index", "docs").checked(0, 2)
    assert_cats(folder, range(2))


ATTACKS = (stores, caches, output, indexed_folder)
