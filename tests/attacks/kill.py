"""Deaths at random moments, and first writers at once: what was safely stored is never lost."""

import json
import multiprocessing
import os
import warnings

import faiss as library
import torch

from sift_core.answering import AdapterCache
from sift_core.documents import index_documents
from sift_core.errors import AdapterCacheWarning, SiftError
from sift_core.sources import FaissSource
from sift_core.sources.content_ids import content_id
from tests.attacks.commands import forked, sift
from tests.attacks.damage import EMBEDDER, KEY, REPORT, adapter_of, documents_of, embedding_cache
from tests.attacks.frame import Failed
from tests.documents import kill_indexing
from tests.documents.kill_indexing import STORES, Told, tell
from tests.documents.test_kill_indexing import held, promised
from tests.sources.faiss_deaths import DIED, die_at

N_ROUNDS = 3


def killed(work, rng, folder, *, n_operations, seconds):
    """Do work that dies before a random operation on files, or at a random moment."""
    n = rng.randint(1, n_operations)
    if rng.random() < 0.5:
        ended = forked(work, folder, kill_after_s=rng.uniform(0, seconds))
    else:
        ended = forked(lambda: (die_at(n), work())[1], folder)
    if ended.code not in (0, -9, DIED):
        raise Failed(f"exit code {ended.code}: {ended.err[-300:]}")
    return ended


def indexing(store, rng, folder):
    path, before, offered = folder / "store", set(), set()
    for number in range(N_ROUNDS + 1):
        documents = kill_indexing.documents_of(number)
        wanted = {content_id(document) for document in documents}

        def work(documents=documents, wanted=wanted):
            embedder = kill_indexing.EMBEDDER
            with STORES[store](path, "none") as source:
                index_documents(Told(source), documents, embedder, batch_size=16, progress=False)
            tell("end", *wanted)

        if number < N_ROUNDS:
            ended = killed(work, rng, folder, n_operations=120, seconds=0.4)
        else:
            ended = forked(work, folder)
        lines = [line.split() for line in ended.out.splitlines()]
        offered |= wanted
        with STORES[store](path, "none") as source:
            found = held(source)
        if lost := ((before & wanted) | promised(lines)) - found:
            raise Failed(f"{len(lost)} documents are lost")
        is_end = bool(lines) and lines[-1][0] == "end"
        if not found <= offered or (is_end and found != wanted):
            raise Failed(f"round {number} holds other than was wanted")
        before = found
    if not is_end:
        raise Failed(f"the last indexing did not end: {ended.err[-200:]}")


def faiss(rng, folder):
    indexing("faiss", rng, folder)


def qdrant(rng, folder):
    indexing("qdrant-folder", rng, folder)


def first_writers(rng, folder):
    """Several begin one Faiss folder at once; of all that are told "stored", all is there."""
    context = multiprocessing.get_context("fork")
    n, n_killed = rng.randint(2, 5), rng.choice([0, 0, 1])
    start = os.pipe()  # which ends for all at once
    parts = [documents_of(rng.randint(1, 30), first=1000 * i) for i in range(n)]
    arguments = [(folder, start, i, part) for i, part in enumerate(parts)]
    writers = [context.Process(target=begin, args=given) for given in arguments]
    for writer in writers:
        writer.start()
    for end in start:
        os.close(end)
    for writer in writers[:n_killed]:
        writer.join(rng.uniform(0, 0.1))
        writer.kill()
    for writer in writers:
        writer.join()
    refused = [path.read_text() for path in folder.glob("*.refused")]
    stored = [int(path.stem) for path in folder.glob("*.stored")]
    if any(writer.exitcode for writer in writers[n_killed:]) or not (stored or n_killed):
        log = (folder.parent / "log").read_text()[-300:]
        raise Failed(f"of {n} writers {len(stored)} have stored: {refused}, {log}")
    found = FaissSource.load(folder / "store").content_ids() if stored else set()
    for i in stored:
        if lost := {content_id(document) for document in parts[i]} - found:
            raise Failed(f"{len(lost)} documents of a writer that said stored are gone")


def begin(folder, start, i, documents):
    os.close(start[1])
    os.read(start[0], 1)
    try:
        index = library.IndexFlatIP(16)
        source = FaissSource.open(folder / "store", index, embedder_name=EMBEDDER.name)
        index_documents(
            source, documents, EMBEDDER, batch_size=4, delete_vanished=False, progress=False
        )
    except SiftError as error:
        (folder / f"{i}.refused").write_text(str(error))
    else:
        (folder / f"{i}.stored").touch()


def caches(rng, folder):
    """Caches of adapters and embeddings, written when the process dies."""
    texts = [document.text for document in documents_of(20)]
    cache = embedding_cache(folder / "e")

    def work():
        AdapterCache(folder / "a").put(KEY, adapter_of(1), REPORT)
        cache.embed(texts)

    killed(work, rng, folder, n_operations=12, seconds=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AdapterCacheWarning)
        found = AdapterCache(folder / "a").get(KEY)
    assert found is None or torch.equal(found.adapter.values, adapter_of(1).values), "another one"
    assert (cache.embed(texts) == EMBEDDER.embed_documents(texts)).all(), "other embeddings"


def indexed_folder(rng, folder):
    """`sift index`, killed and called again, holds what one that was left alone holds."""
    (folder / "docs").mkdir()
    for i in range(rng.randint(1, 30)):
        (folder / f"docs/{i}.md").write_text(f"# Part {i}\n\nCats purr, {i} times.\n")
    if rng.random() < 0.5:
        sift(folder, "index", "docs").checked(0)
        (folder / "docs/0.md").write_text("# Part 0\n\nDogs bark.\n")
    sift(folder, "index", "docs", kill_after_s=rng.uniform(0.1, 2.5)).checked(0, -9)
    whole = json.loads(sift(folder, "index", "docs", "--json").checked(0).out)
    if whole["n_chunks"] != len(list((folder / "docs").iterdir())) or whole["skipped"]:
        raise Failed(f"indexed again: {whole}")


ATTACKS = {one.__name__: one for one in (faiss, qdrant, first_writers, caches, indexed_folder)}
