"""How many chunks a second does ONNX Runtime embed, beside sentence-transformers?

    OMP_NUM_THREADS=2 python -m benchmarks.embedding --data FOLDER [--no-recall] [--json FILE]

FastAPI's pages (FOLDER/demo/pages.jsonl.gz) in chunks of at most 128 and 256 tokens, as `sift
index` cuts them, a random choice of them. All embed the same chunks in turn; the ratio of their
medians counts, since other work meets all alike. sentence-transformers takes its own 32 at a time,
and once 8, which is faster. `sift index` embeds in eight bits; what that costs in recall is
measured behind it, which embeds all passages of five sets twice: twenty minutes the first time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.bars import load_bars
from benchmarks.embedding_recall import measure_recall
from benchmarks.records import write_record
from benchmarks.report import Report
from sift_core.cli.index import chunker_for
from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has the folder demo")
    parser.add_argument("--no-recall", action="store_true", help="measure speed alone")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    report = Report(bar_numbers=load_bars("embedding"))
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
            row = {"case": f"{n_tokens} tokens", "method": name}
            report.rows.append({**row, "chunks_per_s": round(N_CHUNKS / seconds, 1)})
            print(f"  {N_CHUNKS / seconds:7.1f} chunks a second  {name}")
        apart = float(np.abs(vectors["ONNX Runtime"] - vectors["sentence-transformers"]).max())
        report.judge(f"{n_tokens} tokens, largest difference of a number", apart, "apart", "lower")
        cosines = (vectors["ONNX Runtime, eight bits"] * vectors["ONNX Runtime"]).sum(axis=1)
        print(
            f"  eight bits: cosine {cosines.mean():.4f} in the mean, {cosines.min():.4f} at least"
        )
        for name in ("ONNX Runtime", "ONNX Runtime, eight bits"):
            ratio = medians["sentence-transformers"] / medians[name]
            print(f"  {ratio:.2f} times the chunks a second: {name}")
        report.judge(f"{n_tokens} tokens, `sift index`, times the chunks a second", ratio, "times")
    if not arguments.no_recall:
        measure_recall(arguments.data, report)
    if arguments.json is not None:
        write_record(arguments.json, rows=report.rows, bars=report.bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
