"""`sift eval language-modeling`: bits per byte under selectors, modes and settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import sift_core
from sift_core.checks import as_count
from sift_core.cli.printing import form_of, list_of, part_names, print_results
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.evaluation.language_modeling.arms import Arm
from sift_core.evaluation.language_modeling.parts import PARTS, MainSettings, arms_of
from sift_core.evaluation.running.results_file import ResultsFile

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error

DEFAULTS = MainSettings()
TINY_LM = Path(sift_core.__file__).parents[1] / "examples/tiny_lm"
QUICK_PROMPTS = 1  # a domain
QUICK_STEPS = 10
QUICK_DOCUMENTS = 25  # a domain
QUICK_CHUNKS = 2  # a document


def language_modeling_command(
    data_space: Annotated[
        Path,
        typer.Option(help="Documents to choose from: JSON lines (.gz, .xz) of {text, domain, id}"),
    ],
    prompts: Annotated[Path, typer.Option(help="Documents to be scored, of other sources")],
    results: Annotated[
        Path, typer.Option(help="JSON lines; what is there already is not measured again")
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Name on the hub, or folder; examples/tiny_lm of a source tree"),
    ] = None,
    embedder: Annotated[
        str, typer.Option(help="A sentence-transformers model: name on the hub, or folder")
    ] = "all-MiniLM-L6-v2",
    parts: Annotated[
        str, typer.Option(help=f"With commas, of {', '.join(PARTS)}; or all")
    ] = "main,context",
    prompts_per_domain: Annotated[
        str | None, typer.Option(metavar="N|all", help="10; with --quick 1")
    ] = None,
    skip_per_domain: Annotated[
        int, typer.Option(help="Prompts of each domain left out before those")
    ] = 0,
    near_duplicates: Annotated[
        Path | None,
        typer.Option(help="JSON lines of {id, gram8_covered}: shares of prompts in the data space"),
    ] = None,
    source_digits: Annotated[
        str,
        typer.Option(help="Keeps documents whose source's SHA-1 ends in one of these hex digits"),
    ] = "0123456789abcdef",
    documents_per_domain: Annotated[
        int | None, typer.Option(help="Of the data space; all; with --quick 25")
    ] = None,
    chunk_tokens: Annotated[int, typer.Option(help="Length of chunks of the data space")] = 256,
    chunks_per_document: Annotated[
        int | None, typer.Option(help="From its beginning; all; with --quick 2")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(help="Length at which prompts are cut")] = 384,
    steps: Annotated[
        int | None,
        typer.Option(help=f"N, chunks to choose: {DEFAULTS.n_steps}; with --quick {QUICK_STEPS}"),
    ] = None,
    candidates: Annotated[
        int, typer.Option(help="K, the nearest to choose from")
    ] = DEFAULTS.n_candidates,
    noise_variance: Annotated[
        float, typer.Option(help="λ of SIFT and uncertainty sampling")
    ] = DEFAULTS.noise_variance,
    scope: Annotated[
        str, typer.Option(help="What learns: all, top:k (LoRA), head or full")
    ] = DEFAULTS.scope,
    learning_rate: Annotated[
        float, typer.Option(help="Of Adam, in that scope")
    ] = DEFAULTS.learning_rate,
    scope_rates: Annotated[
        str, typer.Option(help="Learning rates of the other scopes, for the part scope")
    ] = "head=2e-3,full=2e-4",
    device: Annotated[
        str | None, typer.Option(help="As in torch: cpu, cuda, ...; the fastest there is")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; each loads the model")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Workers on Ray: local, auto, or ray://host:10001"),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where embeddings are kept; the library's folder")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes, to see that all works; numbers say little")
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Measure bits per byte of prompts under selectors, context and fine-tuning.

    Run it again after an interruption, or with more parts or prompts: it adds what is missing.
    """
    form = form_of(as_markdown=as_markdown, as_json=as_json)
    names = part_names(parts)
    settings = MainSettings(
        scope=scope,
        learning_rate=learning_rate,
        noise_variance=noise_variance,
        n_candidates=as_count("--candidates", candidates, minimum=1),
        n_steps=as_count(
            "--steps", _or_quick(steps, quick, QUICK_STEPS, DEFAULTS.n_steps), minimum=1
        ),
        scope_rates=_rates(scope_rates),
    )
    arms = arms_of(names, settings)
    base_model = _base_model(model)
    n_prompts = _prompts(prompts_per_domain, QUICK_PROMPTS if quick else 10)
    file = ResultsFile(results)
    file.keys()  # a damaged file is told before an hour of work

    from sift_core.evaluation.analysis.part_tables import results_of_arms, tables_of
    from sift_core.evaluation.language_modeling.experiment import (
        LanguageModelingExperiment,
        run_language_modeling,
    )

    _check(arms)
    experiment = LanguageModelingExperiment(
        data_space=data_space,
        prompts=prompts,
        base_model=base_model,
        embedder=embedder,
        source_digits=source_digits,
        documents_per_domain=_or_quick(documents_per_domain, quick, QUICK_DOCUMENTS, None),
        prompts_per_domain=n_prompts,
        skipped_per_domain=skip_per_domain,
        near_duplicates=near_duplicates,
        chunk_tokens=chunk_tokens,
        chunks_per_document=_or_quick(chunks_per_document, quick, QUICK_CHUNKS, None),
        prompt_tokens=prompt_tokens,
        device=device,
    )
    rows = run_language_modeling(
        experiment, arms, file=file, workers=workers, ray_address=ray, cache_folder=cache
    )
    found = results_of_arms(rows, arms)
    others = {row.get("experiment") for row in file.rows()} - {found.experiment}
    which = f" --experiment {found.experiment}" if others else ""
    print_results(
        found,
        tables_of(found, names),
        form,
        files=[results],
        further=[
            f"Rows: {results}, experiment {found.experiment}",
            f"Report: sift eval report {results}{which} --output report.html",
        ],
    )


def _base_model(model: str | None) -> str:
    if model is not None:
        return model
    if (TINY_LM / "config.json").exists():
        return str(TINY_LM)
    raise InvalidInputError(
        "pass --model with a name on the hub or a folder: the default is examples/tiny_lm of the "
        "source tree, and this is an installed package"
    )


def _or_quick(value: int | None, quick: bool, of_quick: int, usual: int | None) -> int | None:
    """Return an option's value, or where it was left out what goes with --quick or without."""
    if value is not None:
        return value
    return of_quick if quick else usual


def _prompts(text: str | None, usual: int) -> int | None:
    if text is None:
        return usual
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(
            f"--prompts-per-domain must be a whole number of at least 1, or all, got {text!r}"
        )
    return int(text)


def _rates(text: str) -> dict[str, float]:
    """Return learning rates by scope from "head=2e-3,full=2e-4"."""
    rates: dict[str, float] = {}
    for entry in list_of("--scope-rates", text):
        scope, sign, rate = entry.partition("=")
        try:
            rates[scope.strip()] = float(rate)
        except ValueError:
            sign = ""
        if not sign:
            raise InvalidInputError(
                f"--scope-rates must be like head=2e-3,full=2e-4, got {entry!r} in it"
            )
    return rates


def _check(arms: Sequence[Arm]) -> None:
    """Refuse settings that would fail only after everything was embedded.

    Raises:
        InvalidInputError: If a λ, a scope or a learning rate is out of its range.
    """
    from sift_core.answering import FineTuningSettings

    for arm in arms:
        arm.make_selector()
        if arm.scope is not None:
            FineTuningSettings(scope=arm.scope, learning_rate=arm.learning_rate)
