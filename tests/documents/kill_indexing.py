"""Kills `index_documents` at random moments and looks at what is left in the store.

    python tests/documents/kill_indexing.py --store faiss --kills 1000 --seconds 600

One round: a child process opens the store and indexes some documents, the set of which moves
on a little every round; it is killed (SIGKILL) at a moment drawn uniformly over the time that
a whole run takes. Another child then opens the store and compares all that it holds with what
was written. Every few rounds a run is left to its end, after which the store must hold
exactly the documents; and sometimes the next one begins a new store. Needs fork().
"""

import argparse
import contextlib
import importlib
import json
import mmap
import os
import random
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sift_core.documents.indexing import index_documents
from sift_core.sources.content_ids import content_id
from sift_core.testing import HashingEmbedder
from sift_core.types import CandidatePool, Document, Query

N_DOCUMENTS = 300
N_NEW_A_ROUND = 40
BATCH_SIZE = 16
ROUNDS_TO_AN_END = 5
NEW_STORE_AFTER_AN_END = 0.3
DEADLINE_S = 60
EMBEDDER = HashingEmbedder(dimension=16)
PHASES = ["begin", "open", "list", "prepare", "embed", "add", "remove", "complete", "close", "end"]


@contextlib.contextmanager
def faiss_folder(path, url):
    import faiss

    from sift_core.sources.faiss.folder import MANIFEST
    from sift_core.sources.faiss.index import FaissSource

    if not (path / MANIFEST).exists():
        FaissSource(faiss.IndexFlatIP(16), []).save(path)
    yield FaissSource.load(path)


@contextlib.contextmanager
def edge_folder(path, url):
    from sift_core.sources.qdrant_edge_shard import EdgeSource

    with EdgeSource.open(path) as source:
        yield source


@contextlib.contextmanager
def qdrant_folder(path, url):
    from qdrant_client import QdrantClient

    from sift_core.sources.qdrant.collection import QdrantSource

    with contextlib.closing(QdrantClient(path=str(path))) as client:
        yield QdrantSource(client, "documents")


@contextlib.contextmanager
def qdrant_rest(path, url):
    from qdrant_client import QdrantClient

    from sift_core.sources.qdrant.collection import QdrantSource

    with contextlib.closing(QdrantClient(url=url, timeout=20, check_compatibility=False)) as client:
        yield QdrantSource(client, path.name)


class CarelessFile:
    """A store that rewrites its only file in place and reports what it has not yet written.

    Not a store to use: the harness has to find out about it.
    """

    embedder_name = None

    def __init__(self, path):
        self.path = path
        self.rows = json.loads(path.read_text()) if path.exists() else {}
        self.n_adds = 0

    def prepare(self, *, embedder_name, dimension):
        self.write()

    def content_ids(self):
        return set(self.rows)

    def add(self, content_ids, documents, embeddings):
        for key, document, embedding in zip(content_ids, documents, embeddings, strict=True):
            row = [document.document_id, document.text, document.metadata, embedding.tolist()]
            self.rows[key] = row
        self.n_adds += 1
        if self.n_adds % 3 == 0:
            self.write()

    def remove(self, content_ids):
        for key in content_ids:
            self.rows.pop(key, None)

    def complete(self):
        self.write()

    def write(self):
        with self.path.open("w") as file:
            json.dump(self.rows, file)

    def fetch(self, query, n_candidates):
        ids, texts, metadata, embeddings = zip(*self.rows.values(), strict=True)
        return CandidatePool(
            document_ids=ids,
            texts=texts,
            metadata=metadata,
            embeddings=np.array(embeddings, dtype=np.float32),
            similarities=np.zeros(len(ids)),
        )


@contextlib.contextmanager
def careless_file(path, url):
    yield CarelessFile(path)


# How each store is opened at a place of its own, and what to import before forking.
STORES = {
    "careless-file": (careless_file, []),
    "faiss": (faiss_folder, ["faiss", "sift_core.sources.faiss.index"]),
    "edge": (edge_folder, ["sift_core.sources.qdrant_edge_shard"]),
    "qdrant-folder": (qdrant_folder, ["sift_core.sources.qdrant.collection"]),
    "qdrant-rest": (
        qdrant_rest,
        ["sift_core.sources.qdrant.collection", "tests.sources.qdrant_rest"],
    ),
}


