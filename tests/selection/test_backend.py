"""When "auto" runs compiled loops: once they were loaded, or lie on disk and pay."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from struct import pack

import pytest

from sift_core.selection import backend

# A process of its own: what was loaded stays loaded.
PROGRAM = """
import os, sys, threading, warnings
import numpy as np
warnings.filterwarnings("ignore", message="This process .* is multi-threaded")  # fork, 3.12
from sift_core import ContextSelector, SIFTSelector, load_compiled, select
from sift_core.selection import backend
rng = np.random.default_rng(0)
query, candidates = rng.standard_normal(8), rng.standard_normal((20, 8))
"""
ON_DISK = """
backend.PAYS_AFTER = 1
ContextSelector(backend="numpy").select(query, candidates, 5)
assert "numba" not in sys.modules
backend.PAYS_AFTER = 4 * candidates.size
backend.is_on_disk = lambda: True
chosen = []
for number, selector in enumerate((SIFTSelector, ContextSelector) * 3):
    chosen.append(selector().select(query, candidates, 5).positions.tolist())
    assert (backend.loaded() is None) == ("numba" not in sys.modules) == (number < 3)
    assert threading.active_count() == 1
assert chosen[:2] == chosen[2:4] == chosen[4:]
"""
NOT_ON_DISK = """
backend.PAYS_AFTER = 1
backend.is_on_disk = lambda: False
for _ in range(3):
    select(query, candidates, 5)
assert backend.loaded() is None and "numba" not in sys.modules
assert load_compiled() and backend.loaded() is not None
"""
THREADS = """
from concurrent.futures import ThreadPoolExecutor
backend.PAYS_AFTER = 64 * candidates.size
backend.is_on_disk = lambda: True
expected = ContextSelector(backend="numpy").select(query, candidates, 5).positions.tolist()
def choose(number):
    return ContextSelector().select(query, candidates, 5).positions.tolist()
with ThreadPoolExecutor(8) as threads:
    assert list(threads.map(choose, range(300))) == [expected] * 300
assert backend.loaded() is not None
"""
FORK = """
assert load_compiled() and "numba" in sys.modules
by_name = ContextSelector(backend="numba").select(query, candidates, 5)
assert select(query, candidates, 5).variances.tolist() == by_name.variances.tolist()
expected = select(query, candidates, 5).positions.tolist()
child = os.fork()
if child == 0:
    os._exit(7 if select(query, candidates, 5).positions.tolist() == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
COMPILED_ANEW = """
assert not backend.is_on_disk()
assert load_compiled() and backend.is_on_disk()
"""
FROM_DISK = """
assert backend.is_on_disk() and "numba" not in sys.modules
assert load_compiled()
from sift_core.selection import _numba
assert len(_numba.greedy.stats.cache_hits) == 2 and not _numba.greedy.stats.cache_misses
"""


def run(program, **environment):
    """Return what a program of its own printed, with these variables."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(ON_DISK, id="once it pays"),
        pytest.param(NOT_ON_DISK, id="not on disk", marks=pytest.mark.slow),
        pytest.param(THREADS, id="in threads", marks=pytest.mark.slow),
        pytest.param(
            FORK,
            id="at once, and before a fork",
            marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
        ),
    ],
)
def test_compiled_loops_are_loaded(rest):
    pytest.importorskip("numba", reason="needs the extra fast")
    run(PROGRAM + rest)


@pytest.mark.slow
def test_numba_finds_on_disk_what_is_found_on_disk(tmp_path):
    pytest.importorskip("numba", reason="needs the extra fast")
    run(PROGRAM + COMPILED_ANEW, NUMBA_CACHE_DIR=str(tmp_path))
    run(PROGRAM + FROM_DISK, NUMBA_CACHE_DIR=str(tmp_path))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A copy of Numba's index of the loops, in a folder where `is_on_disk` looks for it."""
    pytest.importorskip("numba", reason="needs the extra fast")
    from numba.core.caching import UserProvidedCacheLocator

    from sift_core.selection import _numba

    lineno = _numba.greedy.py_func.__code__.co_firstlineno
    name = "_numba.greedy-{}.py{}{}*.nbi".format(lineno, *sys.version_info)
    [original] = Path(_numba.greedy.stats.cache_path).glob(name)
    folder = tmp_path / UserProvidedCacheLocator.get_suitable_cache_subpath(_numba.__file__)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not backend.is_on_disk()
    folder.mkdir()
    copy = folder / original.name
    copy.write_bytes(original.read_bytes())
    assert backend.is_on_disk()
    return copy


def test_an_index_of_another_release_processor_or_source_is_not_taken(index):
    import numba
    from llvmlite import binding

    content = index.read_bytes()
    features = binding.get_host_cpu_features().flatten()
    for part in (numba.__version__, binding.get_host_cpu_name(), features):
        index.write_bytes(content.replace(part.encode(), b"x" * len(part)))
        assert not backend.is_on_disk()
    index.write_bytes(content)
    assert backend.is_on_disk()
    source = Path(backend.__file__).with_name("_numba.py")
    for stamp in (sha256(source.read_bytes()).digest(), pack(">d", source.stat().st_mtime)):
        content = content.replace(stamp, bytes(len(stamp)))
    index.write_bytes(content)
    assert not backend.is_on_disk()
