"""Does a collection help a small model to continue its code and texts?

    python -m benchmarks.completion [--sets a2a-sdk,…] [--bodies N] [--arms base,…] [--data FOLDER]
    python -m benchmarks.completion --report [--json FILE] [--markdown FILE]

Function bodies are held back from packages that are younger than the bundled SmolLM2, and from
sixteen models of transformers, which are clones of one another. Release notes are held back from
FastAPI's (`--data`), minutes from the demo's handbook, which is invented. The rest is the
collection. Each arm continues the last 512 tokens before a body as `sift complete` does, with four
chunks where it reads. No chunk has text from behind the cursor in the same file; `--leave-out
directory` also leaves out the file's own directory.

"nearest" has the four chunks nearest to the last ten lines, as any retriever. "nearest+next" has
the two nearest to the block of the cursor, with the chunks that follow. "sift" is the product.

Sixty bodies are drawn and left where they are, since how to search and choose was decided on them.
The next ones are held back. The clones are other models than those of these decisions, but half of
their bodies are like one of those but for names.

The docstring of a body stands before the cursor. Wheels have no tests. Another function may have
the same body: of the first 180 of the packages 5 have such a copy.

Measured are bits per byte and the share of next tokens that are right, of the body; whether the
next line, and the next three, would be written exactly; how similar the line that is written is to
the next one (difflib), and seconds. A row is on disk as soon as it is measured, and the same
call goes on from there. `learned` learned `--chunks` chunks once, drawn at random.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from benchmarks.completion_data import Collection, Example, parse_with_sets, read_collection
from benchmarks.embedding_cache import CACHE, project_cache
from benchmarks.language_modeling.running import ResultsFile, Row, read_rows
from benchmarks.language_modeling.statistics import paired_interval, share
from benchmarks.options import count, names_of, options
from benchmarks.report import Report
from benchmarks.table import Table, show_tables, word
from sift_core import InMemorySource
from sift_core.answering import AnswerEngine, LanguageModel, LearningOptions, learn_collection
from sift_core.answering.choosing import Choice
from sift_core.answering.completing import N_CHUNKS, Ending, prepare_completion
from sift_core.answering.model.training import target_losses
from sift_core.answering.sessions import Session
from sift_core.documents.chunk_length import chunker_for
from sift_core.embedders.loading import load_embedder
from sift_core.options import ChoiceOptions
from sift_core.selection.baselines import NearestNeighborSelector
from sift_core.sources.filtered import FilteredSource
from sift_core.types import DocumentSample

VERSIONS = ["numpy", "sentence-transformers", "torch", "transformers", "sift-rerank"]
FOLDER = CACHE.with_name("completion")
N_WRITTEN = 32  # tokens of a line at most
NEAREST = {"words": 0, "selector": NearestNeighborSelector()}
ARMS: dict[str, dict[str, Any]] = {
    "base": {"mode": "base"},
    "nearest": {"mode": "context", "read_on": False, "lines": 10, **NEAREST},
    "nearest+next": {"mode": "context", "read_on": True, **NEAREST},
    "sift": {"mode": "context"},
    "sift-next": {"mode": "context", "read_on": False},
    "learned": {"mode": "learned"},
    "learned+nearest": {"mode": "learned_context", "read_on": False, "lines": 10, **NEAREST},
    "learned+sift": {"mode": "learned_context"},
    "fine-tuned quick": {"mode": "fine_tune", "effort": "quick"},
    "fine-tuned balanced": {"mode": "fine_tune", "effort": "balanced"},
}
BEST = "learned+sift"
GENERATED = ("line", "three lines", "similarity")
QUICK = {"sets": ["pydantic-evals"], "bodies": 1, "chunks": 2}


def choose(engine: AnswerEngine, example: Example, arm: str) -> tuple[AnswerEngine, Choice]:
    """Return what an arm chooses to go on with, and the engine that writes it."""
    options = dict(ARMS[arm])
    if n_lines := options.pop("lines", 0):
        lines = [line for line in example.before.splitlines() if line.strip()]
        options["queries"] = ["\n".join(lines[-n_lines:])]
    writer, request = prepare_completion(engine, example.prompt, **options)
    return writer, writer.choose(request)


def measured(engine: AnswerEngine, example: Example, arm: str) -> Row:
    """Return what one arm makes of one body."""
    begin = time.perf_counter()
    writer, choice = choose(engine, example, arm)
    chosen = time.perf_counter()
    session = writer.prepare(choice)
    learned = time.perf_counter()
    return {
        **_scored(session, example),
        "choose_s": round(chosen - begin, 4),
        "learn_s": round(learned - chosen, 4),
    }


def _scored(session: Session, example: Example) -> Row:
    """Return what a model that is ready makes of a body behind its prompt, read once."""
    answerer, choice = session.answerer, session.choice
    model = answerer.local_model
    read = answerer.used(choice.query, choice.chunks(choice.read))
    ids = answerer.prompt_ids(answerer.prompt_for(choice.query, read))
    body = example.body
    targets = model.token_ids(body)
    adapter = session.adapter if session.tuned is None else session.tuned.adapter
    begin = time.perf_counter()
    with model.adapted(adapter), torch.inference_mode():
        prefix = model.read(ids[:-1])
        assert prefix is not None
        read_s = time.perf_counter() - begin
        cache = prefix.cache(model.model, ids, prefix.adapter_key, {})
        wanted = torch.tensor(targets, device=model.model.device)
        inputs = torch.tensor([[ids[-1], *targets[:-1]]], device=model.model.device)
        output = model.layers.trunk(input_ids=inputs, past_key_values=cache)
        hidden = output.last_hidden_state[0]
        nats = float(target_losses(model.layers, hidden, wanted).sum())
        best = model.layers.logits(hidden).argmax(dim=-1)
    hits = (best == wanted).tolist()
    begin = time.perf_counter()
    line = Ending(example.prompt, "line")
    answer = replace(session, answerer=replace(answerer, prefix=prefix)).answer(
        choice.query,
        on_text=line.read,
        max_new_tokens=N_WRITTEN,
        stopping_criteria=[line.is_reached],
    )
    first = _first_lines(body, 1)
    pair = (line.finished(answer).text.strip(), first.strip())
    return {
        "bits": round(nats / np.log(2), 4),
        "bytes": len(body.encode()),
        "hits": sum(hits),
        "tokens": len(hits),
        "line": float(all(hits[: _n_tokens(model, targets, first)])),
        "three lines": float(all(hits[: _n_tokens(model, targets, _first_lines(body, 3))])),
        "similarity": round(SequenceMatcher(None, *pair, autojunk=False).ratio(), 4),
        "n_read": len(read),
        "n_prompt_tokens": len(ids),
        "read_s": round(read_s, 4),
        "write_s": round(time.perf_counter() - begin, 4),
    }


def _first_lines(text: str, n: int) -> str:
    """Return the text up to the end of its n-th line that is not blank."""
    lines = text.split("\n")
    visible = [i for i, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[: visible[:n][-1] + 1]) if visible else text


def _n_tokens(model: LanguageModel, ids: Sequence[int], beginning: str) -> int:
    """Return how many tokens spell the beginning of a text."""
    n = model.n_tokens(beginning)
    while len(model.tokenizer.decode(ids[:n])) < len(beginning):
        n += 1
    return n


def engine_of(
    collection: Collection, model: LanguageModel, *, n_chunks: int, learns: bool
) -> AnswerEngine:
    """Return an engine over the rest of a collection, which has learned some of it once."""
    texts = [chunk.text for chunk in collection.chunks]
    metadata = [chunk.metadata for chunk in collection.chunks]
    ids = [chunk.document_id for chunk in collection.chunks]
    embeddings = project_cache().embed(texts, collection.name)
    embedder = load_embedder("all-MiniLM-L6-v2")
    source = InMemorySource(
        embeddings, texts, metadata=metadata, document_ids=ids, embedder_name=embedder.name
    )
    adapter = None
    if learns:
        sample = DocumentSample(
            document_ids=ids,
            texts=texts,
            embeddings=embeddings,
            metadata=metadata,
            n_stored=len(texts),
        )
        name = sha256("".join(texts).encode()).hexdigest()[:16]
        place = FOLDER / "adapters" / f"{name}-{n_chunks}"
        with tqdm(total=n_chunks, desc=f"learning {collection.name}", disable=None) as bar:
            adapter = learn_collection(
                model, sample, place, n_chunks=n_chunks, on_step=lambda *_: bar.update()
            )
    return AnswerEngine(
        language_model=model,
        source=source,
        embedder=embedder,
        options=ChoiceOptions(n_select=N_CHUNKS),
        learning=LearningOptions(adapter=adapter),
    )


def without_directory(engine: AnswerEngine, example: Example) -> AnswerEngine:
    """Return an engine without the chunks of a file's own directory."""
    own = Path(example.path).parent
    assert engine.source is not None
    source = FilteredSource(engine.source, lambda _, about: Path(about["source"]).parent != own)
    return replace(engine, source=source)


