import numpy as np
import pytest

from benchmarks.rivals import vendi
from benchmarks.sprig import NameGraph, fuse, names_in
from benchmarks.words_in_choice import TUNED, without_tuning
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


def test_vendi_without_diversity_takes_the_most_relevant():
    embeddings = np.eye(4, dtype=np.float32)
    similarities = np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32)
    pool = Pool(query=embeddings[0], embeddings=embeddings, similarities=similarities, rows=None)
    assert vendi(pool, 9, share=0.0).tolist() == [1, 3, 2, 0]


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


def passage(title, text):
    return Passage(passage_id=title, title=title, text=text)


PASSAGES = [
    passage("Ada Quill", "Ada Quill married Boris Venn in Oslo."),
    passage("Boris Venn", "He was born in Tarnow."),
    passage("Carl Wood", "Carl Wood lived in Oslo."),
    passage("Dora Zell", "Dora Zell lived in Oslo."),
]


def ranked(pruned):
    graph = NameGraph(PASSAGES)
    return graph.ranked(
        "Where is the husband of Ada Quill from?", [], 4, restart=0.15, pruned=pruned
    )


def test_a_walk_reaches_what_a_named_passage_names():
    assert ranked(1.0)[:2] == [0, 1]
    assert set(ranked(1.0)) == {0, 1, 2, 3}


def test_no_walk_leads_over_a_pruned_hub():
    # Three of four passages name Oslo, two name Boris Venn.
    assert ranked(0.5) == [0, 1]


def test_every_setting_chooses_alone_and_fused():
    chosen = NameGraph(PASSAGES).choose("Ada Quill", [3, 0, 2], [0, 1], 2)
    assert len(chosen) == 2 * 18
    assert {len(rows) for rows in chosen.values()} == {2}


def test_lists_are_fused_by_reciprocal_rank():
    # 1/61 + 1/62 for row 0, 1/62 + 1/61 for row 1, 1/63 for row 2: ties by the first list.
    assert fuse([[0, 1, 2], [1, 0]]) == [0, 1, 2]


def test_one_setting_of_each_rival_stays():
    def values(recall):
        return {key: [recall] for key in ("recall@5", "recall@10", "all_gold@10")}

    names = [f"{family} {i}" for family in TUNED for i in (1, 2)]
    first = {name: values(float(name.endswith("2"))) for name in names}
    kept = without_tuning(dict.fromkeys(["sift", *names], values(0.5)), first)
    assert list(kept) == ["sift", *(f"{family} 2" for family in TUNED)]
