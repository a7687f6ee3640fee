"""What all figures share: sizes, fonts, a colour and a mark for each selector, saving.

Colours are Okabe and Ito's (2008), which people with any common colour blindness can tell
apart. Every selector also has a mark and a line of its own, so that a figure reads in grey.
Nothing here touches matplotlib's global settings: each figure is drawn and saved in a context
of default settings, whatever the caller's matplotlibrc says.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sift_core.errors import ExperimentError, InvalidInputError, MissingDependencyError

try:
    import matplotlib.style
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D
except ImportError as error:
    raise MissingDependencyError("matplotlib", extra="eval") from error

LineStyle: TypeAlias = str | tuple[float, tuple[float, ...]]
Format: TypeAlias = Literal["png", "svg"]

WIDTH_INCHES = 7.0  # 700 px at DPI, the width of a column of text on a web page
DPI = 100
INK = "#222222"
MUTED = "#666666"
BAND_ALPHA = 0.15

_SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.7,
    "lines.markersize": 5.5,
    "svg.hashsalt": "sift",  # identifiers in an SVG are random without it
    "text.color": INK,
    "text.parse_math": False,  # a domain's name may have dollar signs
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
}


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one selector, mode or method looks in every figure.

    Args:
        color: Hexadecimal.
        marker: matplotlib's code of a mark.
        line: matplotlib's code or pattern of a line.
        is_filled: Whether the mark is full or hollow.
    """

    color: str
    marker: str
    line: LineStyle = "-"
    is_filled: bool = True

    @property
    def face(self) -> str:
        """The colour inside the mark."""
        return self.color if self.is_filled else "white"


_NAMED = {
    "SIFT": Style(color="#D55E00", marker="o", line="-"),
    "NN": Style(color="#0072B2", marker="s", line="--"),
    "NN-F": Style(color="#56B4E9", marker="v", line=":"),
    "US": Style(color="#009E73", marker="^", line="-."),
    "HullFT": Style(color="#CC79A7", marker="D", line=(0.0, (6.0, 1.5, 1.0, 1.5, 1.0, 1.5))),
    "SIFT context": Style(color="#E69F00", marker="p", line=(0.0, (3.0, 1.5))),
    "other prompt": Style(color="#666666", marker="X", line=(0.0, (1.0, 2.0))),
    "base": Style(color="#666666", marker="|", line=(0.0, (4.0, 3.0))),
    "context": Style(color="#000000", marker="P", line=(0.0, (8.0, 2.0))),
    "fine_tune": Style(color="#D55E00", marker="o", line="-"),
    "both": Style(color="#009E73", marker="D", line="-."),
    "sift": Style(color="#D55E00", marker="o", line="-"),
    "sift_paper": Style(color="#E69F00", marker="o", line=":", is_filled=False),
    "nn": Style(color="#0072B2", marker="s", line="--"),
    "us": Style(color="#E69F00", marker="P", line=(0.0, (2.0, 1.0))),
    "mmr": Style(color="#009E73", marker="^", line="-."),
    "dpp": Style(color="#CC79A7", marker="D", line=(0.0, (6.0, 1.5, 1.0, 1.5))),
    "pyversity dpp": Style(color="#56B4E9", marker="v", line=":"),
    "msd": Style(color="#000000", marker="<", line=(0.0, (3.0, 1.0)), is_filled=False),
    "ssd": Style(color="#000000", marker=">", line=(0.0, (1.0, 1.0)), is_filled=False),
    "cover": Style(color="#666666", marker="X", line=(0.0, (8.0, 2.0))),
}
_OTHERS = (  # for names that are not known here, in order of appearance
    Style(color="#E69F00", marker="P", line=(0.0, (2.0, 1.0))),
    Style(color="#000000", marker="*", line=(0.0, (3.0, 3.0))),
    Style(color="#009E73", marker="h", line=(0.0, (5.0, 1.0)), is_filled=False),
    Style(color="#0072B2", marker="8", line=(0.0, (1.0, 4.0)), is_filled=False),
)
_VARIATIONS: tuple[tuple[str, LineStyle], ...] = (  # second and later settings of one name
    ("d", (0.0, (3.0, 1.5))),
    ("p", (0.0, (1.0, 1.2))),
    ("*", (0.0, (5.0, 1.2, 1.0, 1.2))),
    ("h", (0.0, (2.0, 2.0))),
)


