import numpy as np
import pytest

from benchmarks.rivals import vendi
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
