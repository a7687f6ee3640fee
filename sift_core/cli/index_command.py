"""`sift index`: a store made equal to files and folders."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sift_core.cli.index_printing import print_record, print_summary, reasons_of
from sift_core.cli.index_progress import progress
from sift_core.cli.settings import (
    DEFAULT_EMBEDDER,
    DEFAULT_STORE,
    EmbedderOption,
    JsonOption,
    StoreOption,
)
from sift_core.cli.stores import (
    StoreAddress,
    create_or_open_store,
    has_place,
    load_embedder,
    open_for_writing,
)
from sift_core.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from sift_core.cli.index_writing import Plan
    from sift_core.documents import FileReading, FoundFiles, IndexingReport
    from sift_core.embedders import SentenceTransformerEmbedder
    from sift_core.sources import FaissSource, QdrantSource

MEGABYTE = 1_000_000


def index(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files and folders", show_default=False),
    ],
    store: StoreOption = DEFAULT_STORE,
    embedder: EmbedderOption = None,
    max_file_size: Annotated[
        float, typer.Option(metavar="MB", min=0, help="Leave out files that are larger.")
    ] = 50,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete chunks of files that are still there, but not in the PATHs."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="List every file that was left out, and why.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a store hold the text of files and folders, in chunks.

    Reads Markdown, reStructuredText, text, Python, HTML and PDF; a file that you name yourself is
    read as text whatever its suffix. Hidden files, caches and what is no text are left out, and
    listed.

    The store is made equal to all PATHs of one call: what is new or changed is embedded, what
    stayed is left alone, and chunks of files that are no longer there are deleted. PATHs that leave
    out files of the store which are still there are refused: to add a folder, call again with the
    old PATHs and the new one; --prune deletes them. Run it again after an interruption: it goes on
    where it was. Names of files are relative to the current folder, so call it from the same one.

    Examples:
    sift index docs README.md
    sift index docs --store qdrant:http://localhost:6333#handbook
    """
    from sift_core.cli.index_memory import FileMemory
    from sift_core.cli.index_writing import Indexed, Plan, delete_stale, refuse_to_drop
    from sift_core.cli.showing_text import stderr_console
    from sift_core.documents import find_files

    started = time.perf_counter()
    console = stderr_console()
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # we say what could not be read
    address = StoreAddress.parse(store)
    found = find_files(paths, max_bytes=round(max_file_size * MEGABYTE))
    if not found.files:
        raise _nothing_to_read(paths, found.skipped)
    with ExitStack() as stack:
        opened, stored = None, {}
        if has_place(address):
            stack.enter_context(_only_writer(address))
            opened = stack.enter_context(open_for_writing(address, embedder_name=embedder))
            stored = opened.files()
            if not prune:
                refuse_to_drop(address, set(stored.values()), found)
        recorded = opened.source.embedder_name if opened else None
        name = embedder or recorded or DEFAULT_EMBEDDER
        memory = FileMemory(address, name)
        recalled = memory.recall(found, stored)
        reading, model = _read(console, recalled.to_read, name)
        if not reading.documents and not recalled.unchanged:
            raise _nothing_to_read(paths, reading.skipped)
        plan = Plan.of(reading, stored, recalled.unchanged)
        n_added, n_unchanged = 0, plan.n_chunks_unread
        if opened is not None:
            source = opened.source
        elif model is not None:
            dimension = len(model.embed_query("dimension"))
            source = stack.enter_context(
                create_or_open_store(address, embedder_name=name, dimension=dimension)
            )
            stack.enter_context(_only_writer(address))
        if model is not None:
            report = _write_new(console, plan, source, reading, model)
            n_added, n_unchanged = report.n_added, n_unchanged + report.n_unchanged
        delete_stale(plan, source)
        memory.remember(reading, recalled.unchanged)
    indexed = Indexed(plan=plan, n_added=n_added, n_unchanged=n_unchanged, skipped=reading.skipped)
    seconds = time.perf_counter() - started
    if as_json:
        print_record(address, name, indexed, seconds)
    else:
        print_summary(address, name, indexed, seconds, verbose=verbose)


def _only_writer(address: StoreAddress) -> AbstractContextManager[None]:
    """Keep others from writing to a store; Qdrant does that itself."""
    from sift_core.cli.index_lock import only_writer

    return only_writer(Path(address.location)) if address.kind == "faiss" else nullcontext()


def _nothing_to_read(paths: Sequence[str], skipped: Any) -> InvalidInputError:
    reasons = "; ".join(reasons_of(skipped))
    return InvalidInputError(
        f"there is nothing to read in {', '.join(paths)}: "
        f"{f'left out were {reasons}' if reasons else 'no files'}. Read are .md, .rst, .txt, .py, "
        f".html and .pdf; the store was not touched"
    )


def _read(
    console: Console, found: FoundFiles, embedder_name: str
) -> tuple[FileReading, SentenceTransformerEmbedder | None]:
    """Return the chunks of what was found, each as long as the embedder reads at most, and it.

    Where no file needs to be read no embedder is loaded.
    """
    from sift_core.cli.index_writing import chunker_for
    from sift_core.cli.showing_text import working
    from sift_core.documents import FileReading, read_found

    if not found.files:
        return FileReading(documents=(), sources=(), skipped=found.skipped), None
    with working(f"Loading the embedder {embedder_name} …"):
        embedder = load_embedder(embedder_name)
    n_bytes = sum(file.n_bytes for file in found.files)
    n_files = len(found.files)
    with progress(
        console, f"Reading {n_files} {'file' if n_files == 1 else 'files'}", n_bytes
    ) as move:
        try:
            reading = read_found(
                found, chunker_for(embedder), on_file=lambda file: move(file.n_bytes)
            )
            return reading, embedder
        except KeyboardInterrupt:
            pass
    console.print("Stopped while reading. The store is as it was.")
    raise typer.Exit(130)


def _write_new(
    console: Console,
    plan: Plan,
    source: FaissSource | QdrantSource,
    reading: FileReading,
    embedder: SentenceTransformerEmbedder,
) -> IndexingReport:
    """Embed and write what is new; say how far it came where it is interrupted."""
    from sift_core.cli.index_writing import ProgressEmbedder, write_new
    from sift_core.cli.showing_text import one_line

    if plan.largest is not None:
        file, n_chunks = plan.largest
        console.print(f"{one_line(file)} alone makes {n_chunks:,} of {plan.n_new:,} new chunks.")
    title = f"Embedding {plan.n_new:,} {'chunk' if plan.n_new == 1 else 'chunks'}"
    with progress(console, title, plan.n_new) as move:
        counting = ProgressEmbedder(embedder, move)
        try:
            return write_new(source, reading, counting)
        except KeyboardInterrupt:
            interrupted = counting.n_stored
    console.print(
        f"Stopped. {interrupted:,} of {plan.n_new:,} new chunks are stored, nothing was deleted; "
        f"the same command goes on from there."
    )
    raise typer.Exit(130)
