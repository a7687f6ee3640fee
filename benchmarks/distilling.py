"""Does text that was learned answer, by next tokens and by distilling, in the same seconds?

    python -m benchmarks.distilling --data FOLDER [--sets squad,…] [--arms base,…] [--passes N]
    python -m benchmarks.distilling --report [--json FILE] [--markdown FILE]

A collection has the gold passages of questions that are drawn by chance. "distill" learns it as
`sift learn --objective distill` does, and "next-token" as `sift learn` does: once, and in as many
passes as take the CPU seconds of distilling, or in `--passes`.

Measured are the bits of the first gold answer, and whether the answer that is written holds a gold
answer: without reading, with two chunks read and with ten, which SIFT chose by embeddings alone.
A row is on disk as soon as it is measured, and the same call goes on from there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from benchmarks.answers import Reader
from benchmarks.embedding_cache import CACHE, project_cache
from benchmarks.language_modeling.running import ResultsFile, Row, read_rows
from benchmarks.language_modeling.statistics import paired_interval, share
from benchmarks.options import count, names_of, options
from benchmarks.report import Report
from benchmarks.table import Table, number, show_tables, word
from sift_core.answering import LanguageModel, learn_collection
from sift_core.answering.collection import usual_settings
from sift_core.answering.fine_tuning import fine_tune
from sift_core.evaluation.data import Passage, read_json_lines, read_retrieval_set
from sift_core.evaluation.retrieval import choose, default_methods, embed_questions
from sift_core.evaluation.search import as_is, pools
from sift_core.types import CandidatePool, DocumentSample

VERSIONS = ["numpy", "sentence-transformers", "torch", "transformers", "sift-rerank"]
FOLDER = CACHE.with_name("distilling")
N_PASSAGES = {"squad": 45, "hotpotqa": 200}  # so many that at least 100 questions are about them
READS = (0, 2, 10)
ARMS = ("base", "distill", "next-token")
SEED, ORDER_SEED = 77, 44  # other passages than those on which distilling was tuned
QUICK = {"sets": ["squad"], "questions": 1, "passages": 2}


@dataclass(frozen=True, kw_only=True, eq=False)
class Collection:
    """Passages, and the questions whose gold passages are all among them.

    `contexts` has, for a number of chunks, the rows of `passages` that each question reads.
    """

    name: str
    passages: Sequence[Passage]
    questions: Sequence[tuple[str, str, Sequence[str]]]  # id, text, gold answers
    contexts: dict[int, list[list[int]]]

    def chunks(self, rows: Sequence[int]) -> CandidatePool:
        """Return passages as they stand in a prompt, title and text."""
        return CandidatePool(
            document_ids=[str(row) for row in rows],
            texts=[self.passages[row].to_embed for row in rows],
            embeddings=np.zeros((len(rows), 1), dtype=np.float32),
            similarities=np.zeros(len(rows)),  # nobody asks for either here
        )

    def sample(self) -> DocumentSample:
        """Return all passages as `learn_collection` takes them."""
        return DocumentSample(
            document_ids=[one.passage_id for one in self.passages],
            texts=[one.to_embed for one in self.passages],
            embeddings=np.ones((len(self.passages), 1), dtype=np.float32),
            metadata=[{"title": one.title} for one in self.passages],
            n_stored=len(self.passages),
        )


def read_collection(folder: Path, name: str, n_passages: int, n_questions: int) -> Collection:
    """Return the gold passages of questions by chance, until there are so many."""
    asked = folder / "dev" / name / "queries.jsonl.gz"
    whole = read_retrieval_set(folder / "corpus" / name / "corpus.jsonl.gz", asked, name=name)
    answers = {line.identifier("id"): line.values["answers"] for line in read_json_lines(asked)}
    rows: dict[int, None] = {}
    for i in np.random.default_rng(SEED).permutation(len(whole.questions)):
        if len(rows) >= n_passages:
            break
        rows.update(dict.fromkeys(sorted(whole.questions[i].gold)))
    passages = [whole.passages[row] for row in rows]
    questions = [one for one in whole.questions if one.gold <= set(rows)]
    order = np.random.default_rng(ORDER_SEED).permutation(len(questions))[:n_questions]
    questions = [questions[i] for i in order]
    cache = project_cache()
    embeddings = as_is(passages, cache).embeddings
    found = list(pools(embed_questions(questions, cache), embeddings))
    sift = default_methods()["sift"]
    contexts = {
        n: [pool.rows[choose("sift", sift, pool, n)].tolist() if n else [] for pool in found]
        for n in READS
    }
    return Collection(
        name=name,
        passages=passages,
        questions=[(one.question_id, one.text, answers[one.question_id]) for one in questions],
        contexts=contexts,
    )


class Run:
    """What is measured of one collection, and written to a file."""

    def __init__(self, model: LanguageModel, collection: Collection, file: ResultsFile) -> None:
        self._model, self._collection, self._file = model, collection, file
        self._reader = Reader(model)
        self._about = {"set": collection.name, "n_passages": len(collection.passages)}

    def measure(self, arm: str, seconds: float = 0.0) -> None:
        """Write the rows that a file lacks, with the adapter that is active now."""
        asked = list(enumerate(self._collection.questions))
        label = f"{self._collection.name}, {arm}"
        for n in READS:
            for i, (identifier, text, answers) in tqdm(asked, f"{label}, {n} chunks read"):
                about = {**self._about, "arm": arm, "n_chunks": n, "question": identifier}
                key = "|".join(map(str, about.values()))
                if key not in self._file.keys:
                    chunks = self._collection.chunks(self._collection.contexts[n][i])
                    row = self._reader.read(text, answers, chunks)
                    self._file.append({"key": key, **about, "learn_cpu_s": seconds, **row})

    def distill(self) -> None:
        """Learn by distilling, or take what a call before has learned, and measure it."""
        place = FOLDER / f"{self._collection.name}-{len(self._collection.passages)}"
        timed = place.with_suffix(".seconds")
        begin = time.process_time()
        with tqdm(self._collection.passages, "asking about passages") as bar:
            adapter = learn_collection(
                self._model,
                self._collection.sample(),
                place,
                objective="distill",
                on_chunk=lambda *_: bar.update(),
            )
        if not timed.exists():
            timed.write_text(str(round(time.process_time() - begin, 1)), encoding="utf-8")
        with self._model.adapted(adapter):
            self.measure("distill", float(timed.read_text(encoding="utf-8")))

    def next_token(self, n_passes: int | None) -> None:
        """Learn by next tokens, once and for so many passes, by default as long as distilling."""
        distilled = self._rows("distill")
        if n_passes is None and not distilled:
            sys.exit(f"{self._collection.name}: measure 'distill' first, or name --passes")
        once = self._learn_next_tokens("next-token, 1 pass", 1)
        if n_passes is None:
            n_passes = round(distilled[0]["learn_cpu_s"] / once)
        if n_passes > 1:
            self._learn_next_tokens(f"next-token, {n_passes} passes", n_passes)

    def _learn_next_tokens(self, arm: str, n_passes: int) -> float:
        """Learn by next tokens unless it is measured already; return the CPU seconds of it."""
        if len(self._rows(arm)) < len(self._collection.questions) * len(READS):
            texts = [one.to_embed for one in self._collection.passages]
            order = np.random.default_rng(0)
            steps = [texts[i] for _ in range(n_passes) for i in order.permutation(len(texts))]
            begin = time.process_time()
            learned = fine_tune(self._model, steps, usual_settings())
            seconds = round(time.process_time() - begin, 1)
            with self._model.adapted(learned.adapter):
                self.measure(arm, seconds)
        return float(self._rows(arm)[0]["learn_cpu_s"])

    def _rows(self, arm: str) -> list[Row]:
        about = {**self._about, "arm": arm}
        return [row for row in self._file.rows if about.items() <= row.items()]


def summaries(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield a record a collection, arm and number of chunks.

    "share_of_base" has the share of the base model's bits with each number of chunks, and the ends
    of its 90 % interval.
    """
    frame = pd.DataFrame(rows)
    for (name, n_passages), part in frame.groupby(["set", "n_passages"], sort=False):
        wide = part.pivot(index="question", columns=["arm", "n_chunks"]).dropna(axis=1)
        wide = wide.sort_index(axis=1)
        if any(("bits", "base", n) not in wide for n in READS):
            sys.exit(f"{name}: each arm is compared with 'base'; measure it with --arms base")
        base = wide["bits", "base"]
        for arm, n in wide["bits"].columns:
            own = wide["bits", arm, n]
            yield {
                "set": name,
                "n_passages": n_passages,
                "arm": arm,
                "n_chunks": n,
                "n": len(own),
                "learn_cpu_s": float(wide["learn_cpu_s", arm, n].max()),
                "bits": float(own.mean()),
                "share_of_base": {
                    str(other): paired_interval(share, own, base[other]) for other in READS
                },
                "holds": 100 * float(wide["holds", arm, n].mean()),
            }


