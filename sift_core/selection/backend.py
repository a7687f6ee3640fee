"""Which code makes a selection: NumPy's, or the loops that Numba compiles."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Literal

import numpy as np

from sift_core.errors import MissingDependencyError

Backend = Literal["auto", "numpy", "numba"]

_COMPILED = "sift_core.selection.compiled"
PAYS_AFTER = 2**24  # of candidates, n × d: on 218 pools of 200 × 384 NumPy loses what loading takes


@dataclass
class _Loaded:
    """The state of "auto" in this process."""

    module: ModuleType | None = None
    is_decided: bool = False  # whether loading was tried, or does not pay
    n_numbers: int = 0  # read by NumPy so far; threads may lose one another's


_loaded = _Loaded()


def load_compiled() -> bool:
    """Load the compiled loops, which "auto" then uses in this process.

    The first call on a machine compiles them, which takes 15 to 40 s. Numba keeps them on disk,
    beside the package or, if that cannot be written, in the user's cache. Call it while an image
    is built, so that no container compiles. A call in another process then takes 0.5 s, and a
    second call in one process takes no time.

    Returns:
        Whether the loops are loaded. False if Numba, of the extra `fast`, is not installed.

    Example:
        >>> is_compiled = load_compiled()
        >>> select(query.embedding, pool.embeddings, 2).positions.tolist()
        [0, 1]
    """
    _loaded.is_decided = True
    if _loaded.module is None:
        try:
            _loaded.module = import_module(_COMPILED)
        except MissingDependencyError:  # also a release of Numba that refuses this NumPy
            pass
    return _loaded.module is not None


def loaded() -> ModuleType | None:
    """Return the module with the compiled choices if "auto" uses it by now."""
    return _loaded.module


def compiled_for(backend: Backend, candidates: object) -> ModuleType | None:
    """Return the module with the compiled choices; None if NumPy is to choose.

    "auto" loads the loops at most once: when it has read `PAYS_AFTER` numbers of candidates, and
    only if that compiles nothing. Other threads choose in NumPy meanwhile.

    Raises:
        MissingDependencyError: If `backend` is "numba" and it is not installed.
    """
    if backend == "numpy":
        return None
    if backend == "numba":
        return import_module(_COMPILED)
    if not _loaded.is_decided and isinstance(candidates, np.ndarray):
        _loaded.n_numbers += candidates.size
        if _loaded.n_numbers >= PAYS_AFTER:
            _loaded.is_decided = True
            if is_on_disk():
                load_compiled()
    return _loaded.module


def is_on_disk() -> bool:
    """Return whether Numba would load the loops from its cache and compile nothing.

    Takes 0.1 s, and next to nothing if there is no cache. Numba is not imported.

    Numba compiles again for another source, release or processor. It pickles these into an index
    of each function, so this looks for their bytes. In doubt the answer is no: for another
    format, and for the user's cache, which Numba uses if it cannot write beside the package.
    """
    from hashlib import sha1, sha256
    from importlib.metadata import version
    from pathlib import Path
    from struct import pack

    source = Path(os.path.abspath(__file__)).with_name("_numba.py")
    package, folder = source.parent, source.parent / "__pycache__"
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        folder = Path(named, f"{package.name}_{sha1(str(package).encode()).hexdigest()}")
    pattern = "_numba.greedy-*.py{}{}*.nbi".format(*sys.version_info)  # it is compiled last
    try:
        indexes = [path.read_bytes() for path in folder.glob(pattern)]
        if not indexes or not os.access(folder, os.W_OK):  # Numba reads only where it can write
            return False
        # A stamp of the source: its checksum, or its time in older releases of Numba.
        stamps = sha256(source.read_bytes()).digest(), pack(">d", source.stat().st_mtime)
        cpu = import_module("llvmlite.binding")
        names = version("numba"), cpu.get_host_cpu_name(), cpu.get_host_cpu_features().flatten()
    except (ImportError, OSError, RuntimeError):
        return False
    fresh = [index for index in indexes if any(stamp in index for stamp in stamps)]
    return any(all(name.encode() in index for name in names) for index in fresh)
