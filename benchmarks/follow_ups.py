"""What is to be searched for when a question follows others?

    python -m benchmarks.follow_ups --data FOLDER [--json FILE]

44 chats of our own (`follow_ups.json`) over FastAPI's pages, whose last question is searched for
in several ways (`query_rewriting`; "+" makes one text of two, "," is a vector each). They
were written before anything was searched: 24 follow-ups that say little by themselves, 10 questions
on a new topic, which say all, and 10 that the pages do not answer. `alone` is what a person would
ask without the chat: the ceiling.

`found` is the share of chats of which a gold page is among the ten chunks chosen for the prompt,
`chunks` how many of the ten are of a gold page in the mean, `refused` the share that mode "auto"
refuses. What the bundled model writes is printed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.demo_questions import source_of
from benchmarks.records import write_record
from benchmarks.retrieval import PACKAGES
from sift_core.answering import AnswerEngine, AnswerRequest, Choice, LanguageModel
from sift_core.embedders import SentenceTransformerEmbedder
from sift_core.types import Message

CHATS = Path(__file__).with_suffix(".json")
Chat = Mapping[str, Any]


def history_of(chat: Chat) -> list[Message]:
    """Return what was said before the last question."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(chat["turns"][:-1])]


def _asked(history: Sequence[Message]) -> list[str]:
    return [turn["content"] for turn in history if turn["role"] == "user"]


# What an engine is given as `query_rewriting`, by name.
WAYS: Mapping[str, Any] = {
    "question": None,
    "last + question": lambda history, question: f"{_asked(history)[-1]} {question}",
    "question + last": lambda history, question: f"{question} {_asked(history)[-1]}",
    "two last + question": lambda history, question: " ".join([*_asked(history)[-2:], question]),
    "last + answer + question": lambda history, question: " ".join(
        [_asked(history)[-1], history[-1]["content"], question]
    ),
    "last, question": lambda history, question: [_asked(history)[-1], question],
    "join": "join",
    "model": "model",
}


def chosen(engine: AnswerEngine, way: str, chat: Chat) -> tuple[Choice, bool]:
    """Return what is chosen to be read for the last question, and whether "auto" refuses it."""
    asked = AnswerRequest(
        question=chat["turns"][-1],
        mode="context",
        history=history_of(chat),
        queries=[chat["alone"]] if way == "alone" else [],
    )
    choice = replace(engine, query_rewriting=WAYS.get(way)).choose(asked)
    return choice, engine.choose(asked, mode="auto", queries=choice.searched_for).refuses


def row_of(
    way: str, kind: str, chats: Sequence[Chat], choices: Sequence[tuple[Choice, bool]]
) -> dict[str, Any]:
    """Return what was found and refused, averaged over chats of one kind."""
    n_gold = []
    for chat, (choice, _) in zip(chats, choices, strict=True):
        pages = [one["source"] for one in choice.chunks(choice.read).metadata]
        n_gold.append(sum(page in chat["gold"] for page in pages))
    return {
        "method": way,
        "kind": kind,
        "found": fmean(n > 0 for n in n_gold),
        "chunks": fmean(n_gold),
        "refused": fmean(refused for _, refused in choices),
        "n_chats": len(chats),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds demo/")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    embedder = SentenceTransformerEmbedder()
    engine = AnswerEngine(
        language_model=LanguageModel.from_pretrained(),
        source=source_of(arguments.data / "demo", embedder),
        embedder=embedder,
    )
    chats = json.loads(CHATS.read_text())
    rows = []
    for way in (*WAYS, "alone"):
        choices = [chosen(engine, way, chat) for chat in chats]
        if way == "model":
            for chat, (choice, _) in zip(chats, choices, strict=True):
                print(f"{chat['turns'][-1]}\n    -> {choice.searched_for[0]}")
        for kind in dict.fromkeys(chat["kind"] for chat in chats):
            own = [i for i, chat in enumerate(chats) if chat["kind"] == kind]
            row = row_of(way, kind, [chats[i] for i in own], [choices[i] for i in own])
            rows.append(row)
            print(
                f"{way:25} {kind:10} found {row['found']:.2f}  chunks {row['chunks']:4.1f}  "
                f"refused {row['refused']:.2f}"
            )
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=PACKAGES)


if __name__ == "__main__":
    main()
