"""Search a harbour's handbook by nearest neighbours, MMR, rank fusion and SIFT, and count.

    make demo
    make demo ALL=1
    make demo QUESTION="Who looks after the crane at berth 2?"
    make demo DOCS=folder QUESTION="..."

The handbook is made up (examples/harbour, CC0). Its questions name the facts that they need. The
demo counts the facts among the chunks that each method chooses, shows a question of each kind, and
counts the right answers that the bundled language model writes in 150 s, or with ALL=1 to all
questions. QUESTION asks one question of your own, and DOCS asks the files of your own folder.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from demo_harbour import PAGES, Question, read_questions
from demo_methods import METHODS, Comparison, choose_by_all
from demo_report import print_choices, print_facts, progress
from demo_store import (
    EMBEDDER,
    MODEL,
    ROOT,
    demo_source,
    index_folder,
    load_question_embedder,
    open_qdrant,
)
from qdrant_client import QdrantClient

from sift_core import InvalidInputError, Query
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.cli import run
from sift_core.cli.output import Terminal, counted
from sift_core.hub import model_place

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    question: Annotated[str | None, typer.Option(help="Ask this alone")] = None,
    docs: Annotated[Path | None, typer.Option(help="Folder with documents of your own")] = None,
    model: Annotated[str, typer.Option(help="Causal LM: a folder or an id on the hub")] = MODEL,
    cache: Annotated[Path, typer.Option(help="Where index and picture go")] = ROOT / ".cache/demo",
    all_answers: Annotated[
        bool, typer.Option("--all-answers", help="Answer all questions, whatever it takes")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Put the picture here")] = None,
) -> None:
    """Count what nearest neighbours, MMR, rank fusion and SIFT find in a harbour's handbook."""
    if question is None and docs is not None:
        raise InvalidInputError("the questions are about the harbour; pass --question too")
    if question is not None:
        if not question.strip():
            raise InvalidInputError("the question is empty; ask something")
        Query(text=question)  # refuses what is not text, before any model is loaded
    if model != SMOLLM2:
        model = model_place(model, "transformers")  # before anything takes its time
    console = Terminal()
    questions = read_questions() if question is None else [of_ones_own(question)]
    index(console, cache / "qdrant", docs or PAGES)
    with open_qdrant(cache / "qdrant") as client:
        compared, queries = compare(console, client, questions)
    shown = compared.shown()
    if question is None:
        print_facts(console, compared)
        console.say(
            "\nOne question of each kind: the first of which the nearest chunks lack a fact."
        )
    for row in shown:
        chosen = {name: compared.chosen[name][row] for name in METHODS}
        print_choices(console, compared.questions[row], chosen)
    if question is None:
        show_picture(console, compared, picture or cache / "demo.png")
    from demo_answers import LIMIT_S, Answers, count_answers, print_answers  # torch, some seconds

    answers = Answers.by_model(model, compared, queries)
    until = math.inf if all_answers else time.monotonic() + LIMIT_S
    print_answers(console, answers, shown)
    if question is None:
        count_answers(console, answers, until=until)


def of_ones_own(question: str) -> Question:
    """Return a question of which neither facts nor answers are known."""
    return Question(question_id="", kind="", text=question, facts=(), answers=())


def index(console: Terminal, qdrant: Path, folder: Path) -> None:
    """Index a folder, and say what is in it.

    The collection is closed, since Qdrant has points with equal scores in another order once it
    has read them from disk. So the first run counts what later ones do.
    """
    with console.status("Indexing …"), open_qdrant(qdrant) as client:
        report = index_folder(client, folder)
    n_new = f", {report.n_added} of them new" if report.n_added else ""
    console.say(f"{counted(report.n_documents, 'chunk')}{n_new}; {EMBEDDER}, Qdrant.", style="dim")
    if folder == PAGES:
        console.say(
            f"The handbook is made up (examples/harbour, CC0). Its {len(read_questions())} "
            f"questions were written before anything was searched. Public sets: docs/results.md.\n"
        )


def compare(
    console: Terminal, client: QdrantClient, questions: Sequence[Question]
) -> tuple[Comparison, list[Query]]:
    """Return what each method chooses for questions, and these with their embeddings."""
    embedder = load_question_embedder()
    source = demo_source(client, embedder)
    queries, choices = [], []
    with progress(console) as bar:
        for one in bar.track(questions, description="Searching"):
            vector = embedder.embed_query(one.text)
            query = Query(text=one.text, embedding=vector, embedder_name=embedder.name)
            queries.append(query)
            choices.append(choose_by_all(source, query))
    return Comparison.of(questions, choices), queries


def show_picture(console: Terminal, compared: Comparison, path: Path) -> None:
    """Draw the picture, and say where it is."""
    from demo_picture import draw

    draw(compared, path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    console.say(f"\nPicture: {shown}")


if __name__ == "__main__":
    sys.exit(run(app))
