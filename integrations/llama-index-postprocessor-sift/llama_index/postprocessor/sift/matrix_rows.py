"""Vectors by node id that are one matrix, so that nobody puts one together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt


class MatrixRows(Mapping[str, npt.NDArray[np.floating[Any]]]):
    """The rows of a matrix by node id.

    Args:
        ids: n node ids, no two the same.
        matrix: Shape (n, d), row i of node i.
    """

    def __init__(self, ids: Sequence[str], matrix: npt.NDArray[np.floating[Any]]) -> None:
        self.ids = ids
        self.matrix = matrix

    def __getitem__(self, node_id: str) -> npt.NDArray[np.floating[Any]]:
        """Return a node's row, shape (d,)."""
        row: npt.NDArray[np.floating[Any]] = self.matrix[self._positions[node_id]]
        return row

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {node_id: i for i, node_id in enumerate(self.ids)}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        return iter(self.ids)

    def __len__(self) -> int:
        """Return n."""
        return len(self.ids)
