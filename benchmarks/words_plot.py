"""Draw what words, spread and a second hop find, from the record of `benchmarks.words_in_choice`.

python -m benchmarks.words_plot [--picture FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plotting import drawn
from benchmarks.words_in_choice import CORPORA, DENSE, FUSED, NEAREST, RERANKED, SIFT

ROOT = Path(__file__).parents[1]
METRIC = "recall@5"
BARS = {  # method → label and colour
    NEAREST: ("nearest neighbours", "#999999"),
    FUSED: ("rank fusion with BM25", "#c9c9c9"),
    DENSE: ("SIFT by embeddings", "#9ecae1"),
    RERANKED: ("SIFT by words, reranking", "#4292c6"),
    SIFT: ("SIFT by words, with a second hop", "#d55e00"),
}


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a group of bars for each corpus.

    Args:
        rows: Of a record, with every method of `BARS` on every corpus.
        path: A PNG file.
    """
    values = {(row["set"], row["method"]): 100 * row[METRIC] for row in rows if METRIC in row}
    width = 0.8 / len(BARS)
    with drawn(path, size=(8.6, 3.2)) as (figure, axes):
        for i, (method, (label, color)) in enumerate(BARS.items()):
            heights = [values[corpus, method] for corpus in CORPORA]
            places = np.arange(len(CORPORA)) + (i - (len(BARS) - 1) / 2) * width
            bars = axes.bar(places, heights, width, label=label, color=color)
            if method in (NEAREST, SIFT):
                axes.bar_label(bars, fmt="%.0f", fontsize=8)
        axes.set_xticks(range(len(CORPORA)), CORPORA)
        axes.set_ylabel("gold passages among five, %")
        axes.set_ylim(0, 105)
        axes.grid(axis="x", visible=False)
        figure.legend(loc="outside upper center", ncols=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    picture = ROOT / "docs" / "images" / "words.png"
    parser.add_argument("--picture", type=Path, default=picture, help="PNG file to write")
    arguments = parser.parse_args()
    record = ROOT / "benchmarks" / "results" / "words_in_choice.json"
    draw(json.loads(record.read_text(encoding="utf-8"))["rows"], arguments.picture)


if __name__ == "__main__":
    main()
