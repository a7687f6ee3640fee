"""What the demo prints and draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sift_core import CandidatePool, Query, SIFTSelector, posterior_variances

REDUNDANT_COSINE = 0.8  # two docstrings this close say mostly the same; a guess by eye
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito: safe for all eyes
SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """How the model did in one mode."""

    mode: str
    bits_per_byte: float
    continuation: str
    n_chunks: int
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class QuestionResult:
    """Everything that the demo shows of one question."""

    query: Query
    pool: CandidatePool
    held_back: str
    nearest: CandidatePool
    sift: CandidatePool
    modes: list[ModeResult] = field(default_factory=list)

    def variances(self, chunks: CandidatePool) -> np.ndarray:
        """Return σ² at the question after 0, 1, ... of the chunks, in the paper's setting."""
        return posterior_variances(self.query.embedding, chunks.embeddings)


def redundant(chunks: CandidatePool) -> list[bool]:
    """Return for each chunk whether an earlier one says mostly the same."""
    rows = chunks.embeddings / np.linalg.norm(chunks.embeddings, axis=1, keepdims=True)
    cosines = np.tril(rows @ rows.T, k=-1)
    return [bool(row.max(initial=0.0) >= REDUNDANT_COSINE) for row in cosines]


def print_choices(console: Console, result: QuestionResult, select_s: float) -> None:
    width = max(16, (console.width - 2) // 2 - len("10 ≈ 0.00 "))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, chunks in (("nearest neighbours", result.nearest), ("SIFT", result.sift)):
        n_redundant = sum(redundant(chunks))
        table.add_column(f"{title}, {n_redundant} of {len(chunks)} redundant ≈", no_wrap=True)
    for cells in zip(_names(result.nearest, width), _names(result.sift, width), strict=True):
        table.add_row(*cells)
    console.print(table)
    console.print(
        f"SIFT chose {len(result.sift)} of {len(result.pool)} candidates in {select_s * 1000:.1f} "
        f"ms. Uncertainty σ² about the answer after 0 to {len(result.sift)} chunks:"
    )
    for title, chunks in (("nearest", result.nearest), ("SIFT", result.sift)):
        variances = result.variances(chunks)
        numbers = " ".join(f"{v:.2f}" for v in variances)
        console.print(f"  {title:8s} {_sparkline(variances)}  {numbers}")


def _names(chunks: CandidatePool, width: int) -> list[Text]:
    """Return rank, cosine to the question and name of each chunk, redundant ones marked."""
    rows = []
    marks = redundant(chunks)
    for i, (metadata, similarity) in enumerate(
        zip(chunks.metadata, chunks.similarities, strict=True)
    ):
        part = "" if metadata["part"] == 1 else f" #{metadata['part']}"
        name = _shortened_left(metadata["name"] + part, width)
        text = f"{i + 1:2d} {'≈' if marks[i] else ' '} {similarity:.2f} {name}"
        rows.append(Text(text, style="dim" if marks[i] else ""))
    return rows


def print_modes(console: Console, result: QuestionResult, opening: str) -> None:
    name = result.held_back.split("\n")[0]
    console.print(
        f"\nHeld back: [bold]{escape(_shortened(name, 70))}[/] "
        f"({len(result.held_back.encode())} bytes, not among the candidates). "
        f"How well does the model predict it?"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("mode", "chunks", "bits per byte", "of base", "seconds"):
        table.add_column(title, justify="left" if title == "mode" else "right")
    base = result.modes[0].bits_per_byte
    for mode in result.modes:
        table.add_row(
            mode.mode,
            str(mode.n_chunks),
            f"{mode.bits_per_byte:.3f}",
            f"{mode.bits_per_byte / base:.0%}",
            f"{mode.seconds:.1f}",
        )
    console.print(table)
    console.print(f"After “{escape(_one_line(opening))}” it goes on:")
    for mode in result.modes:
        line = f"  {mode.mode:9s} {_one_line(mode.continuation)}"
        console.print(Text(_shortened(line, console.width)))


def draw(results: list[QuestionResult], path: Path) -> None:
    """Write a PNG: a row a question, its uncertainty curves and its bits per byte."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(results), 2, squeeze=False, width_ratios=[3, 2])
    for (curves, bars), result in zip(axes, results, strict=True):
        query, pool = result.query.embedding, result.pool.embeddings
        paper = SIFTSelector.for_fine_tuning().select(query, pool, len(result.sift))
        for label, variances, color, style in (
            ("nearest neighbours", result.variances(result.nearest), ORANGE, "o-"),
            ("SIFT, for context", result.variances(result.sift), BLUE, "s-"),
            ("SIFT, paper's setting", paper.variances, GREEN, "^-"),
        ):
            curves.plot(variances, style, color=color, label=label, markersize=4)
        curves.set(ylim=(0, 1.05), xlabel="chunks chosen", ylabel="σ² at the question")
        curves.set_title(result.query.text, fontsize=9, loc="left")
        curves.legend(fontsize=8, frameon=False)
        labels = [mode.mode.replace("_", "-") for mode in result.modes]
        heights = [mode.bits_per_byte for mode in result.modes]
        drawn = bars.bar(labels, heights, color=["#999999", BLUE, GREEN])
        bars.bar_label(drawn, fmt="%.2f", fontsize=8)
        bars.set_ylabel("bits per byte, lower is better")
        bars.set_ylim(0, max(heights) * 1.15)
        bars.set_title("held-back passage", fontsize=9, loc="left")
        for axis in (curves, bars):
            axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _sparkline(values: np.ndarray) -> str:
    """Return a bar a value; a full one is the first value."""
    levels = np.clip(values / values[0] * len(SPARKS), 0, len(SPARKS) - 1).astype(int)
    return "".join(SPARKS[level] for level in levels)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _shortened_left(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[1 - width :]
