"""Damaged files: each gives what was stored, or an error of ours; never something else."""

import shutil
import warnings
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import torch
from qdrant_client import QdrantClient

from sift_core.answering import Adapter, AdapterCache
from sift_core.answering.model.adapters import AdaptedLayer, AdapterLayout
from sift_core.documents import index_documents
from sift_core.errors import AdapterCacheWarning, SiftError
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.sources import FaissSource, QdrantSource
from sift_core.sources.content_ids import content_id
from sift_core.types import Document, FineTuningReport, Query
from tests.attacks.commands import assert_cats, sift, write_cats
from tests.attacks.frame import Failed
from tests.documents.kill_indexing import EMBEDDER, STORES, documents_of

DEEP = (b"[" * 100_000, b'{"a":' * 50_000, b'{"format":2,"state":' + b"[" * 20_000)
OTHER = (b"", b"null", b"[1]", b'{"format":2}', b"\x80\x04N.", b"\xff\xfe\0\0", b"1" * 5_000, b"{}")
LAYOUT = AdapterLayout(layers=(AdaptedLayer(name="layer", n_in=64, n_out=64),), rank=8)
REPORT = FineTuningReport(losses=(1.5, 0.25), n_steps=2, n_skipped=1, checkpointing=True)
KEY = f"{7:064x}"


def adapter_of(seed):
    values = torch.randn(LAYOUT.n_values, generator=torch.Generator().manual_seed(seed))
    return Adapter(layout=LAYOUT, alpha=16.0, values=values, base_name="base")


def embedding_cache(folder):
    return EmbeddingCache(folder, EMBEDDER.name, make_embedder=lambda: EMBEDDER, progress=False)


def check_cache(cache, n):
    """Embed n texts, and raise unless those are the embeddings."""
    texts = [document.text for document in documents_of(0)[:n]]
    if not np.array_equal(cache.embed(texts), EMBEDDER.embed_documents(texts)):
        raise Failed("cached embeddings are not those of the texts")


def damaged(rng, content):
    """Return other bytes."""
    n = len(content)
    start, end = sorted(rng.randrange(n + 1) for _ in range(2))
    flipped = bytearray(content)
    for _ in range(rng.randint(1, 8) if n else 0):
        flipped[rng.randrange(n)] ^= 1 << rng.randrange(8)
    noise = rng.randbytes(rng.randint(1, 5_000))
    ways = [bytes(flipped)] * 6 + [content[:start]] * 3
    ways += [content[:start] + content[end:], content[:start] + bytes(end - start) + content[end:]]
    ways += [content[:start] + noise + content[start + len(noise) :], content + noise, noise]
    ways += [content + content, content[start:] + content[:start], *DEEP, *rng.sample(OTHER, 2)]
    return rng.choice(ways)


def damage(rng, folder, older=None):
    """Change, swap, delete or bring back one file of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other, way = rng.choice(files), rng.choice(files), rng.random()
    if way < 0.08:
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
    elif way < 0.14:
        path.unlink()
    elif way < 0.2 and older is not None:  # an older state's file, under its name or this one's
        old = rng.choice(sorted(path for path in older.rglob("*") if path.is_file()))
        shutil.copy(old, rng.choice([path, path.parent / old.name]))
    else:
        path.write_bytes(damaged(rng, path.read_bytes()))


def compared(source, wanted):
    """Return the content ids that a store lists, and what it gives back, which was stored."""
    stored = {content_id(document) for document in wanted}
    listed = source.content_ids()
    if not listed:
        return listed, None
    pool = source.fetch(Query(text="?", embedding=EMBEDDER.embed_query("section")), 10_000)
    for key, text, metadata in zip(pool.document_ids, pool.texts, pool.metadata, strict=True):
        if content_id(Document(document_id=key, text=text, metadata=metadata)) not in stored:
            raise Failed(f"{key} came back with another text or metadata: {text[:80]!r}")
    return listed, pool


def assert_whole(source, wanted):
    """Raise unless a store gives back all that is wanted, each with its own vector."""
    listed, pool = compared(source, wanted)
    if listed != {content_id(document) for document in wanted} or len(pool) != len(wanted):
        raise Failed(
            f"of {len(wanted)} documents {len(listed)} are listed, {pool and len(pool)} found"
        )
    if not np.allclose(pool.embeddings, EMBEDDER.embed_documents(pool.texts), atol=1e-6):
        raise Failed("a vector is another one")


def damaged_store(rng, folder, kind):
    """Index in two runs, then damage a file; return the store and what it held."""
    store, wanted = folder / "store", documents_of(0)[: rng.randint(1, 40)]
    for part in (wanted[: len(wanted) // 2 + 1], wanted):
        with STORES[kind](store, "none") as source:
            index_documents(source, part, EMBEDDER, progress=False)
        if part is not wanted:
            shutil.copytree(store, folder / "older")
    damage(rng, store, folder / "older")
    return store, wanted


def faiss(rng, folder):
    """A Faiss folder is whole, or refused; after an indexing that says it was done, whole."""
    store, wanted = damaged_store(rng, folder, "faiss")
    for again in (False, True):
        with suppress(SiftError):
            if again and (store / "manifest.json").exists():  # else nothing says: an index
                with STORES["faiss"](store, "none") as source:
                    index_documents(source, wanted, EMBEDDER, progress=False)
            assert_whole(FaissSource.load(store), wanted)


def qdrant(rng, folder):
    """A Qdrant folder gives texts that were stored, or an error; its vectors are Qdrant's."""
    store, wanted = damaged_store(rng, folder, "qdrant-folder")
    sift(folder, "doctor", "--store", "qdrant:store#documents", "--json").checked()
    try:
        client = QdrantClient(path=str(store))
    except Exception:
        return  # the caller's own call of somebody else's code
    with closing(client), suppress(SiftError):
        source = QdrantSource(client, "documents")
        compared(source, wanted)
        index_documents(source, wanted, EMBEDDER, progress=False)
        compared(source, wanted)


def adapters(rng, folder):
    """A cached adapter is the one that was kept, or is learned anew; PEFT's form: an error."""
    adapter, cache = adapter_of(1), AdapterCache(folder / "cache", max_memory_bytes=0)
    cache.put(KEY, adapter, REPORT)
    adapter.save(folder / "peft")
    damage(rng, folder / "cache")
    damage(rng, folder / "peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdapterCacheWarning)
        for again in (False, True):
            assert not again or cache.put(KEY, adapter, REPORT), "it cannot be kept again"
            found = cache.get(KEY)
            assert found or not again, "what was kept again is not found"
            if found:
                assert torch.equal(found.adapter.values, adapter.values), "other weights"
                assert found.report == replace(REPORT, source="disk"), "another report"
    with suppress(SiftError):
        Adapter.load(folder / "peft")


def embeddings(rng, folder):
    """Cached embeddings are those of the texts, or made again."""
    n, cache = rng.randint(1, 30), embedding_cache(folder / "cache")
    check_cache(cache, n)
    damage(rng, folder / "cache")
    with suppress(SiftError):
        check_cache(cache, n)
        check_cache(cache, n)


def indexed_folder(rng, folder):
    """`sift index` over a damaged store: whole afterwards, or one line that says why not."""
    write_cats(folder, range(3))
    sift(folder, "index", "docs").checked(0)
    damage(rng, folder / ".sift")
    if sift(folder, "search", "cats").checked().code == 0:
        assert_cats(folder, range(3))
    if sift(folder, "index", "docs").checked().code == 0:
        assert_cats(folder, range(3))


ATTACKS = (faiss, qdrant, adapters, embeddings, indexed_folder)
