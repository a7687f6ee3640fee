"""How many chunks a second does ONNX Runtime embed, beside sentence-transformers?

    OMP_NUM_THREADS=2 python -m benchmarks.embedding --data FOLDER [--no-recall] [--json FILE]

FastAPI's pages (FOLDER/demo/pages.jsonl.gz) in chunks of at most 128 and 256 tokens, as `sift
index` cuts them, a random choice of them. All embed the same chunks in turn; the ratio of their
medians counts, since other work meets all alike. sentence-transformers takes its own 32 at a time,
and once 8, which is faster. Each row has its share of the peak rate of matrix products. `sift
index` embeds in eight bits where that saves a third of the time. What it costs in recall is
measured last, which embeds all passages of five sets twice: twenty minutes the first time.
"""

from __future__ import annotations

import argparse
import gzip
import json
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
from sift_core.documents.chunk_length import chunker_for
from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder
from sift_core.processor import n_threads
from sift_core.protocols import Embedder

PACKAGES = ["numpy", "onnxruntime", "sentence-transformers", "torch", "transformers"]
N_CHUNKS, ROUNDS = 128, 7
# MiniLM's six layers: what attends and what follows it, each weight multiplied and added once.
WIDTH, INNER, N_LAYERS = 384, 1536, 6
GFLOP_A_TOKEN = 2 * N_LAYERS * (4 * WIDTH**2 + 2 * WIDTH * INNER) / 1e9


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


def peak_gflop_s() -> float:
    """Return the rate of PyTorch's products of the model's shape in float32, on 512 tokens."""
    tokens, weights = torch.randn(512, WIDTH), torch.randn(WIDTH, INNER)
    taken = []
    for _ in range(50):
        begin = time.perf_counter()
        torch.mm(tokens, weights)
        taken.append(time.perf_counter() - begin)
    return 2 * 512 * WIDTH * INNER / min(taken) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has the folder demo")
    parser.add_argument("--no-recall", action="store_true", help="measure speed alone")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    torch.set_num_threads(n_threads())
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
        peak = peak_gflop_s()
        for name, seconds in medians.items():
            tokens_per_s = N_CHUNKS * mean_tokens / seconds
            share = tokens_per_s * GFLOP_A_TOKEN / peak
            row = {
                "case": f"{n_tokens} tokens",
                "method": name,
                "chunks_per_s": round(N_CHUNKS / seconds, 1),
                "tokens_per_s": round(tokens_per_s),
                "share_of_peak": round(share, 2),
            }
            report.rows.append(row)
            print(
                f"  {row['chunks_per_s']:7.1f} chunks, {tokens_per_s:,.0f} tokens a second, "
                f"{share:.0%} of what products of {peak:.0f} GFLOP/s allow  {name}"
            )
        saved = 1 - medians["ONNX Runtime, eight bits"] / medians["ONNX Runtime"]
        print(f"  eight bits save {saved:.0%} of float32's time")
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
