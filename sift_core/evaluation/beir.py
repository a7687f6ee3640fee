"""Retrieval sets in the form of BEIR: a folder with a corpus, queries and relevance judgements.

References:
    Thakur et al. (2021), BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of
    Information Retrieval Models, NeurIPS Datasets and Benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import (
    ENCODING,
    Question,
    RetrievalSet,
    as_passage,
    lines_by_id,
    rows_by_id,
)

HEADER = ["query-id", "corpus-id", "score"]


def read_beir(folder: str | Path, split: str = "test") -> RetrievalSet:
    """Return the questions of one split of a BEIR set, and the whole corpus.

    Needs `corpus.jsonl` of {_id, title, text} and `queries.jsonl` of {_id, text}, each plain or
    with .gz, and `qrels/<split>.tsv` with the header query-id, corpus-id, score. The split
    has the questions that it judges. A score of at most 0 says "not relevant"; a question
    with no higher one is left out and counted in `n_without_gold`.

    Args:
        folder: Its name becomes that of the set.
        split: "test", "dev" or "train", where the set has it.

    Raises:
        InvalidInputError: If a file is missing or empty, a line is not as above, two
            passages or queries have one id, a pair is judged twice, a judgement names what
            is not there, or no question has a relevant passage.
    """
    folder = Path(folder)
    corpus = lines_by_id(_existing(folder, "corpus.jsonl"), "_id", "passages")
    passages = [as_passage(line, "_id") for line in corpus.values()]
    queries = lines_by_id(_existing(folder, "queries.jsonl"), "_id", "queries")
    texts = {query_id: line.text("text") for query_id, line in queries.items()}
    row_of = rows_by_id(passages)
    path = folder / "qrels" / f"{split}.tsv"
    if not path.exists():
        found = sorted(one.stem for one in path.parent.glob("*.tsv"))
        raise InvalidInputError(f"there is no {path}; splits there: {', '.join(found) or 'none'}")
    grades: dict[str, dict[int, float]] = {}
    judged: set[tuple[str, str]] = set()
    for number, query_id, passage_id, score in _judgements(path):
        where = f"{path}, line {number}"
        if query_id not in texts:
            raise InvalidInputError(f"{where}: there is no query {query_id!r}")
        if passage_id not in row_of:
            raise InvalidInputError(f"{where}: there is no passage {passage_id!r} in the corpus")
        if (query_id, passage_id) in judged:
            raise InvalidInputError(f"{where}: the pair {query_id!r}, {passage_id!r} stands twice")
        judged.add((query_id, passage_id))
        of_query = grades.setdefault(query_id, {})
        if score > 0:
            of_query[row_of[passage_id]] = score
    questions = [
        Question(question_id=query_id, text=texts[query_id], grades=of_query)
        for query_id, of_query in grades.items()
        if of_query
    ]
    if not questions:
        raise InvalidInputError(f"{path}: no query has a relevant passage (a score above 0)")
    return RetrievalSet(
        name=folder.resolve().name,
        passages=passages,
        questions=questions,
        n_without_gold=len(grades) - len(questions),
    )


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise InvalidInputError(
        f"{folder} has no {name} or {name}.gz: is it the folder of one set in BEIR's form?"
    )


def _judgements(path: Path) -> Iterator[tuple[int, str, str, float]]:
    """Yield the number of each line with its query id, passage id and score."""
    try:
        # Not splitlines(): an id may have one of the other ends of lines that Unicode knows.
        lines = path.read_text(encoding=ENCODING).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}") from error
    if lines[0].split("\t") != HEADER:
        raise InvalidInputError(
            f"{path}: the first line must be {', '.join(HEADER)}, with tabs between them, got "
            f"{lines[0][:80]!r}"
        )
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            try:
                query_id, passage_id, cell = line.split("\t")
                score = float(cell)
            except ValueError:
                score = math.nan
            if not math.isfinite(score):
                raise InvalidInputError(
                    f"{path}, line {number}: must be an id, an id and a number, with tabs between "
                    f"them, got {line[:80]!r}"
                )
            yield number, query_id, passage_id, score
