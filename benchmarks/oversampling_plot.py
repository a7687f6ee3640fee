"""Recall against the number of noisy copies, a line a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw recall@n for each n_select and, below, the candidates asked for; means over sets.

    Args:
        rows: Those with part "policies", in conditions "as is" and "duplicates n".
        path: A PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    those = [row for row in rows if row["part"] == "policies" and n_copies(row) is not None]
    selects = sorted({row["n_select"] for row in those})
    figure, axes = pyplot.subplots(
        2, len(selects), figsize=(4.2 * len(selects), 6.5), sharex=True, squeeze=False
    )
    for column, n_select in enumerate(selects):
        for policy in dict.fromkeys(row["policy"] for row in those):
            own = [r for r in those if (r["policy"], r["n_select"]) == (policy, n_select)]
            for line, key in enumerate(("recall", "candidates")):
                x, y = curve(own, key)
                axes[line][column].plot(x, y, marker="o", markersize=4, label=policy)
        axes[0][column].set_title(f"{n_select} chosen", fontsize=9)
        axes[0][column].set_ylabel(f"recall@{n_select}, points")
        axes[1][column].set_ylabel("candidates asked for, all fetches")
        axes[1][column].set_xlabel("noisy copies of every passage")
        axes[1][column].set_xscale("log", base=2)
        axes[1][column].xaxis.set_major_formatter("{x:g}")
        for line in (0, 1):
            axes[line][column].grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    sets = ", ".join(dict.fromkeys(row["set"] for row in those))
    figure.suptitle(f"Means over {sets}", fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def curve(rows: Sequence[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Return numbers of copies and, for each, the mean over the sets; recall in points."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(n_copies(row), []).append(row[key])
    x = sorted(found)
    scale = 100 if key == "recall" else 1
    return x, [scale * float(np.mean(found[n])) for n in x]


def n_copies(row: dict[str, Any]) -> int | None:
    """Return how many copies a row's condition has of every passage; None elsewhere."""
    condition = row["condition"]
    if condition == "as is":
        return 1
    return int(condition.split()[1]) if condition.startswith("duplicates ") else None
