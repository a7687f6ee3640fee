"""Gain over base in bits per byte against seconds: fixed ways, policies, and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

MARKERS = {"always": "s", "rule": "^", "oracle": "*"}  # by a name's first word


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw a point a policy, with its 95 % interval, and the oracle in its time below it.

    Args:
        rows: Those with part "policies".
        path: A PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    those = [row for row in rows if row["part"] == "policies"]
    figure, axes = pyplot.subplots(figsize=(7.5, 4.8))
    for i, (kind, marker) in enumerate(MARKERS.items()):
        own = [row for row in those if row["policy"].replace(",", "").split()[0] == kind]
        if not own:
            continue
        seconds = [row["seconds"] for row in own]
        mean, low, high = zip(*(row["over_base"] for row in own), strict=True)
        errors = [
            [m - least for m, least in zip(mean, low, strict=True)],
            [most - m for m, most in zip(mean, high, strict=True)],
        ]
        axes.errorbar(
            seconds, mean, errors, fmt=marker, color=f"C{i}", label=kind, alpha=0.8, linewidth=0.6
        )
        for row in own:
            axes.annotate(
                row["policy"].removeprefix("always "),
                (row["seconds"], row["over_base"][0]),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=6,
            )
    bounds = sorted((row["seconds"], row["over_base"][0] - row["regret"][0]) for row in those)
    axes.plot(*zip(*bounds, strict=True), "--", color="0.5", label="oracle in equal time")
    axes.set_xscale("log")
    axes.set_xlabel("mean seconds a document, learning and an answer's first token")
    axes.set_ylabel("mean bits per byte over base (95 %)")
    axes.set_title(f"{those[0]['n_documents']} test documents of the mini-Pile", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
