"""What the demo prints and draws."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sift_core import Answer, CandidatePool, Query, posterior_variances
from sift_core.cli.output import shortened, source_of, sparkline
from sift_core.records import repeats_of

BLUE, GREY = "#0072B2", "#999999"
NARROW = 34  # columns of a terminal that a list needs


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """How the model did in one mode."""

    mode: str
    bits_per_byte: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """What each method chose for one question; positions by the method's name."""

    query: Query
    pool: CandidatePool
    chosen: Mapping[str, np.ndarray]
    select_s: float

    def chunks(self, name: str) -> CandidatePool:
        """Return a method's choice."""
        return self.pool.take(self.chosen[name])

    def n_alike(self, name: str) -> int:
        """Return how many of a method's chunks repeat an earlier one, up to a few words."""
        return sum(repeat is not None for repeat in repeats_of(self.chunks(name).embeddings))

    def variances(self, name: str) -> np.ndarray:
        """Return σ² at the question after 0, 1, ... chunks, in the paper's setting."""
        return posterior_variances(self.query.vector, self.chunks(name).embeddings)

    def n_new(self) -> int:
        """Return how many of SIFT's chunks are not among the nearest."""
        return len(set(self.chosen["SIFT"].tolist()) - set(self.chosen["nearest"].tolist()))


def progress(console: Console) -> Progress:
    """Return a bar that vanishes; none where nobody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_comparison(console: Console, compared: Comparison) -> None:
    n_columns = len(compared.chosen) if console.width >= NARROW * len(compared.chosen) else 1
    width = console.width // n_columns - 2
    columns = []
    for name in compared.chosen:
        chunks = compared.chunks(name)
        variance = compared.variances(name)[-1]
        title = f"{name}: {compared.n_alike(name)} of {len(chunks)} repeat, σ² {variance:.2f}"
        lines = [Text(shortened(title, width), style="bold"), *_lines(chunks, width)]
        columns.append(Text("\n").join(lines))
    console.print(Columns(columns, width=width, padding=(0, 2)))
    console.print(
        "[dim]≈3, ≡3: says nearly what number 3 says. σ²: what stays uncertain about the "
        f"question. SIFT chose from {len(compared.pool)} in {compared.select_s * 1000:.1f} ms.[/]"
    )
    for name in ("nearest", "SIFT"):
        console.print(f"[dim]  {name:8s}{sparkline(compared.variances(name).tolist())}[/]")
    if not compared.n_alike("nearest"):
        console.print(
            f"The nearest chunks do not repeat each other: SIFT has nothing to take out here, and "
            f"changes {compared.n_new()} of {len(compared.chosen['SIFT'])}."
        )


def _lines(chunks: CandidatePool, width: int) -> list[Text]:
    """Return rank, mark, cosine to the question and name of each chunk."""
    lines = []
    for i, repeat in enumerate(repeats_of(chunks.embeddings)):
        head = (
            f"{i + 1:2d} {'' if repeat is None else repeat.mark:<3} {chunks.similarities[i]:.2f} "
        )
        name = source_of(chunks.metadata[i], chunks.document_ids[i], width - len(head))
        lines.append(Text(head + name, style="dim strike" if repeat else ""))
    return lines


def print_answer_line(console: Console, answer: Answer, started: float, first: float) -> None:
    """Print what an answer took: tokens read, the time to the first, and tokens a second."""
    writing = time.perf_counter() - first
    speed = (answer.n_new_tokens - 1) / writing if answer.n_new_tokens > 1 and writing else 0.0
    console.print(
        f"\n[dim]  {answer.n_prompt_tokens} tokens read, first word after "
        f"{first - started:.1f} s, {speed:.0f} tokens/s[/]"
    )


def print_modes(
    console: Console, results: Sequence[ModeResult], held_back: str, n_steps: int
) -> None:
    name = shortened(held_back.split("\n")[0], 60)
    console.print(
        f"\nHeld back: [bold]{escape(name)}[/] ({len(held_back.encode())} bytes; no candidate "
        f"repeats a line of it). How well does the model predict it with SIFT's chunks?"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("mode", "bits per byte", "of base", "seconds"):
        table.add_column(title, justify="left" if title == "mode" else "right")
    for result in results:
        share = result.bits_per_byte / results[0].bits_per_byte
        bits = f"{result.bits_per_byte:.3f}"
        table.add_row(result.mode, bits, f"{share:.0%}", f"{result.seconds:.1f}")
    console.print(table)
    console.print(f"[dim]fine_tune: a LoRA, {n_steps} steps; both: learned and read.[/]")


def print_others(
    console: Console, shown: Sequence[Comparison], compared: Sequence[Comparison]
) -> None:
    """Print two more questions in a table, and the mean of all."""
    names = list(compared[0].chosen)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("repeats among ten")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("SIFT changes", justify="right")
    for one in shown:
        numbers = [str(one.n_alike(name)) for name in names]
        table.add_row(escape(one.query.text), *numbers, str(one.n_new()))
    means = [f"{np.mean([one.n_alike(name) for one in compared]):.1f}" for name in names]
    changes = f"{np.mean([one.n_new() for one in compared]):.1f}"
    table.add_row(f"mean of all {len(compared)}", *means, changes, style="bold")
    console.print()
    console.print(table)


def draw(compared: Comparison, modes: Sequence[ModeResult], path: Path) -> None:
    """Write a PNG: what the nearest neighbours and SIFT choose, and bits per byte by mode."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    *lists, bars = figure.subplots(1, 3, width_ratios=[4, 4, 3])
    for axis, name in zip(lists, ("nearest", "SIFT"), strict=True):
        chunks = compared.chunks(name)
        axis.set_axis_off()
        title = "nearest neighbours" if name == "nearest" else name
        axis.set_title(f"{title}: {compared.n_alike(name)} repeat", fontsize=10, loc="left")
        for i, repeat in enumerate(repeats_of(chunks.embeddings)):
            source = source_of(chunks.metadata[i], chunks.document_ids[i], 42)
            mark = "" if repeat is None else f"  {repeat.mark}"
            axis.text(
                0,
                1 - (i + 0.5) / len(chunks),
                f"{i + 1}  {source}{mark}",
                fontsize=8,
                color=BLUE if repeat is None else GREY,
                transform=axis.transAxes,
            )
    drawn = bars.bar(
        [result.mode.replace("_", "-") for result in modes],
        [result.bits_per_byte for result in modes],
        color=[GREY, *[BLUE] * (len(modes) - 1)],
    )
    bars.bar_label(drawn, fmt="%.2f", fontsize=8)
    bars.set_title("bits per byte of a held-back passage", fontsize=10, loc="left")
    bars.tick_params(labelsize=8)
    bars.spines[["top", "right"]].set_visible(False)
    figure.suptitle(compared.query.text, fontsize=9, x=0.01, ha="left", wrap=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
