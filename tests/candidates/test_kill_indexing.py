"""A few seconds of kills for every store; `kill_indexing.py` does as many as one likes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("kill_indexing.py")


def killed(store, *, seconds, seed):
    """Return the exit code of a campaign, and its table by the rows' names."""
    command = [sys.executable, str(HARNESS), f"--store={store}", f"--seconds={seconds}"]
    run = subprocess.run([*command, f"--seed={seed}"], capture_output=True, text=True, timeout=120)
    rows = dict(re.findall(r"^\| (.+?) \| (.*) \|$", run.stdout, re.MULTILINE))
    return run, rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "package"),
    [
        ("faiss", "faiss"),
        ("edge", "qdrant_edge"),
        ("qdrant-folder", "qdrant_client"),
        ("qdrant-rest", "qdrant_client"),
    ],
)
def test_nothing_is_lost_or_doubled_whenever_indexing_is_killed(store, package):
    pytest.importorskip(package)
    run, rows = killed(store, seconds=5, seed=1)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(rows["kills"]) == int(rows["opened afterwards"]) >= 4
    assert rows["lost documents"] == rows["duplicates"] == rows["damaged or unexpected"] == "0"
    n_ends, n_exact = rows["runs to the end, with exactly the documents"].split(", ")
    assert int(n_ends) == int(n_exact) >= 2


@pytest.mark.slow
def test_the_harness_finds_out_about_a_store_that_is_not_durable():
    run, rows = killed("careless-file", seconds=3, seed=1)
    assert run.returncode == 1
    assert int(rows["lost documents"]) + int(rows["damaged or unexpected"]) > 0
