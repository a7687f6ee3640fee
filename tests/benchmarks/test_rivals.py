import numpy as np
import pytest

from benchmarks.rivals import vendi
from benchmarks.sprig import NameGraph, names_in
from sift_core.evaluation.data import Passage
from sift_core.evaluation.search import Pool


def vendi_score(rows):
    eigenvalues = np.linalg.eigvalsh(rows @ rows.T / len(rows))
    shares = eigenvalues[eigenvalues > 1e-12]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def slow_vendi(pool, n, share):
    """Score every set of the chosen and one more, from the definition."""
    relevance = pool.similarities.astype(np.float64)
    relevance = (relevance - relevance.min()) / np.ptp(relevance)
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < n:
        scores = np.full(len(relevance), -np.inf)
        for row in set(range(len(relevance))) - set(chosen):
            rows = [*chosen, row]
            scaled = (vendi_score(pool.embeddings[rows].astype(np.float64)) - 1) / (len(rows) - 1)
            scores[row] = (1 - share) * relevance[rows].mean() + share * scaled
        chosen.append(int(np.argmax(scores)))
    return chosen


@pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
def test_vendi_chooses_by_the_papers_score(share):
    generator = np.random.default_rng(0)
    embeddings = generator.standard_normal((60, 8)) + 0.5
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    embeddings = embeddings.astype(np.float32)
    query = embeddings.mean(axis=0)
    similarities = embeddings @ query
    pool = Pool(query=query, embeddings=embeddings, similarities=similarities, rows=np.arange(60))
    assert vendi(pool, 6, share=share).tolist() == slow_vendi(pool, 6, share)


def test_names_are_runs_of_capitals_and_their_parts():
    small = frozenset({"who", "port"})
    assert names_in("Who sang Beyonce's first single?", small) == [("beyonce",)]
    assert names_in("the Andaman and Nicobar Islands") == [
        ("andaman", "nicobar", "islands"),
        ("andaman",),
        ("nicobar", "islands"),
    ]
    # A capital at the beginning of a sentence may be no name, so both are taken.
    assert names_in("Port Blair grew.", small) == [("port", "blair"), ("blair",)]


TEXTS = {
    "Ada Quill": "Ada Quill married Boris Venn in Oslo.",
    "Boris Venn": "He was born in Tarnow.",
    "Carl Wood": "Carl Wood lived in Oslo.",
    "Dora Zell": "Dora Zell lived in Oslo.",
}


def test_a_walk_reaches_what_a_named_passage_names_but_not_over_a_pruned_hub():
    passages = [Passage(passage_id=title, title=title, text=TEXTS[title]) for title in TEXTS]
    graph = NameGraph(passages)

    def ranked(pruned):
        text = "Where is the husband of Ada Quill from?"
        return graph.ranked(text, [], 4, restart=0.15, pruned=pruned)

    assert ranked(1.0)[:2] == [0, 1]
    assert set(ranked(1.0)) == {0, 1, 2, 3}
    assert ranked(0.5) == [0, 1]  # three of four passages name Oslo, two name Boris Venn
