"""The guides do what they say: the Python of a page runs in order and prints what it prints."""

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = {
    "evaluation": ["torch", "transformers", "sentence_transformers"],
    "faiss": ["faiss"],
    "fine_tuning": ["torch", "transformers", "peft"],
    "qdrant": ["qdrant_client", "qdrant_edge"],
}
TINY_LM = str(ROOT / "examples/tiny_lm")


def blocks(guide, kind):
    return [body for name, body in BLOCK.findall(guide.read_text(encoding="utf-8")) if name == kind]


@pytest.fixture
def environment(request):
    """The process's own, with a model, and the address of a Qdrant server where one is wanted."""
    if request.getfixturevalue("guide").stem != "qdrant":
        yield {**os.environ, "MODEL": TINY_LM, "OMP_NUM_THREADS": "1"}
        return
    from tests.candidates.qdrant_rest import serving

    qdrant_client = pytest.importorskip("qdrant_client")
    with closing(qdrant_client.QdrantClient(":memory:")) as client, serving(client) as server:
        yield {**os.environ, "QDRANT_URL": server.url}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_page_runs_and_prints_what_it_says(guide, environment, tmp_path):
    for module in NEEDS[guide.stem]:
        pytest.importorskip(module)
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", "".join(blocks(guide, "python"))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "".join(blocks(guide, "text"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_page_it_names_is_there(guide):
    named = re.findall(r"\]\((?!https?:)([^)#]+)\)", guide.read_text(encoding="utf-8"))
    assert [path for path in named if not (guide.parent / path).exists()] == []


def test_every_guide_is_run():
    assert {guide.stem for guide in GUIDES} == set(NEEDS)
