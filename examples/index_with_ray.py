"""Index a large folder into a Qdrant server with workers of Ray: read, cut, embed, write.

    pip install '.[cli,demo,files]' 'ray[data]'
    python examples/index_with_ray.py docs --store 'qdrant:http://localhost:6333#docs' --workers 4
    sift search "How do I start?" --store 'qdrant:http://localhost:6333#docs'

The chunks are those of `sift index docs`, under the same ids, which are made of their content: a
batch that is written twice is stored once. So a worker may die at any moment, and Ray gives its
work to another; where the whole run dies the same command goes on, and embeds what is missing.
Nothing is deleted: `sift index docs --store ...` does that afterwards, and embeds nothing again.

On a cluster: `--ray auto`, the folder under the same path on every machine, and `--gpus 1` where
each embedder is to have a GPU. A server that wants a key finds it in QDRANT_API_KEY, which every
machine needs. Call it from one folder: names of files are relative to the current one.
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import ray
import ray.data
from qdrant_client import QdrantClient
from ray.exceptions import RayError

from sift_core import Document, Embedder, InvalidInputError, SiftError
from sift_core.cli.options import DEFAULT_EMBEDDER
from sift_core.cli.store_addresses import API_KEY_VARIABLE, StoreAddress
from sift_core.documents import Chunker, FoundFiles, find_files, read_found
from sift_core.documents.chunk_length import chunker_for
from sift_core.embedders.loading import load_embedder
from sift_core.sources import QdrantSource, content_id
from sift_core.testing import HashingEmbedder

FILES_A_TASK = 8  # few, so that all workers have something to do
CHUNKS_A_WRITE = 64  # what a worker that dies has embedded in vain at most


class Cut:
    """Reads files and cuts them into chunks as long as the embedder reads."""

    def __init__(self, embedder: str) -> None:
        model = embedder_of(embedder)
        self._chunker = chunker_for(model) if hasattr(model, "count_tokens") else Chunker()

    def __call__(self, batch: dict[str, Sequence[bytes]]) -> dict[str, list[bytes]]:
        """Return documents, and what could not be read."""
        files = tuple(pickle.loads(file) for file in batch["file"])
        reading = read_found(FoundFiles(files=files, skipped=()), self._chunker)
        # Whole: in columns all metadata would get the same keys, and so the chunks other ids.
        return {"read": [pickle.dumps(one) for one in (*reading.documents, *reading.skipped)]}


class EmbedAndWrite:
    """Embeds the chunks that are not stored yet, and writes them."""

    def __init__(self, embedder: str, store: str) -> None:
        self._embedder = embedder_of(embedder)
        self._client, self._source = opened(StoreAddress.parse(store), self._embedder)
        self._collection = StoreAddress.parse(store).collection

    def __call__(self, batch: dict[str, Sequence[bytes]]) -> dict[str, list[str]]:
        """Return of each chunk what was done with it, of each file that was left out why."""
        read = [pickle.loads(one) for one in batch["read"]]
        chunks = {content_id(one): one for one in read if isinstance(one, Document)}
        left_out = [one.reason.value for one in read if not isinstance(one, Document)]
        found = self._client.retrieve(self._collection, list(chunks), with_payload=False)
        for point in found:
            del chunks[str(point.id)]
        if chunks:
            vectors = self._embedder.embed_documents([one.text for one in chunks.values()])
            self._source.add(list(chunks), list(chunks.values()), vectors)
        return {"outcome": ["new"] * len(chunks) + ["stored"] * len(found) + left_out}


def embedder_of(name: str) -> Embedder:
    """Return the embedder of a name; "hashing" is one without a model, for a trial."""
    return HashingEmbedder() if name == "hashing" else load_embedder(name)


def opened(address: StoreAddress, embedder: Embedder) -> tuple[QdrantClient, QdrantSource]:
    """Return a client of the store's server, and its collection as one that can be written."""
    key = os.environ.get(API_KEY_VARIABLE) or None
    client = QdrantClient(url=address.location, api_key=key, timeout=20, check_compatibility=False)
    return client, QdrantSource(client, address.collection, embedder_name=embedder.name)


def outcomes(found: FoundFiles, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield what became of each chunk, and why files were left out, as the workers tell it."""
    read = (
        ray.data.from_items(
            [{"file": pickle.dumps(file)} for file in found.files],
            override_num_blocks=-(-len(found.files) // FILES_A_TASK),
        )
        .map_batches(
            Cut,
            fn_constructor_args=[arguments.embedder],
            batch_size=FILES_A_TASK,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=arguments.workers),
        )
        .map_batches(
            EmbedAndWrite,
            fn_constructor_args=[arguments.embedder, arguments.store],
            batch_size=CHUNKS_A_WRITE,
            compute=ray.data.ActorPoolStrategy(size=arguments.workers),
            num_gpus=arguments.gpus,
        )
    )
    for row in read.iter_rows():
        yield row["outcome"]


def index(arguments: argparse.Namespace) -> str:
    """Index, and return what was done."""
    address = StoreAddress.parse(arguments.store)
    if not address.is_server:
        raise InvalidInputError(
            f"workers are processes, and {address} is for one alone; start a Qdrant server and "
            f"pass --store 'qdrant:http://HOST:6333#NAME', or index with `sift index`"
        )
    found = find_files(arguments.paths)
    if not found.files:
        raise InvalidInputError(f"there is nothing to read in {', '.join(arguments.paths)}")
    embedder = embedder_of(arguments.embedder)
    client, source = opened(address, embedder)
    # Here, so that what is wrong with the server is said before a worker starts.
    source.prepare(embedder_name=embedder.name, dimension=len(embedder.embed_query("dimension")))
    is_local = arguments.ray == "local"  # then a processor stands for a worker of either kind
    more = {"num_cpus": 2 * arguments.workers, "include_dashboard": False} if is_local else {}
    ray.init(arguments.ray, logging_level=logging.ERROR, **more)
    if not sys.stderr.isatty():
        ray.data.DataContext.get_current().enable_progress_bars = False
    told = Counter(outcomes(found, arguments))
    told.update(path.reason.value for path in found.skipped)
    n_new, n_stored = told.pop("new", 0), told.pop("stored", 0)
    n_points = client.count(address.collection).count
    left_out = "".join(f"; left out: {n} {reason}" for reason, n in sorted(told.items()))
    # What a worker wrote that died before it could say so counts as stored before.
    return (
        f"{n_new + n_stored:,} chunks of {len(found.files):,} files, {n_stored:,} of them stored "
        f"before; {address} holds {n_points:,}{left_out}"
    )


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("paths", nargs="+", help="files and folders")
    words.add_argument("--store", required=True, help="qdrant:http://HOST:6333#NAME")
    words.add_argument(
        "--embedder", default=DEFAULT_EMBEDDER, help="sentence-transformers model; or hashing"
    )
    words.add_argument("--workers", type=int, default=2, help="of each kind: cutting, embedding")
    words.add_argument("--gpus", type=float, default=0, help="of each embedding worker")
    words.add_argument("--ray", default="local", help="address, as `ray.init` takes it")
    try:
        print(index(words.parse_args()))
    except SiftError as error:
        sys.exit(f"{error}")
    except RayError as error:
        cause = getattr(error, "cause", error)  # else it has the worker's traceback
        sys.exit(f"indexing stopped; the same command goes on from there. The worker: {cause}")


if __name__ == "__main__":
    main()
