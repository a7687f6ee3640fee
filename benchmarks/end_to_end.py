"""Where does the time go from a question to the last token of its answer?

    python -m benchmarks.end_to_end --data FOLDER [--rows N] [--reads N] [--learns N] [--json FILE]

Questions of hotpotqa over 100,000 chunks: its passages, and made-up ones, each half of two. Every
mode and effort of an engine over Faiss; beside them what
does without us: LlamaIndex's own query engine with the ten nearest chunks, and a script of PEFT
and transformers that learns from the nearest. All with SmolLM2-135M in the CPU's number type,
MiniLM by ONNX Runtime, one thread, and exactly 32 new tokens. A stage's time is a median over the
questions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
import torch
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback

from benchmarks.answering_ways import (
    N_NEW,
    Ask,
    Stages,
    engine_over,
    ours,
    peft_script,
    plain_answer,
)
from benchmarks.answers_data import smaller
from benchmarks.embedding_cache import project_cache
from benchmarks.integrations_engines import PreparedQueries, faiss_index
from benchmarks.options import options
from benchmarks.process_memory import peak_mib, reset_peak, resident_mib, return_freed_memory
from benchmarks.report import Report
from sift_core import Document, Embedder, load_compiled
from sift_core.answering import LanguageModel, learn_collection
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.cli.options import DEFAULT_EMBEDDER
from sift_core.embedders.loading import load_embedder
from sift_core.evaluation.data import read_retrieval_set
from sift_core.sources import FaissSource
from sift_core.types import FloatArray

PACKAGES = [
    "numpy",
    "faiss-cpu",
    "llama-index-core",
    "onnxruntime",
    "torch",
    "transformers",
    "peft",
    "sift-rerank",
]
SET = "hotpotqa"
N_READ = 10
STAGES = ("embed", "fetch", "select", "fine_tune", "read", "generate")


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunks:
    """What is searched: n unit vectors, shape (n, d) float32, their texts, and questions."""

    vectors: FloatArray
    texts: Sequence[str]
    questions: Sequence[str]


def chunks(folder: Path, n: int, n_questions: int) -> Chunks:
    """Return the set's passages, and as many made of halves of two as are missing to n."""
    corpus, asked = (
        folder / "corpus" / SET / "corpus.jsonl.gz",
        folder / "dev" / SET / "queries.jsonl.gz",
    )
    known = smaller(read_retrieval_set(corpus, asked, name=SET))
    generator = np.random.default_rng(0)
    drawn = generator.permutation(len(known.passages))[:n]
    passages = [known.passages[row].to_embed for row in drawn]
    vectors = np.asarray(project_cache().embed(passages, "passages"), dtype=np.float32)
    one, other = generator.integers(len(passages), size=(2, n - len(passages)))
    halves = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in passages]
    made = [halves[i][0] + halves[j][1] for i, j in zip(one, other, strict=True)]
    rows = vectors[one] + vectors[other]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Chunks(
        vectors=np.concatenate([vectors, rows]),
        texts=[*passages, *made],
        questions=[one.text for one in known.questions[:n_questions]],
    )