def tables(records: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield a table a collection."""
    heads = ("arm", "chunks read", "learning CPU s", "bits", *(f"% of base, {n}" for n in READS))
    for (name, n_passages), part in pd.DataFrame(records).groupby(["set", "n_passages"]):
        lines = []
        for record in part.to_dict("records"):
            shares = [
                "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * value for value in interval))
                for interval in record["share_of_base"].values()
            ]
            first = (word(record["arm"]), number(record["n_chunks"], 0))
            own = (number(record["learn_cpu_s"], 0), number(record["bits"], 2))
            lines.append((*first, *own, *map(word, shares), number(record["holds"], 0)))
        yield Table(
            title=f"{name}: {part['n'].iloc[0]} questions about {n_passages} passages learned",
            heads=(*heads, "holds"),
            rows=tuple(lines),
            note="Bits of the first gold answer: fewer are better. % of base, N: of the bits of "
            "the base model that reads N chunks, with a 90 % bootstrap interval.",
        )


def main() -> None:
    arguments = parse()
    if not arguments.report:
        with ResultsFile(arguments.results) as file:
            model = LanguageModel.from_pretrained()
            for name in arguments.sets:
                n_passages = arguments.passages or N_PASSAGES[name]
                run = Run(
                    model,
                    read_collection(arguments.data, name, n_passages, arguments.questions),
                    file,
                )
                for arm in arguments.arms:
                    if arm == "base":
                        run.measure(arm)
                    elif arm == "distill":
                        run.distill()
                    else:
                        run.next_token(arguments.passes)
    records = list(summaries(read_rows(arguments.results)))
    show_tables(tables(records), arguments.markdown)
    report = Report(section="distilling", rows=records)
    for record in records:
        if record["arm"] == "distill" and record["n_chunks"] == 0:
            share_of_base = record["share_of_base"]["0"][0]
            report.judge(f"{record['set']}: share of base", share_of_base, "share", "lower")
    report.finish(arguments.json, VERSIONS)


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = options(__doc__, quick="one question about two passages of squad")
    parser.add_argument("--data", type=Path, help="has corpus/SET and dev/SET; measures")
    parser.add_argument("--sets", type=names_of(N_PASSAGES), default=list(N_PASSAGES))
    parser.add_argument("--arms", type=names_of(ARMS), default=list(ARMS))
    parser.add_argument("--questions", type=count, default=100, help="of each set at most")
    parser.add_argument("--passages", type=count, help="of each set, about; default: 45 or 200")
    parser.add_argument("--passes", type=count, help="of next tokens, beside one")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(QUICK)
    if not arguments.report and arguments.data is None:
        parser.error("measuring needs --data")
    return arguments


if __name__ == "__main__":
    main()
