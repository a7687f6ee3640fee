"""What is chosen of texts under every rule, as the command line chooses, for `choices.json`.

The pools are those of `selections`, with texts, documents, dates and places made from them.
All that is imported from the library is imported here once, so that a rename is mended in one line.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np

from sift_core import (
    CandidatePool,
    ChoiceOptions,
    ContextSelector,
    LazySIFTSelector,
    MMRSelector,
    NearestNeighborSelector,
    Query,
    SIFTSelector,
    choose,
    cosine_similarities,
)
from tests.golden import selections

WORDS = "harbour crane quay tide rope mast keel buoy ferry light storm chart anchor sail".split()
N_DOCUMENTS = 5
RULES = {
    "no rule": {},
    "tokens": {"max_tokens": 60},
    "documents": {"max_per_document": 2},
    "newest": {"newest": "date"},
    "half-life": {"newest": "date", "half_life_days": 30},
    "neighbors": {"merge_neighbors": True},
    "tokens, documents, neighbors": {
        "max_tokens": 90,
        "max_per_document": 3,
        "merge_neighbors": True,
    },
    "all": {
        "max_tokens": 80,
        "max_per_document": 2,
        "newest": "date",
        "half_life_days": 10,
        "merge_neighbors": True,
    },
}
# Every rule for the selector that can keep them all; the others, which can't, without any.
SELECTORS = {
    "context": ContextSelector(backend="numpy"),
    "sift": SIFTSelector(backend="numpy"),
    "lazy": LazySIFTSelector(),
    "mmr": MMRSelector(),
    "nearest": NearestNeighborSelector(),
}


def pool_of(number):
    """Return a question and its candidates, with another ranker's scores in every third pool."""
    made = selections.make_pool(number)
    n = len(made.candidates)
    documents, starts = _places(n)
    texts = [_text(number, row) for row in range(n)]
    pool = CandidatePool(
        document_ids=[f"c{row}" for row in range(n)],
        texts=texts,
        embeddings=made.candidates,
        similarities=cosine_similarities(made.query, made.candidates),
        metadata=[
            {
                "source": f"d{documents[row]}.md",
                "start": starts[row],
                "date": (date(2026, 1, 1) + timedelta(days=row * 7 % 50)).isoformat(),
            }
            for row in range(n)
        ],
        relevance=made.relevance if number % 3 == 0 else None,
    )
    also = [Query(text=f"part {i}", embedding=row) for i, row in enumerate(made.targets[1:])]
    query = Query(text="question", embedding=made.query, also=also if number % 5 == 4 else ())
    return query, pool, made.n_select


def _places(n):
    """Return the document of each row, and where it begins there: rows of one stand in a row."""
    documents = [row % N_DOCUMENTS for row in range(n)]
    return documents, [row // N_DOCUMENTS * LENGTH for row in range(n)]


LENGTH = 60  # characters of each text, which touches the next of its document


def _text(number, row):
    """Return a text of `LENGTH` characters; every seventh stands in the one before it."""
    generator = np.random.default_rng((number, row - (row % 7 == 6)))
    return " ".join(generator.choice(WORDS, 12).tolist())[:LENGTH].ljust(LENGTH, "x")


def chosen(number, selector, rules):
    """Return ids, why it ended, and the last pick's explanation in six digits."""
    query, pool, n_select = pool_of(number)
    if selector in ("mmr", "nearest"):  # they take one vector
        query = replace(query, also=())
    options = ChoiceOptions(n_select=n_select, selector=SELECTORS[selector], **RULES[rules])
    record = choose(pool, query, options).as_dict()
    picks = record["chunks"]
    explanation = [
        _short(picks[-1][name])
        for name in ("similarity", "score", "relevance", "redundancy", "gain", "variance")
    ]
    lengths = [len(pick["text"]) // LENGTH for pick in picks]
    line = [" ".join(pick["document_id"] for pick in picks), record["stop_reason"], explanation]
    return [*line, lengths] if max(lengths) > 1 else line


def _short(value):
    return None if value is None else float(f"{value:.6g}")


def cases():
    """Yield pool, selector and rule: each pool under one rule, every fourth by all selectors."""
    names = list(RULES)
    for number in range(selections.N_POOLS):
        yield number, "context", names[number % len(names)]
        if number % 4 == 1:
            for selector in list(SELECTORS)[1:]:
                yield number, selector, "no rule"


def record():
    """Return all lines of `choices.json`."""
    return {f"{one[0]} {one[1]}, {one[2]}": chosen(*one) for one in cases()}
