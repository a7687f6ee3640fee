"""A few seconds of kills for every store; `kill_indexing.py` does as many as one likes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("kill_indexing.py")


def killed(store, *, seed, kills=1000, seconds=60):
    """Return the exit code of a campaign, and its table by the rows' names."""
    limits = [f"--kills={kills}", f"--seconds={seconds}"]
    command = [sys.executable, str(HARNESS), f"--store={store}", *limits, f"--seed={seed}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
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
    run, rows = killed(store, kills=8, seed=1)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(rows["kills"]) == int(rows["opened afterwards"]) >= 4
    assert rows["lost documents"] == rows["duplicates"] == rows["damaged or unexpected"] == "0"
    n_ends, n_exact = rows["runs to the end, with exactly the documents"].split(", ")
    assert int(n_ends) == int(n_exact) >= 2


@pytest.mark.slow
def test_the_harness_finds_out_about_a_store_that_is_not_durable():
    run, rows = killed("careless-file", seed=1, seconds=3)
    assert run.returncode == 1
    assert int(rows["lost documents"]) + int(rows["damaged or unexpected"]) > 0
