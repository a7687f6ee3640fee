"""`sift calibrate`: which way to answer is best for an index, for mode auto to go by."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sift_core.cli import options as flags
from sift_core.cli.engine import calibration_path
from sift_core.cli.learn import EVERY_S
from sift_core.cli.models import load_language_model
from sift_core.cli.output import Terminal, Working, print_json, print_table
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_with_embedder
from sift_core.evaluation.statistics import mean

if TYPE_CHECKING:
    from sift_core.answering.calibration import Calibration


@flags.with_flags()
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
    *,
    layout: flags.StoreLayout,
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
    path = Path(calibration) if calibration else calibration_path(StoreAddress.parse(store))
    saved: list[Calibration] = []
    started = time.monotonic()
    with open_with_embedder(store, embedder, layout) as opened:
        language_model = load_language_model(model, device, dtype=dtype)
        from sift_core.answering import LearningOptions
        from sift_core.answering.calibration import LEAST_EXAMPLES
        from sift_core.answering.calibration import calibrate as measure
        from sift_core.answering.collection import load_learned

        has_adapters = bool(pairs) and Path(adapters).is_dir()
        learned = load_learned(adapters, language_model) if has_adapters else None
        with Working("Measuring the machine …") as status:
            last_line = [started]

            def keep(so_far: Calibration) -> None:
                n = len(so_far.examples)
                if n >= LEAST_EXAMPLES:
                    so_far.save(path)
                    saved[:] = [so_far]
                line = f"{n} of at most {examples} examples, {_minutes(started)} of {minutes:g} min"
                status.update(f"{line} …")
                if not status.notes.is_terminal and time.monotonic() - last_line[0] >= EVERY_S:
                    last_line[0] = time.monotonic()
                    status.notes.say(line)

            try:
                measure(
                    language_model,
                    opened.source,
                    opened.embedder,
                    learning=LearningOptions(effort=effort, adapter=learned),
                    n=examples,
                    minutes=minutes,
                    questions=pairs,
                    on_example=keep,
                )
            except KeyboardInterrupt:
                if not saved:
                    raise
    if json:
        print_json(_record(saved[0], path, str(opened.address)))
    else:
        _print(saved[0], path, of="questions" if pairs else "passages", took=_minutes(started))


def _pairs(path: Path) -> list[tuple[str, str]]:
    from sift_core.evaluation.data import read_json_lines

    return [(line.text("question"), line.text("answer")) for line in read_json_lines(path)]


def _minutes(started: float) -> str:
    return f"{(time.monotonic() - started) / 60:.1f}"


def _record(calibration: Calibration, path: Path, store: str) -> dict[str, Any]:
    bits, seconds = calibration.bits_per_byte.mean(axis=0), calibration.seconds.mean(axis=0)
    policy = calibration.policy
    return {
        "calibration": str(path),
        "store": store,
        "model": calibration.model,
        "n_examples": len(calibration.examples),
        "strategies": [
            {
                "mode": strategy.mode.value,
                "n_steps": strategy.n_steps,
                "bits_per_byte": float(bits[i]),
                "seconds": float(seconds[i]),
            }
            for i, strategy in enumerate(calibration.strategies)
        ],
        "preferred": [str(strategy) for strategy in policy.saved],
    }


def _print(calibration: Calibration, path: Path, *, of: str, took: str) -> None:
    bits, seconds = calibration.bits_per_byte, calibration.seconds.mean(axis=0)
    policy = calibration.policy
    base = bits[:, :1].mean()
    console = Terminal()
    print_table(
        console,
        ("strategy", "bits per byte", "saved, %", "seconds"),
        [
            (
                str(strategy),
                f"{bits[:, i].mean():.3f}",
                mean(100 * (bits[:, 0] - bits[:, i]) / base).text(),
                f"{seconds[i]:.1f}",
            )
            for i, strategy in enumerate(calibration.strategies)
        ],
        title=f"{len(bits)} {of} in {took} minutes",
    )
    console.say(
        "\nBits of the answer, or of a passage's second half: fewer are better. Saved: of "
        "base's, with a 90 % interval. Seconds: of learning and reading.\n"
    )
    console.say(
        f"Mode auto takes {next(iter(policy.saved))} from now on, where a caller's time allows it."
    )
    if of == "passages":
        console.say(
            f"For questions of fewer than {policy.shortest} tokens it reads what fits: "
            f"passages say nothing of those. Calibrate for them by --questions."
        )
    console.say(f"Kept in {path}, which sift ask and sift serve use.")
