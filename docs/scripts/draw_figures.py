"""Draw the figures of docs/how-it-works.md from real embeddings.

    python docs/scripts/draw_figures.py [FOLDER]

A question with two halves and 24 passages (passages.txt), of which six are one passage in six
versions of a documentation. all-MiniLM-L6-v2, so nothing is downloaded. FOLDER is docs/images if
left out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sift_core import (
    ContextSelector,
    NearestNeighborSelector,
    SIFTSelector,
    irreducible_variance,
    posterior_variances,
)
from sift_core.embedders import SentenceTransformerEmbedder
from sift_core.types import FloatArray, IntArray

HERE = Path(__file__).parent
PASSAGES = (HERE / "passages.txt").read_text(encoding="utf-8").splitlines()
QUESTION = "How do I read a CSV file and compress it with gzip?"
N_VERSIONS = 6  # the first passages: one text in so many versions
N_SHOWN = 6  # choices in the first figure
N_STEPS = 8  # choices in the second
NAMES = {"NN": "nearest neighbours", "sift": "SIFT, the default", "sift_paper": "SIFT, paper's λ"}
STYLES: dict[str, dict[str, str]] = {
    "NN": {"color": "#0072B2", "marker": "s", "linestyle": "--"},
    "sift": {"color": "#D55E00", "marker": "o", "linestyle": "-"},
    "sift_paper": {
        "color": "#E69F00",
        "marker": "o",
        "linestyle": ":",
        "markerfacecolor": "white",
    },
}
WIDTH_INCHES = 4.6  # so that letters can be read on a phone


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """What the figures show.

    Args:
        relevances: Cosine of every passage with the question, shape (n,).
        cosines: Of the passages with one another, shape (n, n).
        positions: Passages in order of choice, by the keys of `NAMES`.
        variances: σ² at the question in the paper's setting, before and after each choice.
        floor: What no choice from the passages could fall below.
    """

    relevances: FloatArray
    cosines: FloatArray
    positions: dict[str, IntArray]
    variances: dict[str, FloatArray]
    floor: float


def choose() -> Chosen:
    """Return what each way chooses for the question; loads the embedding model."""
    embedder = SentenceTransformerEmbedder()
    passages = embedder.embed_documents(PASSAGES)
    query = embedder.embed_query(QUESTION)
    ways = {
        "NN": NearestNeighborSelector(),
        "sift": ContextSelector(),
        "sift_paper": SIFTSelector(),
    }
    positions = {name: way.select(query, passages, N_STEPS).positions for name, way in ways.items()}
    return Chosen(
        relevances=passages @ query,
        cosines=passages @ passages.T,
        positions=positions,
        variances={
            name: posterior_variances(query, passages[rows]) for name, rows in positions.items()
        },
        floor=irreducible_variance(query, passages),
    )


def draw_repeats(chosen: Chosen) -> Figure:
    """Return how near the first choices of two ways are to the question, and to one another."""
    figure = new_figure(4.6)
    names = ("NN", "sift")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, name in zip(panels, names, strict=True):
        draw_choices(axes, chosen, name)
    panels[1].set_xlabel("cosine")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left")
    return figure


def draw_choices(axes: Axes, chosen: Chosen, name: str) -> None:
    """Draw one row a choice: its cosine with the question and with what was chosen before it."""
    rows = chosen.positions[name][:N_SHOWN]
    numbers = range(1, len(rows) + 1)
    axes.plot(
        chosen.relevances[rows],
        numbers,
        **{**STYLES["sift"], "linestyle": ""},
        label="with the question",
    )
    axes.plot(
        redundancies(chosen, name)[: N_SHOWN - 1],
        numbers[1:],
        **{**STYLES["NN"], "linestyle": ""},
        label="with the nearest one chosen before",
    )
    axes.set_yticks(numbers, [f"{title(row)}  {n}" for n, row in enumerate(rows, start=1)])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.04)
    axes.set_title(NAMES[name], loc="left")


def redundancies(chosen: Chosen, name: str) -> list[float]:
    """Return each later choice's largest cosine with an earlier one, in order of choice."""
    rows = chosen.positions[name]
    return [float(chosen.cosines[row, rows[:n]].max()) for n, row in enumerate(rows) if n > 0]


def title(row: int) -> str:
    """Return a short name of a passage: what it is about, and which version."""
    words = PASSAGES[row].split(" ")
    return f"gzip.open, {words[1]}" if row < N_VERSIONS else words[0]


def draw_variances(chosen: Chosen) -> Figure:
    """Return how σ² falls with the passages read."""
    figure = new_figure(3.5)
    axes = figure.subplots()
    for name in NAMES:
        axes.plot(chosen.variances[name], label=NAMES[name], **STYLES[name])
    axes.axhline(chosen.floor, color="#666666", linestyle=(0, (1, 2)), linewidth=1.2)
    axes.annotate(
        "all 24 passages, read without end",
        (0, chosen.floor),
        xytext=(0, -11),
        textcoords="offset points",
        fontsize=8.5,
    )
    axes.set_xlabel("passages chosen")
    axes.set_ylabel("σ² at the question")
    axes.set_ylim(chosen.floor - 0.08, 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure


def new_figure(height: float) -> Figure:
    """Return an empty figure of the width of these pages."""
    return Figure(figsize=(WIDTH_INCHES, height), layout="constrained")


def main() -> None:
    """Draw both figures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "images"
    chosen = choose()
    with matplotlib.style.context(["default", HERE.parents[1] / "benchmarks/sift.mplstyle"]):
        draw_repeats(chosen).savefig(folder / "repeats.png", metadata={"Software": None})
        draw_variances(chosen).savefig(folder / "variance.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
