"""`sift select`: SIFT over embeddings in files, without a store or a model."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.selection import selector_from_settings
from sift_core.types import FloatArray

try:
    import typer
except ImportError as error:
    raise MissingDependencyError("typer", extra="cli") from error


class KernelName(str, Enum):
    """Kernels that the command line knows."""

    AUTO = "auto"
    RBF = "rbf"
    LINEAR = "linear"


def select(
    query: Annotated[
        Path, typer.Argument(metavar="QUERY", help=".npy file with one embedding, shape (d,)")
    ],
    candidates: Annotated[
        Path,
        typer.Argument(metavar="CANDIDATES", help=".npy file with embeddings, shape (n, d)"),
    ],
    n_select: Annotated[int, typer.Option("-n", "--n-select", help="How many to choose")] = 10,
    kernel: Annotated[
        KernelName,
        typer.Option(help="auto reads its scales from the candidates; linear is the paper's"),
    ] = KernelName.AUTO,
    noise_variance: Annotated[
        float | None,
        typer.Option(help="λ > 0; if left out .2 with auto, .1 with rbf, .01 with linear"),
    ] = None,
    allow_repeats: Annotated[bool, typer.Option(help="Choose one candidate several times")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Print which rows of CANDIDATES to take for QUERY, and how σ² falls.

    Examples:
    sift select query.npy candidates.npy -n 5
    sift select query.npy candidates.npy --kernel linear --json
    """
    selector = selector_from_settings(
        kernel=kernel.value, noise_variance=noise_variance, allow_repeats=allow_repeats
    )
    arrays = _load("query", query), _load("candidates", candidates)
    selection = selector.select(*arrays, n_select)
    if as_json:
        record = {
            "positions": selection.positions.tolist(),
            "variances": selection.variances.tolist(),
            "stop_reason": selection.stop_reason.value,
        }
        typer.echo(json.dumps(record))
        return
    typer.echo("position  σ² after")
    for position, variance in zip(selection.positions, selection.variances[1:], strict=True):
        typer.echo(f"{position:8d}  {variance:.6f}")


def _load(name: str, path: Path) -> FloatArray:
    """Return the array in a .npy file; pickled objects are refused."""
    try:
        with path.open("rb") as file:
            array: FloatArray = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise InvalidInputError(
            f"cannot read `{name}` from {str(path)!r}: {error}; pass a file that numpy.save wrote"
        ) from error
    return array