def styles_for(names: Sequence[str], named: Mapping[str, Style] | None = None) -> list[Style]:
    """Return one style a name, the same for a name in every figure.

    A name that comes again, such as SIFT with another λ, keeps its colour and gets a hollow
    mark and a line of its own.

    Args:
        names: Selectors, modes or methods of retrieval.
        named: Fixed styles of some names; those of this package if left out.
    """
    named = _NAMED if named is None else named
    unknown = [name for name in dict.fromkeys(names) if name not in named]
    others = {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(unknown)}
    seen: dict[str, int] = {}
    styles = []
    for name in names:
        style = named.get(name) or others[name]
        n_before = seen.get(name, 0)
        seen[name] = n_before + 1
        if n_before:
            marker, line = _VARIATIONS[(n_before - 1) % len(_VARIATIONS)]
            style = Style(color=style.color, marker=marker, line=line, is_filled=False)
        styles.append(style)
    return styles


class CaptionedFigure(Figure):
    """A matplotlib figure that knows what it shows.

    Args:
        height: Inches; the width is `WIDTH_INCHES`.
        caption: What is drawn and what the error bars are; stands below the figure.
        alt: What a reader who cannot see the figure needs: its kind, axes and main numbers.
    """

    def __init__(self, height: float, *, caption: str, alt: str) -> None:
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.07)
        super().__init__(figsize=(WIDTH_INCHES, height), dpi=DPI, layout=layout)
        FigureCanvasAgg(self)
        self.caption = caption
        self.alt = alt


def drawing() -> AbstractContextManager[None]:
    """Return a context with our settings of matplotlib; it puts back the caller's after it."""
    return matplotlib.style.context(["default", _SETTINGS])


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG (at 2× for dense screens) or SVG and return the path.

    The same figure gives the same bytes with the same version of matplotlib: no date, no
    random identifiers. Folders are made.

    Args:
        figure: From one of this package's functions.
        path: Ends in .png or .svg.

    Raises:
        InvalidInputError: If `path` ends otherwise.
        ExperimentError: If the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in ("png", "svg"):
        raise InvalidInputError(f"`path` must end in .png or .svg, got {path.name!r}")
    content = as_bytes(figure, "png" if suffix == "png" else "svg")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        reason = error.strerror or error
        raise ExperimentError(f"the figure {path} could not be written: {reason}") from error
    return path


def as_bytes(figure: Figure, kind: Format) -> bytes:
    """Return a figure as the content of a PNG file at 2× or of an SVG file.

    Args:
        figure: From one of this package's functions.
        kind: "png" or "svg".
    """
    nothing: dict[str, str | None] = (
        {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    )
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format=kind, dpi=2 * DPI, metadata=nothing, facecolor="white")
    return buffer.getvalue()


def legend_outside(figure: Figure, axes: Axes, *, n_columns: int | None = None) -> None:
    """Put one legend above all axes, outside the data.

    Args:
        figure: With constrained layout, which makes the room.
        axes: Whose labelled artists are listed; each label once.
        n_columns: As many as fit if left out.
    """
    pairs = [*zip(*axes.get_legend_handles_labels(), strict=True)]
    pairs.sort(key=lambda pair: isinstance(pair[0], Line2D))  # levels such as "base" come last
    first = {label: handle for handle, label in reversed(pairs)}
    names = list(dict.fromkeys(label for _, label in pairs))
    if names:
        figure.legend(
            [first[name] for name in names],
            names,
            loc="outside upper left",
            ncols=n_columns or columns_that_fit(names),
        )


def columns_that_fit(labels: Sequence[str]) -> int:
    """Return into how many columns a legend of these labels can be laid in a figure's width.

    Labels run down the columns, and a column is as wide as its longest label.
    """
    for n_columns in range(len(labels), 1, -1):
        n_rows = -(-len(labels) // n_columns)
        columns = [labels[i : i + n_rows] for i in range(0, len(labels), n_rows)]
        if sum(0.68 + 0.08 * max(map(len, column)) for column in columns) <= WIDTH_INCHES:
            return len(columns)
    return 1
