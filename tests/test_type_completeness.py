"""Type checkers and editors of users know the types of the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ["-m", "pyright", "--verifytypes", "sift_core", "--ignoreexternal", "--outputjson"]
LEAST_SCORE = 0.98  # the rest are names that `except ImportError as error` leaves for pyright


@pytest.mark.slow
def test_pyright_knows_the_types_of_the_package():
    bin_folder = str(Path(sys.executable).parent)  # pyright looks for `python` on the PATH
    ran = subprocess.run(
        [sys.executable, *COMMAND],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
        },
        timeout=300,
    )
    report = json.loads(ran.stdout)["typeCompleteness"]
    unknown = [
        f"{symbol['name']}: {found['message']}"
        for symbol in report["symbols"]
        for found in symbol["diagnostics"]
        if found["severity"] == "error"
    ]
    assert report["packageRootDirectory"] == str(ROOT / "sift_core")
    assert report["completenessScore"] >= LEAST_SCORE, "\n".join(unknown)
