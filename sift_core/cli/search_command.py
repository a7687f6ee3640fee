"""`sift search`: which chunks SIFT chooses for a question, also beside other methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from sift_core.cli.search_retrieval import embedder_of, question_from, retrieved
from sift_core.cli.select_command import KernelName
from sift_core.cli.settings import DEFAULT_STORE, EmbedderOption, JsonOption, StoreOption
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

if TYPE_CHECKING:
    from sift_core.protocols import Selector
    from sift_core.types import CandidatePool, Query


def search(
    question: Annotated[
        str,
        typer.Argument(metavar="QUESTION", help='What to look for; "-" reads it from stdin.'),
    ],
    store: StoreOption = DEFAULT_STORE,
    embedder: EmbedderOption = None,
    n_select: Annotated[
        int, typer.Option("-n", "--n-select", min=1, help="How many chunks to choose.")
    ] = 10,
    candidates: Annotated[
        int, typer.Option(min=1, help="How many of the nearest to choose from.")
    ] = 200,
    kernel: Annotated[
        KernelName,
        typer.Option(help="auto reads its scales from the candidates; linear is the paper's."),
    ] = KernelName.AUTO,
    noise_variance: Annotated[
        float | None,
        typer.Option(
            help="λ > 0; .2 with auto, .1 with rbf, .01 with linear if left out.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Nearest neighbours, MMR and SIFT side by side.")
    ] = False,
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Fetch more where the candidates repeat one another."),
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Print the whole text of chunks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the chunks that together say most about QUESTION.

    Examples:
    sift search "How do I upload a file and its description?" -n 5
    sift search "What changed in 0.115?" --compare
    sift search - --json < question.txt
    """
    from sift_core.cli.stores import StoreAddress, open_store
    from sift_core.selection import selector_from_settings

    question = question_from(question)
    if candidates < n_select:
        raise InvalidInputError(
            f"--candidates must be >= --n-select, got {candidates} and {n_select}"
        )
    if compare and full:
        raise InvalidInputError("--compare prints no texts; pass --full without it, or --json")
    selector = selector_from_settings(kernel=kernel.value, noise_variance=noise_variance)
    address = StoreAddress.parse(store)
    with open_store(address, embedder_name=embedder) as source:
        model = embedder_of(source, address)
        n_distinct = n_select if adaptive else None
        query, pool = retrieved(source, model, question, candidates, n_distinct=n_distinct)
    asked = {
        "question": question,
        "store": str(address),
        "embedder": model.name,
        "n_candidates": len(pool),
    }
    _show(query, pool, selector, n_select, asked, compare=compare, full=full, as_json=as_json)


def _show(
    query: Query,
    pool: CandidatePool,
    selector: Selector,
    n_select: int,
    asked: dict[str, Any],
    *,
    compare: bool,
    full: bool,
    as_json: bool,
) -> None:
    from sift_core.cli.search_methods import compared_columns, sift_column
    from sift_core.cli.search_printing import print_comparison, print_search
    from sift_core.cli.showing_text import print_json, stdout_console

    if compare:
        columns = compared_columns(query, pool, selector, n_select)
        if as_json:
            records = {name: column.record() for name, column in columns.items()}
            print_json({**asked, "columns": records})
        else:
            print_comparison(stdout_console(), columns)
        return
    column = sift_column(query, pool, selector, n_select)
    if as_json:
        print_json({**asked, **column.record()})
    else:
        print_search(stdout_console(), column, n_candidates=len(pool), n_lines=None if full else 2)
