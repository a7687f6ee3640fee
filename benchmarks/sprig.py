"""SPRIG's way to retrieve: personalised PageRank over a graph of all passages and their names.

Names are found without a model: runs of capitalised words and numbers, and titles. A passage and a
name are joined by tf(name) · (log((n + 1) / df) + 1), and names of many passages count less. Seeds
of a question are its names and the first passages by rank fusion of embeddings and BM25. The
passages come by their PageRank, or by rank fusion of that with embeddings and BM25.

References:
    Wang (2026), Democratizing GraphRAG: Linear, CPU-Only Graph Retrieval for Multi-Hop QA,
    arXiv:2602.23372.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy import sparse

from sift_core.evaluation.data import Passage
from sift_core.selection.question_parts import name_runs
from sift_core.selection.word_counts import words_of
from sift_core.sources.multi_query import RANK_SHIFT

Name = tuple[str, ...]

RESTARTS = (0.05, 0.15, 0.4)  # probability of going back to a seed at each step
PRUNED = (1.0, 0.01, 0.002)  # names of a larger share of the passages are left out
HUB_POWER = 0.5  # a name of df passages counts df to the power of -0.5, as in the paper
N_STEPS = 20  # of the power iteration; the paper makes 5
N_SEEDS = (3, 5)  # passages, weighted by 1 / rank; the paper has either, by corpus
LEAST_SMALL = 3  # passages that write a word in small letters, so that it is no name
_SMALL = re.compile(r"\b[^\W\d_A-Z]\w*")
_BRACKETS = re.compile(r"\s*\(.*\)$")  # which tell two titles apart


def names_in(text: str, small: frozenset[str] = frozenset()) -> list[Name]:
    """Return the names in a text, with repeats: whole runs, and their parts around short words.

    Args:
        text: Any text.
        small: Words that are no name where a capital may come from the beginning of a sentence.
    """
    found: list[Name] = []
    for run in name_runs(text):
        first, *others = ([w for w in one if len(w) > 1 or w.isdigit()] for one in run.segments)
        certain = first
        while run.n_doubtful and certain and certain[0] in small:
            certain = certain[1:]
        wholes = [first, certain] if len(first) > 1 else [certain]
        names = [list(dict.fromkeys(sum(others, one))) for one in wholes]
        found += dict.fromkeys(map(tuple, [*names, certain, *others]))
    return [name for name in found if any(len(word) > 1 for word in name)]


class NameGraph:
    """The names of all passages; built once, in 1 to 3 ms a passage.

    Args:
        passages: The n passages of a corpus.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        n_small = Counter(w for one in passages for w in set(_SMALL.findall(one.text)))
        self._small = frozenset(word for word, n in n_small.items() if n >= LEAST_SMALL)
        counts = [Counter(self._names_of(one)) for one in passages]
        self._columns: dict[Name, int] = {}
        for name in (name for counted in counts for name in counted):
            self._columns.setdefault(name, len(self._columns))
        rows = np.repeat(np.arange(len(passages)), [len(counted) for counted in counts])
        columns = [self._columns[name] for counted in counts for name in counted]
        values = [float(n) for counted in counts for n in counted.values()]
        shape = (len(passages), max(len(self._columns), 1))
        tf = sparse.csr_array((values, (rows, columns)), shape=shape)
        self._df = np.bincount(columns, minlength=shape[1])
        rarity = np.log((len(passages) + 1) / np.maximum(self._df, 1)) + 1
        self._links = tf.multiply(rarity * np.maximum(self._df, 1) ** -HUB_POWER).tocsr()
        self._steps: dict[float, tuple[sparse.csr_array, sparse.csr_array]] = {}

    def _names_of(self, passage: Passage) -> list[Name]:
        title = _BRACKETS.sub("", passage.title)
        of_title = names_in(title) or [tuple(words_of(title))]
        return [*of_title, *names_in(passage.text, self._small)]

    def _walked(self, pruned: float) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return steps from passages to names and back, transposed, each column summing to 1."""
        if pruned not in self._steps:
            kept = self._df <= max(pruned * self._links.shape[0], 1)
            links = self._links.multiply(kept.astype(float)).tocsr()
            self._steps[pruned] = (_shares(links).T.tocsr(), _shares(links.T.tocsr()).T.tocsr())
        return self._steps[pruned]

    def ranked(
        self, question: str, seeds: Sequence[int], n: int, *, restart: float, pruned: float
    ) -> list[int]:
        """Return the n passages of the highest PageRank, those without any left out.

        The question's names and the seeds, passages by descending weight, have one half each.
        """
        to_names, to_passages = self._walked(pruned)
        own, of_names = np.zeros(to_passages.shape[0]), np.zeros(to_names.shape[0])
        own[list(seeds)] = 1 / np.arange(1, len(seeds) + 1)
        for name in set(names_in(question, self._small)) & self._columns.keys():
            column = self._columns[name]
            if self._df[column] <= max(pruned * len(own), 1):
                of_names[column] = self._df[column] ** -HUB_POWER
        own /= max(float(own.sum()), 1e-12)
        of_names /= max(float(of_names.sum()), 1e-12)
        passages, names = own, of_names
        for _ in range(N_STEPS):
            passages, names = (
                restart * own + (1 - restart) * (to_passages @ names),
                restart * of_names + (1 - restart) * (to_names @ passages),
            )
        best = np.argsort(-passages, kind="stable")[:n]
        return best[passages[best] > 0].tolist()

    def choose(
        self, question: str, dense: Sequence[int], by_words: Sequence[int], n: int
    ) -> dict[str, list[int]]:
        """Return n passages by each setting, from the rankings by embeddings and by BM25."""
        best, chosen = fuse([dense, by_words]), {}
        for restart, pruned, n_seeds in product(RESTARTS, PRUNED, N_SEEDS):
            scales = {"restart": restart, "pruned": pruned}
            walked = self.ranked(question, best[:n_seeds], len(dense), **scales)
            name = f"sprig {restart}, hubs {pruned}, seeds {n_seeds}"
            chosen[name] = walked[:n]
            chosen[f"{name}, fused"] = fuse([walked, dense, by_words])[:n]
        return chosen


def fuse(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Return all rows by the sum of 1 / (60 + rank) over the rankings that have them."""
    scores: Counter[int] = Counter()
    for ranking in rankings:
        for rank, row in enumerate(ranking, 1):
            scores[row] += 1 / (RANK_SHIFT + rank)
    return sorted(scores, key=lambda row: -scores[row])


def _shares(links: sparse.csr_array) -> sparse.csr_array:
    """Return rows divided by their sums."""
    sums = np.asarray(links.sum(axis=1)).ravel()
    return (sparse.diags_array(1 / np.where(sums > 0, sums, 1.0)) @ links).tocsr()
