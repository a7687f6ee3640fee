"""`sift index`: a store made equal to files and folders."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sift_core.cli.index_plan import LEAST_TOKENS, FileMemory, Plan, refuse_to_drop, some_of
from sift_core.cli.models import check_recorded_embedder, load_embedder, load_index_embedder
from sift_core.cli.options import (
    DEFAULT_EMBEDDER,
    DEFAULT_STORE,
    EmbedderOption,
    JsonOption,
    StoreOption,
)
from sift_core.cli.output import (
    Terminal,
    Working,
    counted,
    print_json,
    stderr_console,
    stdout_console,
)
from sift_core.cli.stores import StoreAddress, has_place, open_for_writing
from sift_core.cli.streams import one_line
from sift_core.documents import (
    Chunker,
    FileReading,
    FoundFiles,
    IndexingReport,
    find_files,
    index_documents,
    read_found,
)
from sift_core.documents.finding import FoundFile, SkippedPath
from sift_core.errors import InvalidInputError
from sift_core.options import CHARACTERS_A_TOKEN
from sift_core.protocols import DocumentIndex, Embedder

if TYPE_CHECKING:
    from sift_core.cli.models import LoadedEmbedder

MEGABYTE = 1_000_000
MAX_TOKENS = 256  # of a chunk: what MiniLM reads, and about what a context of ten has room for
CHUNKS_A_WRITE = 64  # what a killed process loses at most
N_WORDS_KEPT = 200_000
IDS_A_REMOVAL = 1000
LONGEST_WORD = 100  # characters; WordPiece makes one unknown token of a longer one


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
    json: JsonOption = False,
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
            opened = stack.enter_context(open_for_writing(address, embedder_name=embedder))
            stored = opened.files()
            if not prune:
                refuse_to_drop(address, set(stored.values()), found)
        recorded = opened.source.embedder_name if opened else None
        name = embedder or recorded or DEFAULT_EMBEDDER
        if recorded and recorded != embedder:
            check_recorded_embedder(recorded, str(address))
        memory = FileMemory(address, name, chunk_tokens=chunk_tokens)
        reading, model = _read(
            console,
            memory.recall(found, stored),
            name,
            load=load_embedder if float32 else load_index_embedder,
            chunk_tokens=memory.chunk_tokens,
        )
        if not reading.documents and not memory.unchanged:
            raise _nothing_to_read(paths, reading.skipped)
        plan = Plan.of(reading, stored, memory.unchanged)
        n_added, n_unchanged = 0, plan.n_chunks_unread
        if model is not None:
            dimension = len(model.embed_query("dimension"))
            if opened is None:
                opened = stack.enter_context(
                    open_for_writing(address, embedder_name=name, dimension=dimension)
                )
            # Now, not after the first batch was embedded: it keeps others from writing.
            opened.source.prepare(embedder_name=name, dimension=dimension)
            report = _write_new(console, plan, opened.source, reading, model)
            n_added, n_unchanged = report.n_added, n_unchanged + report.n_unchanged
        assert opened is not None  # else there was nothing to read
        _delete_stale(plan, opened.source)
        memory.remember(reading)
    record = {
        "store": str(address),
        "embedder": name,
        "chunk_tokens": memory.chunk_tokens,
        "n_files": plan.n_files,
        "n_chunks": n_added + n_unchanged,
        "n_added": n_added,
        "n_unchanged": n_unchanged,
        "n_deleted": len(plan.stale),
        "deleted_files": plan.deleted_files,
        "kept_files": plan.kept_files,
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


def chunker_for(embedder: LoadedEmbedder, chunk_tokens: int | None = None) -> Chunker:
    """Return a chunker whose chunks the embedder reads to their end.

    Tokens are counted word by word and remembered, some twenty times as fast as counting each
    text anew: exact for WordPiece (MiniLM, BERT), a few percent off for tokenizers that join
    spaces to words, whose models read more than 256. What has no spaces (a dump, a key) counts by
    its length at least: one unknown token would let any of it into one chunk.
    """
    n_marks = embedder.count_tokens("")
    most = embedder.max_tokens
    if chunk_tokens is not None and most is not None and chunk_tokens > most:
        raise InvalidInputError(
            f"--chunk-tokens is {chunk_tokens:,}, but {embedder.name} reads {most:,} tokens of a "
            f"chunk and nothing beyond; take {most:,} or fewer, or another --embedder"
        )

    @lru_cache(maxsize=N_WORDS_KEPT)
    def count(word: str) -> int:
        least = len(word) // CHARACTERS_A_TOKEN if len(word) > LONGEST_WORD else 0
        return max(embedder.count_tokens(word) - n_marks, least)

    return Chunker(
        chunk_tokens or min(most or MAX_TOKENS, MAX_TOKENS),
        size=lambda text: n_marks + sum(map(count, text.split())),
    )


def _nothing_to_read(paths: Sequence[str], skipped: Iterable[SkippedPath]) -> InvalidInputError:
    reasons = "; ".join(_reasons_of(skipped))
    return InvalidInputError(
        f"there is nothing to read in {', '.join(paths)}: "
        f"{f'left out were {reasons}' if reasons else 'no files'}. Read are .md, .rst, .txt, .py, "
        f".html and .pdf; the store was not touched"
    )


def _read(
    console: Terminal,
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
            return read_found(found, chunker, on_file=show), loaded[0]
        except KeyboardInterrupt:
            console.print("Stopped while reading. The store is as it was.")
            raise typer.Exit(130) from None


def _write_new(
    console: Terminal,
    plan: Plan,
    source: DocumentIndex,
    reading: FileReading,
    embedder: Embedder,
) -> IndexingReport:
    """Embed and write what is new; say how far it came where it is interrupted."""
    n_before = len(source.content_ids())
    try:
        return index_documents(
            source, reading.documents, embedder, batch_size=CHUNKS_A_WRITE, delete_vanished=False
        )
    except KeyboardInterrupt:
        n_stored = len(source.content_ids()) - n_before
        console.print(
            f"Stopped. {n_stored:,} of {plan.n_new:,} new chunks are stored, nothing was deleted; "
            f"the same command goes on from there."
        )
        raise typer.Exit(130) from None


def _delete_stale(plan: Plan, source: DocumentIndex) -> None:
    """Delete the chunks that the files no longer have, a thousand at a time."""
    stale = iter(sorted(plan.stale))
    while ids := list(islice(stale, IDS_A_REMOVAL)):
        source.remove(ids)
    if plan.stale:
        source.complete()


def _print_summary(
    record: dict[str, Any], address: StoreAddress, skipped: Sequence[SkippedPath]
) -> None:
    """Print what was done and left out, and what to do next."""
    console = stdout_console()
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
        found.setdefault(path.reason.value, []).append(one_line(path.source))
    return [
        f"{len(names)} {reason}: {some_of(names)}"
        for reason, names in sorted(found.items(), key=lambda entry: -len(entry[1]))
    ]
