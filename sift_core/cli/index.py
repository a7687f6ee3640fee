"""`sift index`: a store made equal to files and folders.

What to read, write and delete is decided before the first write. What was read before is remembered
beside a store in a folder. That speeds things up and decides nothing: a file counts as unchanged if
its bytes are those of last time and the store still holds all its chunks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sift_core.cli import options as flags
from sift_core.cli.models import check_recorded_embedder, load_embedder, load_index_embedder
from sift_core.cli.output import Terminal, Working, counted, print_json
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import has_place, open_for_writing
from sift_core.cli.streams import one_line
from sift_core.documents import Chunker, FoundFiles, find_files, index_documents, read_found
from sift_core.documents.chunk_length import LEAST_TOKENS, MAX_TOKENS, chunker_for
from sift_core.documents.finding import FoundFile, SkippedPath, SkipReason
from sift_core.documents.reader import FileReading
from sift_core.documents.updating import (
    FileMemory,
    UpdatePlan,
    unreadable,
)
from sift_core.embedders.prompts import model_of
from sift_core.errors import InvalidInputError
from sift_core.protocols import DocumentIndex, Embedder

if TYPE_CHECKING:
    from sift_core.embedders.loading import LoadedEmbedder
    from sift_core.sources import FaissSource, QdrantSource

MEGABYTE = 1_000_000
CHUNKS_A_WRITE = 64  # what a killed process loses at most
N_NAMES_SHOWN = 3


def index(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files and folders", show_default=False),
    ],
    store: flags.StoreOption = flags.DEFAULT_STORE,
    embedder: flags.EmbedderOption = None,
    max_file_size: Annotated[
        float, typer.Option(metavar="MB", min=0, help="Leave out files that are larger.")
    ] = 50,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            min=LEAST_TOKENS,
            help="Length of a chunk at most, in the embedder's tokens; if left out, that of the "
            f"last call for a store in a folder, else {MAX_TOKENS} or what the embedder reads. "
            "Another length cuts all files anew.",
            show_default=False,
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete chunks of files that are still there, but not in the PATHs."
        ),
    ] = False,
    float32: Annotated[
        bool,
        typer.Option(
            "--float32",
            help="Embed new chunks in full precision. Otherwise eight bits are used where they "
            "save a third of the time.",
        ),
    ] = False,
    json: flags.JsonOption = False,
) -> None:
    """Make a store hold the text of files and folders, in chunks.

    Reads Markdown, reStructuredText, text, Python, HTML, PDF, Word, PowerPoint, Excel, EPUB and
    notebooks (.ipynb); a file that you name yourself is read as text if its suffix is another.
    Hidden files, caches and what is no text are left out, and listed.

    The store is made equal to all PATHs of one call: what is new or changed is embedded, what
    stayed is left alone, and chunks of files that are no longer there are deleted. PATHs that leave
    out files of the store which are still there are refused: to add a folder, call again with the
    old PATHs and the new one; --prune deletes them. Run it again after an interruption: it goes on
    where it was. Names of files are relative to the current folder, so call it from the same one.

    Examples:
    sift index docs README.md
    sift index docs --store qdrant:http://localhost:6333#handbook
    """
    started = time.perf_counter()
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # we say what could not be read
    address = StoreAddress.parse(store)
    found = find_files(paths, max_bytes=round(max_file_size * MEGABYTE))
    if not found.files:
        raise _nothing_to_read(paths, found.skipped)
    with ExitStack() as stack:
        opened, stored = None, {}
        if has_place(address):
            opened = stack.enter_context(open_for_writing(address, embedder_name=embedder))
            stored = opened.files()
            if not prune:
                refuse_to_drop(address, set(stored.values()), found)
        recorded = model_of((opened and opened.source.embedder_name) or "")
        name = model_of(embedder or recorded or flags.DEFAULT_EMBEDDER)
        if recorded and not embedder:
            check_recorded_embedder(recorded, str(address))
        elif opened is not None and not embedder:
            _refuse_foreign(address, opened.source)
        memory = FileMemory(
            None if address.is_server else address.location,
            name,
            collection=address.collection,
            chunk_tokens=chunk_tokens,
        )
        reading, model = _read(
            memory.recall(found, stored),
            name,
            load=load_embedder if float32 else load_index_embedder,
            chunk_tokens=memory.chunk_tokens,
        )
        if not reading.documents and not memory.unchanged:
            raise _nothing_to_read(paths, reading.skipped)
        plan = UpdatePlan.of(reading, stored, memory.unchanged)
        n_added = 0
        if model is not None:
            dimension = len(model.embed_query("dimension"))
            if opened is None:
                opened = stack.enter_context(
                    open_for_writing(address, embedder_name=model.name, dimension=dimension)
                )
            # Now, not after the first batch was embedded: it keeps others from writing.
            opened.source.prepare(embedder_name=model.name, dimension=dimension)
            n_added = _write_new(plan, opened.source, reading, model)
        assert opened is not None  # else there was nothing to read
        _delete_stale(plan, opened.source)
        memory.remember(reading)
    record = {
        "store": str(address),
        "embedder": name,
        "chunk_tokens": memory.chunk_tokens,
        "n_files": len(plan.files),
        "n_chunks": len(plan.wanted),
        "n_added": n_added,
        "n_unchanged": len(plan.wanted) - n_added,
        "n_deleted": len(plan.stale),
        "deleted_files": sorted(set(plan.stale.values()) - plan.files),
        "kept_files": sorted(plan.kept_files),
        "skipped": [
            {"source": path.source, "reason": path.reason.name.lower(), "detail": path.detail}
            for path in reading.skipped
        ],
        "seconds": round(time.perf_counter() - started, 3),
    }
    if json:
        print_json(record)
    else:
        _print_summary(record, address, reading.skipped)


def _refuse_foreign(address: StoreAddress, source: FaissSource | QdrantSource) -> None:
    """Refuse a collection with points that name no embedder: another one would not fit to them.

    Raises:
        InvalidInputError: If it is one.
    """
    if address.kind == "faiss":  # an index of another tool is refused when it is opened
        return
    n_points = cast("QdrantSource", source).collection().n_points()
    if n_points:
        raise InvalidInputError(
            f"the store {address} has {n_points} points that sift did not write, and does not say "
            f"which model embedded them; index into another --store, or add to them with their "
            f"model as --embedder"
        )


def _nothing_to_read(paths: Sequence[str], skipped: Iterable[SkippedPath]) -> InvalidInputError:
    reasons = "; ".join(_reasons_of(skipped))
    return InvalidInputError(
        f"there is nothing to read in {', '.join(paths)}: "
        f"{f'left out were {reasons}' if reasons else 'no files'}. Read are .md, .rst, .txt, .py, "
        f".html, .pdf, .docx, .pptx, .xlsx, .epub and .ipynb; the store was not touched"
    )


def _read(
    found: FoundFiles,
    embedder_name: str,
    *,
    load: Callable[[str], LoadedEmbedder],
    chunk_tokens: int | None,
) -> tuple[FileReading, LoadedEmbedder | None]:
    """Return the chunks of what was found, each as long as the embedder reads at most, and it.

    Where no file needs to be read no embedder is loaded.
    """
    if not found.files:
        return FileReading(documents=(), sources=(), skipped=found.skipped), None
    with Working(f"Loading the embedder {embedder_name} …") as status:
        loaded: list[LoadedEmbedder] = []

        def chunker() -> Chunker:  # called while the process that reads starts
            loaded.append(load(embedder_name))
            return chunker_for(loaded[0], chunk_tokens)

        def show(file: FoundFile) -> None:
            status.update(f"Read {file.source} …")

        try:
            return read_found(found, chunker, on_file=show, with_dates=True), loaded[0]
        except KeyboardInterrupt:
            status.notes.print("Stopped while reading. The store is as it was.")
            raise typer.Exit(130) from None


def _write_new(
    plan: UpdatePlan, source: DocumentIndex, reading: FileReading, embedder: Embedder
) -> int:
    """Embed and write what is new; return how many chunks, or say it where it is interrupted."""
    before = source.content_ids()
    try:
        report = index_documents(
            source, reading.documents, embedder, batch_size=CHUNKS_A_WRITE, delete_vanished=False
        )
    except KeyboardInterrupt:
        Terminal(stderr=True).print(
            f"Stopped. {len(source.content_ids()) - len(before):,} of "
            f"{len(plan.wanted - before):,} new chunks are stored, nothing was deleted; the same "
            f"command goes on from there."
        )
        raise typer.Exit(130) from None
    return report.n_added


def _delete_stale(plan: UpdatePlan, source: DocumentIndex) -> None:
    """Delete what is no longer in the files, and give a folder of an older version its words."""
    source.remove(sorted(plan.stale))
    if plan.stale or not getattr(source, "has_words", True):
        source.complete()


def _print_summary(
    record: dict[str, Any], address: StoreAddress, skipped: Sequence[SkippedPath]
) -> None:
    """Print what was done and left out, and what to do next."""
    console = Terminal()
    minutes, rest = divmod(round(record["seconds"]), 60)
    duration = f"{minutes} min {rest} s" if minutes else f"{record['seconds']:.1f} s"
    console.say(
        f"{counted(record['n_files'], 'file')}, {counted(record['n_chunks'], 'chunk')} in "
        f"{address} ({record['embedder']}): {record['n_added']:,} new, "
        f"{record['n_unchanged']:,} unchanged, {record['n_deleted']:,} deleted, in {duration}."
    )
    for title, files in (
        ("No longer read, and deleted", record["deleted_files"]),
        ("Not readable now, kept as stored", record["kept_files"]),
    ):
        if files:
            console.say(f"{title}: {some_of(map(one_line, files))}")
    if skipped:
        console.say("Left out (--json lists all):")
        for line in _reasons_of(skipped):
            console.say(f"  {line}")
    console.say(f'Next: sift search "your question"{address.option}')


def _reasons_of(skipped: Iterable[SkippedPath]) -> list[str]:
    """Return a line for each reason, the most frequent first: "3 hidden: .git/, .env, ..."."""
    found: dict[str, list[str]] = {}
    for path in skipped:
        pages = f" ({path.detail})" if path.reason is SkipReason.SOME_PAGES else ""
        found.setdefault(path.reason.value, []).append(one_line(path.source + pages))
    return [
        f"{len(names)} {reason}: {some_of(names)}"
        for reason, names in sorted(found.items(), key=lambda entry: -len(entry[1]))
    ]


def refuse_to_drop(address: StoreAddress, stored: Collection[str], found: FoundFiles) -> None:
    """Refuse to delete what is stored of files that are merely not among the PATHs.

    That is more often a mistake, and embedding them again takes its time.

    Args:
        address: The store.
        stored: The files that it has chunks of.
        found: What was found to read now.

    Raises:
        InvalidInputError: If a stored file is still there and not among those found, or none of
            the stored ones is.
    """
    names = {file.source for file in found.files} | {path.source for path in found.skipped}
    missing = sorted(set(stored) - names)
    if stored and len(missing) == len(stored):
        raise InvalidInputError(
            f"nothing in the index at {address} is of these PATHs; it holds {some_of(missing)}, "
            f"which would be deleted. Pass those PATHs as well, call it from the same folder as "
            f"then (names are relative to it), or take another --store"
        )
    away = tuple(place for place in unreadable(found.skipped) if place.endswith("/"))
    outside = [file for file in missing if os.path.lexists(file) and not file.startswith(away)]
    if outside:
        raise InvalidInputError(
            f"the PATHs leave out {some_of(outside)}, which the index at {address} holds and which "
            f"{'is' if len(outside) == 1 else 'are'} still there. Pass those PATHs as well, or "
            f"--prune to delete them from the index"
        )


def some_of(names: Iterable[str]) -> str:
    """Return names in one line: the first few, with how many more there are."""
    shown = list(names)
    more = len(shown) - N_NAMES_SHOWN
    first = ", ".join(shown[:N_NAMES_SHOWN])
    return f"{first} and {more:,} more" if more > 0 else first
