"""What the demo prints and draws."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

import numpy as np
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sift_core import Answer, CandidatePool, Query, posterior_variances
from sift_core.cli.output import counted, shortened, source_of, sparkline
from sift_core.repeats import repeats_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, GREY = "#0072B2", "#999999"
TITLES = {"nearest": "nearest neighbours"}
STYLES: Mapping[str, Mapping[str, str]] = {
    "nearest": {"color": BLUE, "marker": "s", "linestyle": "--"},
    "MMR": {"color": GREY, "marker": "^", "linestyle": ":"},
    "SIFT": {"color": "#D55E00", "marker": "o"},
}
NARROW = 26  # columns of a terminal that a list needs
WIDE = 34  # from which it has cosines, too


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """How the model did in one mode."""

    mode: str
    bits_per_byte: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The choice of each method for one question: positions by the method's name.

    `select_s` is how many seconds a choice of SIFT takes.
    """

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

    def n_copies(self, name: str) -> int:
        """Return how many of a method's chunks hardly differ from an earlier one."""
        repeats = repeats_of(self.chunks(name).embeddings)
        return sum(repeat is not None and repeat.is_copy for repeat in repeats)

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
    """Print the choices side by side, what is left uncertain, and whether SIFT changes anything."""
    n_columns = len(compared.chosen) if console.width >= NARROW * len(compared.chosen) else 1
    width = console.width // n_columns - 2
    columns = []
    for name in compared.chosen:
        chunks = compared.chunks(name)
        title = f"{name}: {compared.n_alike(name)} of {len(chunks)} repeat"
        lines = [Text(shortened(title, width), style="bold"), *_lines(chunks, width)]
        columns.append(Text("\n").join(lines))
    console.print(Columns(columns, width=width, padding=(0, 2)))
    console.print(
        "[dim]≈3, ≡3: says nearly what number 3 says. What stays uncertain about the question, "
        "σ², before and after each chunk:[/]"
    )
    for name in compared.chosen:
        variances = compared.variances(name)
        console.print(f"[dim]  {name:8s}{sparkline(variances.tolist())} {variances[-1]:.2f}[/]")
    n_chosen = len(compared.chosen["SIFT"])
    about = f"SIFT chose from {len(compared.pool)} in {compared.select_s * 1000:.1f} ms"
    if not compared.n_new():
        console.print(f"{about}, and changes nothing: its {n_chosen} are the nearest.")
    elif not compared.n_alike("nearest"):
        console.print(
            f"{about}. The nearest do not repeat each other, so there is nothing to take out; it "
            f"changes {compared.n_new()} of {n_chosen}."
        )
    else:
        console.print(f"{about}: {compared.n_new()} of {n_chosen} are not among the nearest.")


def _lines(chunks: CandidatePool, width: int) -> list[Text]:
    """Return rank, mark and name of each chunk, and its cosine to the question where it fits."""
    lines = []
    for i, repeat in enumerate(repeats_of(chunks.embeddings)):
        head = f"{i + 1:2d} {'' if repeat is None else repeat.mark:<2} "
        if width >= WIDE - 2:
            head += f"{chunks.similarities[i]:.2f} "
        name = _name(chunks, i, width - len(head))
        lines.append(Text(head + name, style="dim strike" if repeat else ""))
    return lines


def _name(chunks: CandidatePool, i: int, width: int) -> str:
    """Return where a chunk comes from; of a Python name that is too long the last part."""
    source = source_of(chunks.metadata[i], chunks.document_ids[i], width)
    whole = str(chunks.metadata[i].get("source", ""))
    last = whole.rpartition(".")[2]
    if cell_len(whole) > width and last and chunks.document_ids[i].endswith(f".{last}"):
        return last if len(last) <= width else f"{last[: width // 2 - 1]}…{last[-width // 2 :]}"
    return source


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
    console.print(
        f"[dim]fine_tune: a LoRA of {counted(n_steps, 'step')}, which is kept; both: learned and "
        f"read.[/]"
    )


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
    """Write a PNG: what each method chooses, how σ² falls, and bits per byte by mode."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subfigures(2, 1, height_ratios=[3, 2])
    for axis, name in zip(top.subplots(1, len(compared.chosen)), compared.chosen, strict=True):
        _draw_list(axis, compared, name)
    curves, bars = bottom.subplots(1, 2, width_ratios=[3, 2])
    for name in compared.chosen:
        variances = compared.variances(name)
        curves.plot(variances, label=TITLES.get(name, name), **STYLES[name])
    curves.set_title("what stays uncertain about the question (σ²)", loc="left", fontsize=10)
    curves.set_xlabel("chunks read")
    curves.legend(frameon=False)
    drawn = bars.bar(
        [result.mode.replace("_", "-") for result in modes],
        [result.bits_per_byte for result in modes],
        color=[GREY, *[BLUE] * (len(modes) - 1)],
    )
    bars.bar_label(drawn, fmt="%.2f")
    bars.margins(y=0.12)
    bars.set_title("bits per byte of a held-back passage", loc="left", fontsize=10)
    for axis in (curves, bars):
        axis.spines[["top", "right"]].set_visible(False)
    question = compared.query.text.replace("$", r"\$")
    figure.suptitle(fill(question, 100), fontsize=11, x=0.01, ha="left", weight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    with catch_warnings():
        filterwarnings("ignore", message="Glyph .* missing from font")  # of scripts, emojis
        figure.savefig(path, dpi=150, metadata={"Software": None})


def _draw_list(axis: Axes, compared: Comparison, name: str) -> None:
    """Write a method's choice, what repeats an earlier chunk in grey."""
    chunks = compared.chunks(name)
    axis.set_axis_off()
    title = f"{TITLES.get(name, name)}: {compared.n_alike(name)} of {len(chunks)} repeat"
    axis.set_title(title, loc="left", fontsize=10, weight="bold")
    for i, repeat in enumerate(repeats_of(chunks.embeddings)):
        line = f"{i + 1}  {_name(chunks, i, 40)}"
        if repeat is not None:
            line = f"{i + 1}  {repeat.mark}  {_name(chunks, i, 36)}"
        axis.text(
            0,
            1 - (i + 0.5) / len(chunks),
            line.replace("$", r"\$"),
            fontsize=8.5,
            color="black" if repeat is None else GREY,
            transform=axis.transAxes,
        )
