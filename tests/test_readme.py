"""README.md does what it says: every Python block runs as printed, and prints what follows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n+(?:```text\n(?P<output>.*?)```)?", re.DOTALL)
BLOCKS = {
    next(name for name in ("llama_index", "langchain", "numpy") if name in match["code"]): match
    for match in BLOCK.finditer(README)
}


def test_there_is_a_block_for_each_way_in():
    assert set(BLOCKS) == {"llama_index", "langchain", "numpy"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name != "numpy" else ()) for name in BLOCKS],
)
def test_the_block_runs_as_printed(name, tmp_path):
    needed = {"llama_index": "llama_index.core", "langchain": "langchain_qdrant", "numpy": "numpy"}
    pytest.importorskip(needed[name], reason=f"the block needs {needed[name]}")
    finished = subprocess.run(
        [sys.executable, "-c", BLOCKS[name]["code"]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == BLOCKS[name]["output"]


def test_every_path_it_names_is_there():
    named = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
