"""`sift calibrate`: which way to answer is best for an index, for mode auto to go by."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sift_core.cli import options as flags
from sift_core.cli.learn import EVERY_S
from sift_core.cli.models import load_language_model
from sift_core.cli.output import Terminal, Working, print_json, print_table
from sift_core.cli.stores import DEFAULT_COLLECTION, StoreAddress, open_with_embedder
from sift_core.errors import InvalidInputError
from sift_core.evaluation.statistics import mean
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering import Calibration, LanguageModel


def calibrate(
    store: flags.StoreOption = flags.DEFAULT_STORE,
    model: flags.ModelOption = flags.DEFAULT_MODEL,
    embedder: flags.EmbedderOption = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Your own questions with answers, one {"question": …, "answer": …} a line. '
            "Passages of the index that are held back stand in if left out.",
        ),
    ] = None,
    examples: Annotated[int, typer.Option(min=8, help="How many are measured at most.")] = 40,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="After how many no other example begins.")
    ] = 10.0,
    effort: flags.EffortOption = "balanced",
    adapters: flags.AdaptersOption = flags.DEFAULT_ADAPTERS,
    calibration: flags.CalibrationOption = None,
    device: flags.DeviceOption = None,
    dtype: flags.DtypeOption = "auto",
    json: flags.JsonOption = False,
) -> None:
    """Measure what reading and learning bring on this index; sift ask and sift serve go by it.

    Holds passages back, and has the model predict each one's second half from the first, in every
    way: alone, with the chunks read, with them learned, and both. Ctrl-C ends it; what was
    measured by then is kept.

    Examples:
    sift calibrate
    sift calibrate --questions answered.jsonl --minutes 20
    """
    pairs = [] if questions is None else _pairs(questions)
    place = place_of(StoreAddress.parse(store)) if calibration is None else Path(calibration)
    found: list[Calibration] = []
    begun = time.monotonic()
    with open_with_embedder(store, embedder) as opened:
        with Working("Loading the language model …") as status:
            from sift_core.answering import AnswerEngine, load_learned  # with torch
            from sift_core.answering.calibrating import LEAST_EXAMPLES
            from sift_core.answering.calibrating import calibrate as measure

            language_model = load_language_model(model, device, dtype=dtype, console=status.console)
            has_adapters = bool(pairs) and Path(adapters).is_dir()
            engine = AnswerEngine(
                language_model=language_model,
                source=opened.source,
                embedder=opened.embedder,
                adapters=load_learned(adapters, language_model) if has_adapters else None,
                effort=effort,
            )
            status.update("Measuring the machine …")
            last_line = [begun]

            def keep(so_far: Calibration) -> None:
                n = len(so_far.examples)
                if n >= LEAST_EXAMPLES:
                    so_far.save(place)
                    found[:] = [so_far]
                line = f"{n} of at most {examples} examples, {_minutes(begun)} of {minutes:g} min"
                status.update(f"{line} …")
                if not status.notes.is_terminal and time.monotonic() - last_line[0] >= EVERY_S:
                    last_line[0] = time.monotonic()
                    status.notes.say(line)

            try:
                measure(engine, n=examples, minutes=minutes, questions=pairs, on_example=keep)
            except KeyboardInterrupt:
                if not found:
                    raise
    if json:
        print_json(_record(found[0], place, str(opened.address)))
    else:
        _print(found[0], place, of="questions" if pairs else "passages", took=_minutes(begun))


def place_of(address: StoreAddress) -> Path:
    """Return where an index's calibration is kept unless another place is named: beside it.

    That of a server is in the current folder.
    """
    end = "" if address.collection == DEFAULT_COLLECTION else f"-{address.collection}"
    beside = ".sift" if address.is_server else address.location.rstrip("/\\")
    return Path(f"{beside}-calibration{end}")


def engine_options(
    address: StoreAddress, named: str | None, adapters: str | None, language_model: LanguageModel
) -> dict[str, Any]:
    """Return an engine's `policy`, `cost_model` and `adapters`, as calibrated; none if nothing was.

    Args:
        address: The index.
        named: File of a calibration; one beside the index is used if None, where it can be.
        adapters: Where `sift learn` may have kept its adapter, for a calibration with mode
            "merged".
        language_model: Answers.

    Raises:
        InvalidInputError: If the named one cannot be used.
    """
    place = place_of(address) if named is None else Path(named)
    if named is None and not place.is_file():
        return {}
    from sift_core.answering import Calibration, load_learned

    try:
        found = Calibration.load(place, language_model)
        options: dict[str, Any] = {"policy": found.policy, "cost_model": found.cost_model}
        has_merged = any(way.mode is AnswerMode.MERGED for way in found.ways)
        if has_merged and adapters is not None and Path(adapters).is_dir():
            options["adapters"] = load_learned(adapters, language_model)
        return options
    except InvalidInputError as error:
        if named is not None:
            raise
        Terminal(stderr=True).say(
            f"{error}. Mode auto reads what fits, as without one.", style="dim"
        )
        return {}


def _pairs(path: Path) -> list[tuple[str, str]]:
    from sift_core.evaluation.data import read_json_lines

    return [(line.text("question"), line.text("answer")) for line in read_json_lines(path)]


def _minutes(begun: float) -> str:
    return f"{(time.monotonic() - begun) / 60:.1f}"


def _record(found: Calibration, place: Path, store: str) -> dict[str, Any]:
    means = zip(found.bits_per_byte.mean(axis=0), found.seconds.mean(axis=0), strict=True)
    return {
        "calibration": str(place),
        "store": store,
        "model": found.model,
        "n_examples": len(found.examples),
        "ways": [
            {
                "mode": way.mode.value,
                "n_steps": way.n_steps,
                "bits_per_byte": float(bits),
                "seconds": float(seconds),
            }
            for way, (bits, seconds) in zip(found.ways, means, strict=True)
        ],
        "preferred": [str(way) for way in found.policy.saved],
        "split": None if found.policy.split is None else str(found.policy.split),
    }


def _print(found: Calibration, place: Path, *, of: str, took: str) -> None:
    bits, seconds = found.bits_per_byte, found.seconds.mean(axis=0)
    base = bits[:, :1].mean()
    console = Terminal()
    print_table(
        console,
        ("way", "bits per byte", "saved, %", "seconds"),
        [
            (
                str(way),
                f"{bits[:, i].mean():.3f}",
                mean(100 * (bits[:, 0] - bits[:, i]) / base).text(),
                f"{seconds[i]:.1f}",
            )
            for i, way in enumerate(found.ways)
        ],
        title=f"{len(bits)} {of} in {took} minutes",
    )
    console.say(
        "\nBits of the answer, or of a passage's second half: fewer are better. Saved: of "
        "base's, with a 90 % interval. Seconds: of learning and reading.\n"
    )
    split = found.policy.split
    console.say(
        f"Mode auto takes {next(iter(found.policy.saved))} from now on, where a caller's time "
        f"allows it."
        if split is None
        else f"Mode auto takes from now on: {split}."
    )
    if of == "passages":
        console.say(
            f"For questions of fewer than {found.policy.shortest} tokens it reads what fits: "
            f"passages say nothing of those. Calibrate for them by --questions."
        )
    console.say(f"Kept in {place}, which sift ask and sift serve use.")
