"""Which code makes a selection: NumPy's, or the loops that Numba compiles."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from threading import Lock, Thread
from types import ModuleType
from typing import Literal

import numpy as np

from sift_core.errors import MissingDependencyError

Backend = Literal["auto", "numpy", "numba"]

_COMPILED = "sift_core.selection.compiled"
PAYS_AFTER = 2**24  # of candidates, n × d: on 218 pools of 200 × 384 NumPy loses what loading takes


@dataclass
class _Loaded:
    """What "auto" knows in this process."""

    module: ModuleType | None = None
    was_tried: bool = False
    has_begun: bool = False
    n_numbers: int = 0  # read by NumPy so far; threads may lose one another's


_loaded = _Loaded()
_loading = Lock()


def load_compiled() -> bool:
    """Load the compiled loops now, and not once selections have shown that it pays.

    Takes .5 s in a process, and 15 to 20 s where nobody has called it before: what was compiled is
    kept on disk, beside the package or, where that cannot be written, in the user's cache. So a
    call while an image is built saves every container the work. Later calls do nothing.

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
    if not (_loaded.has_begun or _loaded.was_tried) and isinstance(candidates, np.ndarray):
        _loaded.n_numbers += candidates.size
        if _loaded.n_numbers >= PAYS_AFTER:
            _begin_loading()
    return _loaded.module


def _begin_loading() -> None:
    """Load beside the selections, which NumPy makes until then.

    It is no daemon: a process that ends meanwhile would die inside LLVM, so it waits.
    """
    _loaded.has_begun = True
    try:
        Thread(target=load_compiled, name="sift-load-compiled").start()
    except RuntimeError:  # no threads here, or no more: NumPy goes on
        pass


def _after_fork() -> None:
    """Leave a process that was forked while another thread loaded, which it lacks, to NumPy."""
    global _loading
    if _loading.locked():
        _loading, _loaded.was_tried = Lock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