def measure(report: Report, arguments: argparse.Namespace) -> None:
    """Add a row for every way to answer, and judge what selection takes of it."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    model = LanguageModel.from_pretrained(SMOLLM2, device="cpu")
    n_questions = 1 + max(arguments.reads, arguments.learns)
    searched = chunks(arguments.data, arguments.rows, n_questions)
    embedding = load_embedder(DEFAULT_EMBEDDER)
    runs: list[tuple[str, int, Ask]] = []
    with TemporaryDirectory() as folder:
        index = faiss.IndexFlatIP(searched.vectors.shape[1])
        index.add(searched.vectors)
        documents = [Document(document_id=str(i), text=t) for i, t in enumerate(searched.texts)]
        source = FaissSource(index, documents)
        engine = engine_over(source, model, embedding)
        sample = source.sample(1000, np.random.default_rng(0))
        adapter = learn_collection(model, sample, folder, n_chunks=64)
        merging = engine_over(source, model, embedding, adapter)
        runs += [
            ("base", arguments.reads, ours(engine, mode="base")),
            ("context", arguments.reads, ours(engine, mode="context")),
            ("learned", arguments.reads, ours(merging, mode="learned")),
        ]
        for mode in ("fine_tune", "both"):
            for effort in ("quick", "balanced", "thorough"):
                ask = ours(engine, mode=mode, effort=effort)
                runs.append((f"{mode}, {effort}", arguments.learns, ask))

        def nearest(vector: FloatArray, n: int) -> list[str]:
            return [searched.texts[row] for row in index.search(vector[np.newaxis], n)[1][0]]

        for n in (12, 50):
            peft = peft_script(nearest, model, embedding, n)
            runs.append((f"PEFT script, {n} chunks", arguments.learns, peft))
        llama = llama_index_engine(searched, model, embedding)
        runs.append(("LlamaIndex query engine", arguments.reads, llama))
        report.heading(f"From question to last token over {arguments.rows:,} chunks")
        for name, n, ask in runs:
            add_row(report, name, ask, searched.questions[: n + 1])
    shares = [row["select_share"] for row in report.rows if "select_s" in row]
    report.judge("the largest share that selection takes", max(shares), "selection_share", "lower")


def add_row(report: Report, name: str, ask: Ask, questions: Sequence[str]) -> None:
    """Ask the questions one after another; the first is not counted."""
    ask(questions[0])
    return_freed_memory()
    before, has_peak = resident_mib(), reset_peak()
    found = [ask(question) for question in questions[1:]]
    totals = np.array([sum(stages.values()) for stages in found])
    row: dict[str, Any] = {
        "case": name,
        "n": len(found),
        "p50_s": round(float(np.median(totals)), 4),
        "p99_s": round(float(np.percentile(totals, 99)), 4),
    }
    if has_peak:
        row["peak_over_before_mib"] = round(peak_mib() - before)
    for stage in STAGES:
        if stage in found[0]:
            seconds = np.array([stages[stage] for stages in found])
            row[f"{stage}_s"] = round(float(np.median(seconds)), 5)
    if "select" in found[0]:
        taken = [stages["select"] / sum(stages.values()) for stages in found]
        row["select_share"] = round(float(np.median(taken)), 5)
    report.add(**row)


def llama_index_engine(searched: Chunks, model: LanguageModel, embedding: Embedder) -> Ask:
    """Return a call of LlamaIndex's query engine over the ten nearest, with the same models."""
    index = faiss_index(searched.vectors, text=searched.texts.__getitem__)
    asked = {one: list(map(float, embedding.embed_query(one))) for one in searched.questions}
    engine = index.as_query_engine(
        llm=PlainLLM(model), similarity_top_k=N_READ, embed_model=PreparedQueries(asked, embedding)
    )

    def ask(question: str) -> Stages:
        begin = time.perf_counter()
        engine.query(question)
        return {"generate": time.perf_counter() - begin}

    return ask


class PlainLLM(CustomLLM):
    """transformers' `generate`, as LlamaIndex's query engines ask for it."""

    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self._model, self._tokenizer = model.model, model.tokenizer

    @property
    def metadata(self) -> LLMMetadata:
        window = self._model.config.max_position_embeddings
        return LLMMetadata(context_window=window, num_output=N_NEW, model_name="SmolLM2")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=plain_answer(self._model, self._tokenizer, prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        raise NotImplementedError("only whole answers are timed")


def main() -> None:
    parser = options(__doc__, data=True)
    parser.add_argument("--rows", type=int, default=100_000, help="chunks in each store")
    parser.add_argument("--reads", type=int, default=24, help="questions where nothing is learned")
    parser.add_argument("--learns", type=int, default=4, help="questions of the other modes")
    arguments = parser.parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(section="end_to_end")
    measure(report, arguments)
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