def tasks(arguments: argparse.Namespace, file: ResultsFile) -> Iterator[None]:
    """Measure what is missing, a row a step."""
    model = LanguageModel.from_pretrained()
    chunker = chunker_for(load_embedder("all-MiniLM-L6-v2"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets:
        part = {"n": arguments.bodies, "cache": FOLDER, "data": arguments.data}
        collection = read_collection(name, chunker, **part)
        n_learned = min(arguments.chunks, len(collection.chunks))
        about = {
            "set": name,
            "held_back": len(collection.examples),
            "n_chunks": len(collection.chunks),
            "n_learned": n_learned,
            "left_out": arguments.leave_out,
        }
        keys = {
            (i, arm): "|".join(map(str, [*about.values(), i, arm]))
            for i in range(len(collection.examples))
            for arm in arguments.arms
        }
        if all(key in file.keys for key in keys.values()):
            continue
        learns = any(ARMS[arm]["mode"].startswith("learned") for arm in arguments.arms)
        engine = engine_of(collection, model, n_chunks=n_learned, learns=learns)
        for (i, arm), key in keys.items():
            if key not in file.keys:
                example = collection.examples[i]
                own = without_directory(engine, example) if arguments.leave_out else engine
                row = {"key": key, **about, "example": i, "arm": arm, "path": example.path}
                file.append({**row, **measured(own, example, arm)})
                yield


def summaries(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a record a collection and arm; in brackets are 90 % bootstrap intervals."""
    found = []
    frame = pd.DataFrame(rows)
    setting = ["set", "held_back", "n_chunks", "n_learned", "left_out"]
    frame["left_out"] = frame["left_out"].fillna("")
    for about, part in frame.groupby(setting, sort=False):
        counts = part["arm"].value_counts()
        arms = [arm for arm in ARMS if counts.get(arm, 0) == counts.max()]  # the others go on
        if "base" not in arms:
            sys.exit(f"{about[0]}: each arm is compared with 'base'; measure it with --arms base,…")
        wide = part[part["arm"].isin(arms)].pivot(index="example", columns="arm")
        for arm in arms:
            own = wide.xs(arm, axis=1, level="arm")
            base = wide.xs("base", axis=1, level="arm")
            record = {**dict(zip(setting, about, strict=True)), "arm": arm, "n": len(own)}
            record["bits_per_byte"] = own["bits"].sum() / own["bytes"].sum()
            record["share_of_base"] = paired_interval(share, own["bits"], base["bits"])
            record["next_tokens"] = 100 * own["hits"].sum() / own["tokens"].sum()
            columns = (own["hits"], base["hits"], own["tokens"])
            record["next_tokens_over_base"] = paired_interval(_points, *columns)
            if "nearest" in arms:
                nearest = wide.xs("nearest", axis=1, level="arm")["bits"]
                record["share_of_nearest"] = paired_interval(share, own["bits"], nearest)
            record |= {name: 100 * own[name].mean() for name in GENERATED}
            for name in ("choose_s", "learn_s", "read_s", "write_s"):
                record[name] = own[name].median()
            found.append(record)
    return found


def _points(own: Any, other: Any, tokens: Any, axis: int = -1) -> Any:
    return 100 * (own.sum(axis=axis) - other.sum(axis=axis)) / tokens.sum(axis=axis)


def tables(records: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield a table a collection."""
    heads = ("arm", "bits per byte", "% of base", "% of nearest", "next tokens", "Δ")
    for _, part in pd.DataFrame(records).groupby(["set", "n_learned", "left_out"], sort=False):
        one, title = part.iloc[0], f"{part.iloc[0]['set']}: {part.iloc[0]['n']} texts"
        if part["arm"].str.startswith("learned").any():
            title += f", {one['n_learned']} of {one['n_chunks']} chunks learned"
        lines = tuple(tuple(map(word, _cells(record))) for record in part.to_dict("records"))
        yield Table(
            title=f"{title}, without the own {one['left_out']}" if one["left_out"] else title,
            heads=(*heads, *GENERATED, "choose s", "learn s", "read s", "write s"),
            rows=lines,
            note="Next tokens, lines and similarity in points. [ ]: 90 % bootstrap interval.",
        )


def _cells(record: dict[str, Any]) -> list[str]:
    def spelled(value: Any, factor: float = 1, sign: str = "") -> str:
        if not isinstance(value, list):
            return "–"
        middle, low, high = (f"{factor * one:{sign}.1f}" for one in value)
        return f"{middle} [{low}, {high}]"

    return [
        record["arm"],
        f"{record['bits_per_byte']:.3f}",
        spelled(record["share_of_base"], 100),
        spelled(record.get("share_of_nearest"), 100),
        f"{record['next_tokens']:.1f}",
        spelled(record["next_tokens_over_base"], sign="+"),
        *(f"{record[name]:.1f}" for name in GENERATED),
        *(f"{record[name]:.2f}" for name in ("choose_s", "learn_s", "read_s", "write_s")),
    ]


def main() -> None:
    arguments = parse()
    if not arguments.report:
        with ResultsFile(arguments.results) as file:
            for _ in tasks(arguments, file):
                pass
    records = summaries(read_rows(arguments.results))
    show_tables(tables(records), arguments.markdown)
    report = Report(section="completion", rows=records)
    for record in records:
        if record["arm"] == BEST:
            where = f"{record['set']}{', own directory left out' * bool(record['left_out'])}"
            where += ", all learned" * (record["n_learned"] == record["n_chunks"])
            report.judge(f"{where}: share of base", record["share_of_base"][0], "share", "lower")
            points = record["next_tokens_over_base"][0]
            report.judge(f"{where}: next tokens over base", points, "next_tokens")
    report.finish(arguments.json, VERSIONS)


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = options(__doc__, quick="one body of one package")
    parser.add_argument("--chunks", type=count, default=250, help="learned once from each")
    parser.add_argument("--arms", type=names_of(ARMS), default=list(ARMS))
    parser.add_argument("--leave-out", choices=["directory"], default=None)
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    arguments = parse_with_sets(parser)
    if arguments.quick:
        vars(arguments).update(QUICK)
    return arguments


if __name__ == "__main__":
    main()
