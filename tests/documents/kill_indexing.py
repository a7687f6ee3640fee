"""A process that indexes documents and says what it is doing, so that it can be killed at that.

    python -m tests.documents.kill_indexing STORE FOLDER URL ROUND

Prints a line before and after every call of the store; after those of `flush`, the content ids
of all that the store has promised to keep.
"""

import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sift_core.documents.indexing import index_documents
from sift_core.sources.content_ids import content_id
from sift_core.testing import HashingEmbedder
from sift_core.types import Document

N_DOCUMENTS, N_NEW_A_ROUND, BATCH_SIZE = 120, 40, 16
EMBEDDER = HashingEmbedder(dimension=16)


@contextmanager
def faiss_folder(path, url):
    import faiss

    from sift_core.sources import FaissSource

    yield FaissSource.open(path, faiss.IndexFlatIP(16))


@contextmanager
def qdrant(path, url):
    """Open a collection of a server, or of a folder where there is no address of one."""
    from qdrant_client import QdrantClient

    from sift_core.sources import QdrantSource

    server = {"url": url, "timeout": 300, "check_compatibility": False}
    with closing(QdrantClient(**server if url else {"path": str(path)})) as client:
        yield QdrantSource(client, "documents")


STORES = {"faiss": faiss_folder, "qdrant-folder": qdrant, "qdrant-rest": qdrant}


@contextmanager
def address_for(store):
    """Serve a new Qdrant for the store that needs one; skip a test whose store is not installed."""
    qdrant_client = pytest.importorskip("faiss" if store == "faiss" else "qdrant_client")
    if store != "qdrant-rest":
        yield ""
        return
    from tests.sources.qdrant_rest import serving

    with closing(qdrant_client.QdrantClient(":memory:")) as local, serving(local) as server:
        yield server.url


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


def tell(*words):
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


class Told:
    """A DocumentIndex that prints what is being done to it."""

    def __init__(self, source):
        self._source = source
        self._added = []

    def __getattr__(self, name):
        value = getattr(self._source, name)
        if not callable(value):
            return value

        def call(*arguments, **options):
            tell(name)
            result = value(*arguments, **options)
            if name == "add":
                self._added += arguments[0]
            tell("did", name, *(self._added if name in ("flush", "complete") else ()))
            return result

        return call


def index(store, folder, url, number):
    with STORES[store](Path(folder), url) as source:
        tell("opened")
        wanted = documents_of(number)
        index_documents(Told(source), wanted, EMBEDDER, batch_size=BATCH_SIZE, progress=False)
    tell("end", *(content_id(document) for document in wanted))


if __name__ == "__main__":
    store, folder, url, number = sys.argv[1:]
    index(store, folder, url, int(number))
