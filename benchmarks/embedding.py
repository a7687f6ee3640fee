"""How many chunks a second does ONNX Runtime embed, beside sentence-transformers?

    OMP_NUM_THREADS=2 python -m benchmarks.embedding --data FOLDER [--json FILE]

FastAPI's pages (FOLDER/demo/pages.jsonl.gz) in chunks of at most 128 and 256 tokens, as `sift
index` cuts them, a random choice of them. All embed the same chunks in turn; the ratio of their
medians counts, since other work meets all alike. sentence-transformers takes its own 32 at a time,
and once 8, which is faster. `sift index` embeds in eight bits where that saves a third of the
time. The tag `evidence-2026-11b` also measures what that costs in recall.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.options import options
from benchmarks.report import Report
from sift_core.documents.chunk_length import chunker_for
from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder
from sift_core.processor import n_threads
from sift_core.protocols import Embedder

PACKAGES = ["numpy", "onnxruntime", "sentence-transformers", "torch", "transformers"]
N_CHUNKS, ROUNDS = 128, 7


def chunks_of(data: Path, n_tokens: int, embedder: OnnxEmbedder) -> list[str]:
    """Return chunks of the pages, in random order."""
    with gzip.open(data / "demo/pages.jsonl.gz", "rt", encoding="utf-8") as lines:
        pages = [json.loads(line)["text"] for line in lines]
    chunker = chunker_for(embedder, n_tokens)
    generator = random.Random(0)
    generator.shuffle(pages)
    chunks = [
        chunk.text
        for page in pages[:60]
        for chunk in chunker.split(page, format="markdown", document_id="page")
    ]
    return generator.sample(chunks, N_CHUNKS)


def main() -> None:
    arguments = options(__doc__, data=True).parse_args()
    torch.set_num_threads(n_threads())
    report = Report(section="embedding")
    ours = OnnxEmbedder()
    embedders: dict[str, Embedder] = {
        "ONNX Runtime": ours,
        "ONNX Runtime, eight bits": OnnxEmbedder(precision="int8"),
        "sentence-transformers": SentenceTransformerEmbedder(device="cpu", batch_size=32),
        "sentence-transformers, 8 at a time": SentenceTransformerEmbedder(
            device="cpu", batch_size=8
        ),
    }
    for n_tokens in (128, 256):
        texts = chunks_of(arguments.data, n_tokens, ours)
        mean_tokens = statistics.fmean(map(ours.count_tokens, texts))
        report.heading(f"chunks of at most {n_tokens} tokens, {mean_tokens:.0f} in the mean")
        taken: dict[str, list[float]] = {name: [] for name in embedders}
        vectors = {}
        for _ in range(ROUNDS):
            for name, embedder in embedders.items():
                begin = time.perf_counter()
                vectors[name] = embedder.embed_documents(texts)
                taken[name].append(time.perf_counter() - begin)
        medians = {name: statistics.median(found) for name, found in taken.items()}
        for name, seconds in medians.items():
            report.add(
                case=f"{n_tokens} tokens",
                method=name,
                chunks_per_s=round(N_CHUNKS / seconds, 1),
                tokens_per_s=round(N_CHUNKS * mean_tokens / seconds),
            )
        apart = float(np.abs(vectors["ONNX Runtime"] - vectors["sentence-transformers"]).max())
        report.judge(f"{n_tokens} tokens, largest difference of a number", apart, "apart", "lower")
        cosines = (vectors["ONNX Runtime, eight bits"] * vectors["ONNX Runtime"]).sum(axis=1)
        print(f"  eight bits: cosine {cosines.mean():.4f}, {cosines.min():.4f} at least")
        ratio = medians["sentence-transformers"] / medians["ONNX Runtime, eight bits"]
        report.judge(f"{n_tokens} tokens, `sift index`, times the chunks a second", ratio, "times")
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