class Board:
    """Memory that a child writes on and the parent reads after its death."""

    def __init__(self):
        self._memory = mmap.mmap(-1, 1 << 20)

    @property
    def phase(self):
        return PHASES[self._memory[0]]

    @phase.setter
    def phase(self, phase):
        self._memory[0] = PHASES.index(phase)

    @property
    def stored(self):
        """Ids of all that an `add` which returned has stored."""
        (size,) = struct.unpack_from("I", self._memory, 4)
        return set(self._memory[8 : 8 + size].decode().split())

    def clear(self):
        self.phase = "begin"
        struct.pack_into("I", self._memory, 4, 0)

    def note(self, content_ids):
        """Add ids; counted last, so that a kill in between adds none."""
        (size,) = struct.unpack_from("I", self._memory, 4)
        added = "".join(f"{content_id} " for content_id in content_ids).encode()
        self._memory[8 + size : 8 + size + len(added)] = added
        struct.pack_into("I", self._memory, 4, size + len(added))


class Watched:
    """A DocumentIndex that writes on a board what is being done to it."""

    def __init__(self, source, board):
        self._source, self._board = source, board

    @property
    def embedder_name(self):
        return self._source.embedder_name

    def _during(self, phase, call, *arguments, **options):
        self._board.phase = phase
        result = call(*arguments, **options)
        self._board.phase = "embed"
        return result

    def prepare(self, **options):
        self._during("prepare", self._source.prepare, **options)

    def content_ids(self):
        return self._during("list", self._source.content_ids)

    def add(self, content_ids, documents, embeddings):
        self._during("add", self._source.add, content_ids, documents, embeddings)
        self._board.note(content_ids)

    def remove(self, content_ids):
        self._during("remove", self._source.remove, content_ids)

    def complete(self):
        self._during("complete", self._source.complete)


def documents_of(number):
    """Return the documents of one round; the next round's begin `N_NEW_A_ROUND` later."""
    first = number * N_NEW_A_ROUND
    return [
        Document(
            document_id=f"page-{i // 7}.md#{i % 7}",
            text=f"Section {i} of {i // 7}: {' '.join(f'word{i * k % 97}' for k in range(1, 9))}.",
            metadata={"number": i, "place": {"page": f"é {i // 7}"}, "tags": ["a", None, 0.25]},
        )
        for i in range(first, first + N_DOCUMENTS)
    ]


def contents(source):
    """Return the ids that a store lists, and what is wrong with what it gives back."""
    listed = source.content_ids()
    if not listed:
        return [], []
    query = Query(text="?", embedding=EMBEDDER.embed_query("section of a page"))
    pool = source.fetch(query, 10 * N_DOCUMENTS)
    fetched = [
        content_id(Document(document_id=document_id, text=text, metadata=metadata))
        for document_id, text, metadata in zip(
            pool.document_ids, pool.texts, pool.metadata, strict=True
        )
    ]
    wrong = []
    if len(set(fetched)) < len(fetched):
        wrong.append(f"duplicates: {len(fetched) - len(set(fetched))}")
    if set(fetched) != listed:
        wrong.append(f"damaged: {len(set(fetched) ^ listed)} ids and documents do not match")
    distances = np.abs(pool.embeddings - EMBEDDER.embed_documents(pool.texts)).max(axis=1)
    if (distances > 1e-6).any():
        wrong.append(f"damaged: {(distances > 1e-6).sum()} embeddings are others")
    return sorted(listed), wrong


