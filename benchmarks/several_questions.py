"""Two questions in one: one vector of the joined text, or a vector each?

    python -m benchmarks.several_questions --data FOLDER [--sets squad,musique] [--json FILE]
    python -m benchmarks.several_questions --data FOLDER --decompose 8

Random pairs of development questions; what answers either is wanted among the ten chosen. Passages
as they are, then each in four textual versions, of which any counts. The methods:

- `joined`: the vector of "A B", 200 candidates; nearest neighbours, MMR or the default choose.
- `mean`: the mean of the two vectors, likewise.
- `each`: nearest neighbours or MMR choose for each question by itself, reciprocal ranks add up.
- `two`: the default with two vectors among the candidates of both, 200 each.
- `three`: likewise, with the joined vector as the third.

`recall` is the mean over pairs of the share of gold passages among the ten; `both` the share of
pairs of which each question has one of its own there. Sets are those of `retrieval_tokens`.

`--decompose N` has the bundled language model split the joined text of N pairs a set, and compares
the default with the vectors of what it wrote (`decomposed`) with `joined` and `two` on these.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for small products; torch keeps its own

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dated_versions import smaller
from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.retrieval import PACKAGES, QuestionSet, read_set
from benchmarks.text_variants import textual_variants
from sift_core import ContextSelector, MMRSelector, NearestNeighborSelector, Selector
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import Versions, as_is, nearest

N_CHOSEN, N_CANDIDATES, N_VERSIONS = 10, 200, 4
MMR_WEIGHTS = (0.5, 0.7, 0.9)
RRF_CONSTANT = 60
MOST_PARTS = 4
TASK = "Write each question of the user on a line of its own. Do not answer them."
SHOWN = (  # to the model that splits
    ("Who wrote Faust? How high is Mont Blanc?", "Who wrote Faust?\nHow high is Mont Blanc?"),
    (
        "When did the Berlin Wall fall? What is the boiling point of nitrogen?",
        "When did the Berlin Wall fall?\nWhat is the boiling point of nitrogen?",
    ),
)
Row = dict[str, Any]
Chooser = Callable[["Asked", np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """Two questions: unit vectors (2, d) and of the joined text (d,), and what answers each."""

    text: str = ""
    each: np.ndarray
    joined: np.ndarray
    gold: tuple[frozenset[int], frozenset[int]]


def candidates_of(points: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Return the rows that are near any of the points (m, d), each once."""
    found = [nearest(embeddings @ point, N_CANDIDATES) for point in points]
    return np.unique(np.concatenate(found))


