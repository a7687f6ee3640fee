"""When "auto" runs compiled code: not before that pays, or as soon as it was loaded."""

import subprocess
import sys

import pytest

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
WAIT = """
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
"""
PATIENT = f"""
backend.PAYS_AFTER = 4 * candidates.size
chosen = []
for number, selector in enumerate((SIFTSelector, ContextSelector) * 3):
    chosen.append(selector().select(query, candidates, 5).positions.tolist())
    assert number > 2 or ("numba" not in sys.modules and threading.active_count() == 1)
{WAIT}
assert backend.loaded() is not None
chosen += [selector().select(query, candidates, 5).positions.tolist()
           for selector in (SIFTSelector, ContextSelector)]
assert chosen[:2] == chosen[2:4] == chosen[4:6] == chosen[6:]
"""
NOBODY_WAITS = f"""
backend.PAYS_AFTER = 1
with backend._loading:
    assert len(select(query, candidates, 5)) == len(select(query, candidates, 5)) == 5
    assert backend.loaded() is None and threading.active_count() == 2
    if hasattr(os, "fork"):  # its child has no such thread
        child = os.fork()
        if child == 0:
            os._exit(len(select(query, candidates, 5)) + load_compiled())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
{WAIT}
assert backend.loaded() is not None
"""
ENDS = """
backend.PAYS_AFTER = 1
select(query, candidates, 5)
"""
AT_ONCE = """
assert load_compiled() and "numba" in sys.modules
by_name = ContextSelector(backend="numba").select(query, candidates, 5)
assert select(query, candidates, 5).variances.tolist() == by_name.variances.tolist()
"""
NEVER = """
backend.PAYS_AFTER = 1
ContextSelector(backend="numpy").select(query, candidates, 5)
assert "numba" not in sys.modules
"""
ONE_LOADS = f"""
from concurrent.futures import ThreadPoolExecutor
backend.PAYS_AFTER = 64 * candidates.size
expected = ContextSelector(backend="numpy").select(query, candidates, 5).positions.tolist()
def choose(number):
    return ContextSelector().select(query, candidates, 5).positions.tolist()
with ThreadPoolExecutor(8) as threads:
    assert list(threads.map(choose, range(300))) == [expected] * 300
{WAIT}
assert backend.loaded() is not None
"""


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(PATIENT, id="once it pays"),
        pytest.param(NOBODY_WAITS, id="beside selections", marks=pytest.mark.slow),
        pytest.param(ENDS, id="as it ends", marks=pytest.mark.slow),
        pytest.param(AT_ONCE, id="at once", marks=pytest.mark.slow),
        pytest.param(NEVER, id="never"),
        pytest.param(ONE_LOADS, id="in threads", marks=pytest.mark.slow),
    ],
)
def test_compiled_code_is_loaded(rest):
    pytest.importorskip("numba", reason="needs the extra fast")
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + rest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_without_numba_there_is_nothing_to_load():
    blocked = "import sys; sys.modules['numba'] = None\n" + PROGRAM
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocked + "assert load_compiled() is False"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
