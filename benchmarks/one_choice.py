"""What a choice costs on three surfaces, against the commit before they shared one.

    git worktree add BEFORE COMMIT
    python -m benchmarks.one_choice --before BEFORE [--json benchmarks/results/one_choice.json]

A reranking of 200 LlamaIndex nodes, one of 200 LangChain documents, and one `/v1/rerank` of 50
documents over HTTP. Each tree has one process. Rounds alternate between the two, and a round is the
median of many calls. Vectors are at hand, so that no embedder is timed. The ratio is that of the
medians over all rounds; its range is that of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.records import write_record

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ("llama-index-postprocessor-sift", "langchain-sift")
CASES = {
    "LlamaIndex, 200 nodes": 100,
    "LangChain, 200 documents": 100,
    "POST /v1/rerank, 50 documents": 60,
}
WORKER = r"""
import logging, statistics, sys, threading, time
import httpx, numpy as np, uvicorn
import sift_core
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_sift import SIFTCompressor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.postprocessor.sift import SIFTReranker, nodes
from sift_core.service import create_app
from sift_core.testing import HashingEmbedder

assert all(one.__file__.startswith(sys.argv[1]) for one in (sift_core, nodes))
logging.disable(logging.WARNING)
sift_core.load_compiled()
rows = np.random.default_rng(0).standard_normal((201, 384)).astype(np.float32) + 0.5
texts = [f"chunk {i} says something of its own, at some length, for a reader" for i in range(200)]

def llama_index():
    found = [
        NodeWithScore(node=TextNode(id_=str(i), text=text, embedding=rows[i].tolist()), score=0.5)
        for i, text in enumerate(texts)
    ]
    query = QueryBundle("question", embedding=rows[200].tolist())
    reranker = SIFTReranker(top_n=10)
    return lambda: reranker.postprocess_nodes(found, query)

class Fixed(Embeddings):
    def embed_documents(self, texts):
        return rows[: len(texts)].tolist()

    def embed_query(self, text):
        return rows[200].tolist()

def langchain():
    store = InMemoryVectorStore(Fixed())
    store.add_documents([Document(text, metadata={"n": i}) for i, text in enumerate(texts)])
    found = store.similarity_search("question", k=200)
    compressor = SIFTCompressor(vectorstore=store, top_n=10)
    return lambda: compressor.compress_documents(found, "question")

def rerank():
    config = uvicorn.Config(create_app(embedder=HashingEmbedder(384)), port=0, log_level="error")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}")
    body = {"query": "question", "documents": texts[:50], "top_n": 10}
    return lambda: client.post("/v1/rerank", json=body).raise_for_status()

calls = dict(zip(%r, (llama_index(), langchain(), rerank())))
for line in sys.stdin:
    name, n = line.rsplit("|", 1)
    took = []
    for _ in range(int(n)):
        begin = time.perf_counter()
        calls[name]()
        took.append(time.perf_counter() - begin)
    print(1000 * statistics.median(took), flush=True)
""" % (list(CASES),)  # noqa: UP031  # the worker's own braces


class Worker:
    """A process over one tree that times calls."""

    def __init__(self, tree: Path) -> None:
        paths = [tree, *(tree / "integrations" / plugin for plugin in PLUGINS)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tree)],
            cwd=tree,  # Python looks there first
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def median_ms(self, case: str) -> float:
        """Return the median of a round of calls in milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{case}|{CASES[case]}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="checkout of the commit before")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    before, now = Worker(arguments.before.resolve()), Worker(ROOT)
    rows = []
    for case in CASES:
        for one in (before, now):
            one.median_ms(case)  # not counted
        pairs = []
        for i in range(arguments.rounds):
            order = (before, now) if i % 2 else (now, before)
            took = {one: one.median_ms(case) for one in order}
            pairs.append((took[before], took[now]))
        old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(b / a for a, b in pairs)
        row = {"case": case, "before_ms": round(old, 3), "now_ms": round(new, 3)}
        row |= {"ratio": round(new / old, 3), "least": round(ratios[0], 3)}
        row["most"] = round(ratios[-1], 3)
        rows.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=["numpy", "llama-index-core"])


if __name__ == "__main__":
    main()