def fork(function):
    """Return the process id of a child that calls a function and dies."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def result_of(function):
    """Return what a function returns in a child (as JSON), or None if it fails or hangs."""
    reading, writing = os.pipe()

    def answer():
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            json.dump(function(), pipe)

    child = fork(answer)
    os.close(writing)
    received = b""
    deadline = time.monotonic() + DEADLINE_S
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        received += chunk
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return json.loads(received) if status == 0 else None


@dataclass
class Tally:
    """What came of it."""

    kills: int = 0
    opened: int = 0
    ends: int = 0
    exact_ends: int = 0
    problems: list = field(default_factory=list)
    phases: Counter = field(default_factory=Counter)

    def count(self, kind):
        return sum(problem.split(": ", 1)[1].startswith(kind) for problem in self.problems)

    def table(self, store):
        phases = ", ".join(f"{phase} {self.phases[phase]}" for phase in PHASES)
        return "\n".join(
            [
                f"| {store} | |",
                "|---|---|",
                f"| kills | {self.kills} |",
                f"| killed in the phase | {phases} |",
                f"| opened afterwards | {self.opened} |",
                f"| lost documents | {self.count('lost')} |",
                f"| duplicates | {self.count('duplicates')} |",
                f"| damaged or unexpected | {self.count('damaged') + self.count('unexpected')} |",
                f"| runs to the end, with exactly the documents | {self.ends}, {self.exact_ends} |",
                *self.problems[:10],
            ]
        )


class Campaign:
    """Rounds of kills against one kind of store."""

    def __init__(self, store, folder, seed, url):
        self.opened, modules = STORES[store]
        for module in modules:
            importlib.import_module(module)
        self.folder, self.url = folder, url
        self.random = random.Random(seed)
        self.board = Board()
        self.tally = Tally()
        self.number = -1
        self.n_stores = 0
        self.begin_store()

    def begin_store(self):
        shutil.rmtree(self.folder / f"store-{self.n_stores}", ignore_errors=True)
        self.n_stores += 1
        self.path = self.folder / f"store-{self.n_stores}"
        self.held = set()  # what the store is known to hold
        self.offered = set()  # what it was ever given

    def run(self, n_kills, seconds):
        """Kill until there were so many, or the time is over."""
        stop = time.monotonic() + seconds
        while self.tally.kills < n_kills and time.monotonic() < stop:
            duration = self.to_the_end()
            if self.random.random() < NEW_STORE_AFTER_AN_END:
                self.begin_store()
                duration = self.first_duration
            for _ in range(ROUNDS_TO_AN_END):
                if self.tally.kills < n_kills and time.monotonic() < stop:
                    self.kill_once(duration)
        self.to_the_end()
        return self.tally

    def to_the_end(self):
        """Let one run end, compare all, and return how long such a run takes."""
        self.number += 1
        wanted = {content_id(document) for document in documents_of(self.number)}
        is_first = not self.held
        start = time.monotonic()
        if result_of(self.index) is None:
            self.problem("unexpected: a run that was not killed failed")
        duration = time.monotonic() - start
        if is_first:
            self.first_duration = duration
        self.tally.ends += 1
        n_problems = len(self.tally.problems)
        self.offered |= wanted
        found = self.compare(at_least=wanted)
        if found is not None and found != wanted:
            self.problem(f"unexpected: {len(found - wanted)} documents that had vanished")
        self.tally.exact_ends += len(self.tally.problems) == n_problems
        return duration

    def kill_once(self, duration):
        self.number += 1
        wanted = {content_id(document) for document in documents_of(self.number)}
        self.offered |= wanted
        self.board.clear()
        child = fork(self.index)
        time.sleep(self.random.uniform(0, duration))
        os.kill(child, signal.SIGKILL)  # a child that has ended waits for waitpid
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            self.tally.kills += 1
            self.tally.phases[self.board.phase] += 1
        elif status:
            self.problem("unexpected: a run failed before it was killed")
        found = self.compare(at_least=(self.held & wanted) | self.board.stored)
        if found is not None:
            self.tally.opened += os.WIFSIGNALED(status)
            if self.board.phase in ("complete", "close", "end") and not found <= wanted:
                self.problem("unexpected: vanished documents came back")

    def index(self):
        self.board.phase = "open"
        with self.opened(self.path, self.url) as source:
            watched = Watched(source, self.board)
            self.board.phase = "embed"
            index_documents(
                watched,
                documents_of(self.number),
                EMBEDDER,
                batch_size=BATCH_SIZE,
                progress=False,
            )
            self.board.phase = "close"
        self.board.phase = "end"
        return True

    def compare(self, at_least):
        """Note what is wrong with the store's contents; return the ids, None if it won't open."""

        def look():
            with self.opened(self.path, self.url) as source:
                return contents(source)

        result = result_of(look)
        if result is None:
            self.problem("unexpected: the store could not be opened and read")
            return None
        found = set(result[0])
        for wrong in result[1]:
            self.problem(wrong)
        if not at_least <= found:
            self.problem(f"lost: {len(at_least - found)} documents that had been stored")
        if not found <= self.offered:
            self.problem(f"unexpected: {len(found - self.offered)} documents from nowhere")
        self.held = found
        return found

    def problem(self, what):
        self.tally.problems.append(f"round {self.number} ({self.board.phase}): {what}")


@contextlib.contextmanager
def rest_server():
    """Give the URL of a server over Qdrant's local mode, in a process of its own."""
    reading, writing = os.pipe()
    waiting, ending = os.pipe()

    def serve():
        from qdrant_client import QdrantClient

        from tests.sources.qdrant_rest import serving

        os.close(ending)
        with serving(QdrantClient(":memory:")) as server:
            os.write(writing, server.url.encode())
            os.read(waiting, 1)  # until the parent lets go, or dies

    child = fork(serve)
    url = os.read(reading, 1000).decode()
    try:
        yield url
    finally:
        for end in (reading, writing, waiting, ending):
            os.close(end)
        os.waitpid(child, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=STORES, required=True)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[2]))  # for tests.sources
    server = rest_server() if arguments.store == "qdrant-rest" else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, server as url:
        campaign = Campaign(arguments.store, Path(folder), arguments.seed, url)
        tally = campaign.run(arguments.kills, arguments.seconds)
    sys.stdout.write(f"seed {arguments.seed}\n{tally.table(arguments.store)}\n")
    return 1 if tally.problems or tally.opened < tally.kills else 0


if __name__ == "__main__":
    sys.exit(main())