def chosen_for(selector: Selector, points: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Return the rows that a selector chooses for one question or more, (m, d)."""
    rows = candidates_of(points, embeddings)
    query = points[0] if len(points) == 1 else points
    return rows[selector.select(query, embeddings[rows], N_CHOSEN).positions]


def fused(orders: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows with the largest sums of reciprocal ranks, ties as they first came."""
    scores: dict[int, float] = {}
    for order in orders:
        for rank, row in enumerate(order.tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (RRF_CONSTANT + rank)
    return np.array(sorted(scores, key=lambda row: -scores[row])[:N_CHOSEN])


def choosers() -> dict[str, Chooser]:
    """Return rows in order of choice, by the name of what chooses them."""
    plain: dict[str, Selector] = {"nn": NearestNeighborSelector()}
    plain |= {f"mmr {w}": MMRSelector(relevance_weight=w) for w in MMR_WEIGHTS}
    sift = ContextSelector()
    found: dict[str, Chooser] = {}
    for name, one in {**plain, "sift": sift}.items():
        found[f"{name}, joined"] = lambda asked, rows, one=one: chosen_for(
            one, asked.joined[None], rows
        )
        found[f"{name}, mean"] = lambda asked, rows, one=one: chosen_for(
            one, asked.each.mean(axis=0)[None], rows
        )
        found[f"{name}, each"] = lambda asked, rows, one=one: fused(
            [chosen_for(one, point[None], rows) for point in asked.each]
        )
    found["sift, two"] = lambda asked, rows: chosen_for(sift, asked.each, rows)
    found["sift, three"] = lambda asked, rows: chosen_for(
        sift, np.concatenate([asked.each, asked.joined[None]]), rows
    )
    return found


def pairs_of(questions: QuestionSet, seed: int, cache: EmbeddingCache) -> list[Asked]:
    """Return every question with one other, at random."""
    order = np.random.default_rng(seed).permutation(len(questions.questions))
    pairs = order[: len(order) // 2 * 2].reshape(-1, 2)
    asked = questions.questions
    texts = [f"{asked[a].text} {asked[b].text}" for a, b in pairs]
    joined = cache.embed_queries(texts, "pairs")
    return [
        Asked(
            text=text, each=questions.embeddings[pair], joined=vector, gold=(one.gold, other.gold)
        )
        for text, pair, vector in zip(texts, pairs, joined, strict=True)
        for one, other in [(asked[pair[0]], asked[pair[1]])]
    ]


def decomposed(texts: Sequence[str]) -> list[list[str]]:
    """Return the questions that the bundled model finds in each text, one a line; at least one."""
    from sift_core.answering import AnswerEngine, LanguageModel, PromptOptions

    engine = AnswerEngine(
        language_model=LanguageModel.from_pretrained(),
        prompt=PromptOptions(system=TASK),
        generation={"max_new_tokens": 96},
    )
    shown = [
        turn
        for asked, written in SHOWN
        for turn in ({"role": "user", "content": asked}, {"role": "assistant", "content": written})
    ]
    found = []
    for text in texts:
        answer = engine.answer(text, mode="base", history=shown).text
        lines = [line.strip(" -*0123456789.") for line in answer.splitlines()]
        found.append([line for line in lines if line][:MOST_PARTS] or [text])
    return found


def decomposed_rows(
    questions: QuestionSet, pairs: Sequence[Asked], n: int, cache: EmbeddingCache
) -> list[Row]:
    """Return a row a method for the first n pairs, and one with how many parts were written."""
    pairs = pairs[:n]
    parts = decomposed([pair.text for pair in pairs])
    vectors = iter(cache.embed_queries([part for own in parts for part in own], "parts"))
    split = [
        replace(p, each=np.stack([next(vectors) for _ in own]))
        for p, own in zip(pairs, parts, strict=True)
    ]
    versions = as_is(questions.passages, cache)
    compared = {name: choosers()[name] for name in ("sift, joined", "sift, two")}
    rows = measure(questions.name, pairs, versions, compared)
    rows += measure(questions.name, split, versions, {"sift, decomposed": choosers()["sift, two"]})
    for pair, own in zip(pairs, parts, strict=True):
        print(f"{pair.text}\n    -> {' | '.join(own)}")
    return [*rows[:-1], {**rows[-1], "two_parts": float(np.mean([len(own) == 2 for own in parts]))}]


def measure(
    name: str, pairs: Sequence[Asked], versions: Versions, compared: Mapping[str, Chooser]
) -> list[Row]:
    """Return one row a method, averaged over the pairs, as fractions."""
    rows: list[Row] = []
    for method, choose in compared.items():
        recalls, both = [], []
        for asked in pairs:
            chosen = set(versions.originals[choose(asked, versions.embeddings)].tolist())
            gold = asked.gold[0] | asked.gold[1]
            recalls.append(len(chosen & gold) / len(gold))
            both.append(all(chosen & own for own in asked.gold))
        rows.append(
            {
                "set": name,
                "condition": versions.condition,
                "method": method,
                "recall": float(np.mean(recalls)),
                "both": float(np.mean(both)),
                "n_pairs": len(pairs),
            }
        )
    return rows


def print_rows(rows: Sequence[Row]) -> None:
    """Print a table a condition: a line a method, recall / both in points, a column a set."""
    for condition in dict.fromkeys(row["condition"] for row in rows):
        own = [row for row in rows if row["condition"] == condition]
        sets = list(dict.fromkeys(row["set"] for row in own))
        print(f"\n{condition}: recall@10 / both, in points\n{'':18}", *(f"{s:>16}" for s in sets))
        for method in dict.fromkeys(row["method"] for row in own):
            of_method = [row for row in own if row["method"] == method]
            cells = [(100 * row["recall"], 100 * row["both"]) for row in of_method]
            means = np.mean(cells, axis=0)
            print(f"{method:18}", *(f"{r:8.1f} /{b:6.1f}" for r, b in [*cells, means]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="has corpus/SET and dev/SET")
    parser.add_argument("--sets", type=lambda text: text.split(","), help="of the folder; all")
    parser.add_argument("--passages", type=int, default=1500, help="of each set at most")
    parser.add_argument("--max-queries", type=int, default=300, help="a random subset of each set")
    parser.add_argument("--seed", type=int, default=0, help="of subset, pairs and versions")
    parser.add_argument("--decompose", type=int, help="so many pairs a set, by the bundled model")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    cache = project_cache()
    rows: list[Row] = []
    for name in arguments.sets or sorted(one.name for one in (arguments.data / "corpus").iterdir()):
        questions = read_set(
            arguments.data / "corpus" / name / "corpus.jsonl.gz",
            arguments.data / "dev" / name / "queries.jsonl.gz",
            at_most=arguments.max_queries,
            seed=arguments.seed,
            cache=cache,
        )
        questions = smaller(questions, arguments.passages, arguments.seed)
        pairs = pairs_of(questions, arguments.seed, cache)
        if arguments.decompose:
            rows += decomposed_rows(questions, pairs, arguments.decompose, cache)
            continue
        rows += measure(name, pairs, as_is(questions.passages, cache), choosers())
        varied = textual_variants(questions.passages, N_VERSIONS, arguments.seed, cache)
        rows += measure(name, pairs, varied, choosers())
    print_rows(rows)
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=PACKAGES)


if __name__ == "__main__":
    main()
