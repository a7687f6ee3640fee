"""Which code makes a selection: NumPy's, or the loops that Numba compiles."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Literal

import numpy as np

from sift_core.errors import MissingDependencyError

Backend = Literal["auto", "numpy", "numba"]

_COMPILED = "sift_core.selection.compiled"
# Of candidates, n × d: 218 pools of 200 × 384. On so many NumPy loses what loading takes, .5 s, so
# that a process waits at most twice as long as if it had known how much it would select.
PAYS_AFTER = 2**24


@dataclass
class _Loaded:
    """What "auto" knows in this process."""

    module: ModuleType | None = None
    was_tried: bool = False
    n_numbers: int = 0  # read by NumPy so far; threads may lose one another's


_loaded = _Loaded()
_loading = Lock()


def load_compiled() -> bool:
    """Load the compiled loops now, and not once selections have shown that it pays.

    Takes .5 s in a process, and 15 to 20 s where nobody has called it before: what was compiled is
    kept on disk, beside the package or, where that cannot be written, in the user's cache. So a
    call while an image is built saves every container the wait. Later calls do nothing.

    Returns:
        Whether there are such loops: False where Numba, of the extra `fast`, is not installed.
    """
    with _loading:
        if not _loaded.was_tried:
            try:
                _loaded.module = import_module(_COMPILED)
            except MissingDependencyError:  # also a release of Numba that refuses this NumPy
                pass
            _loaded.was_tried = True
    return _loaded.module is not None


def loaded() -> ModuleType | None:
    """Return the module with the compiled choices if "auto" runs them by now."""
    return _loaded.module


def compiled_for(backend: Backend, candidates: object) -> ModuleType | None:
    """Return the module with the compiled choices, None if NumPy is to choose among these.

    Raises:
        MissingDependencyError: If Numba was asked for by name and is not installed.
    """
    if backend == "numpy":
        return None
    if backend == "numba":
        return import_module(_COMPILED)
    if not _loaded.was_tried and isinstance(candidates, np.ndarray):
        _loaded.n_numbers += candidates.size
        if _loaded.n_numbers >= PAYS_AFTER:
            load_compiled()
    return _loaded.module
