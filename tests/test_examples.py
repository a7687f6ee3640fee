"""Every example runs without an argument once the demo has set things up."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra demo")
for framework in ("langchain_qdrant", "langgraph", "llama_index.vector_stores.qdrant"):
    pytest.importorskip(framework, reason="the examples show the frameworks")

ROOT = Path(__file__).parents[1]
HELPERS = {"demo_report", "demo_store", "python_docs"}  # parts of others
LIMIT_S = 300
NEED_MORE = {"demo", "train_tiny_lm"}  # test_demo.py runs the one; the other wants a corpus
VERBS = ("zip", "unzip", "walk", "list", "copy", "move", "count", "pack", "hash", "drop")
MODULE = '"""Work with folders."""\n\n' + "\n".join(
    f"def {verb}_folder(folder, limit={n}):\n"
    f'    """{verb.title()} the files of a folder.\n\n    The folder is walked once, from top to '
    f"bottom, at most *limit* files are touched.\n    Return a list with one name a file; an empty "
    f"folder gives an empty list. Raise ValueError\n    where *limit* is negative, and OSError "
    f'where there is no such folder.\n    """\n'
    for n, verb in enumerate(VERBS)
)


def started(name, cache, *arguments):
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(ROOT / f"examples/{name}.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cache,  # nothing may depend on the folder that one stands in
        env={
            **os.environ,
            "SIFT_DEMO_CACHE": str(cache),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What every example printed and returned, run at once over what the demo left behind.

    Each has a copy of that: a Qdrant folder is for one process.
    """
    folder = tmp_path_factory.mktemp("docs")
    (folder / "folders.py").write_text(MODULE, encoding="utf-8")
    cache = tmp_path_factory.mktemp("cache")
    arguments = ["--docs", str(folder), "--cache", str(cache), "--question", "How do I zip files?"]
    demo = started("demo", cache, *arguments)
    _, errors = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, errors
    copies = {name: tmp_path_factory.mktemp("copies") / name for name in examples()}
    for copy in copies.values():
        shutil.copytree(cache, copy)
    running = {name: started(name, copy) for name, copy in copies.items()}
    printed = {name: process.communicate(timeout=LIMIT_S) for name, process in running.items()}
    return {name: (running[name].returncode, *printed[name]) for name in running}


def examples():
    return {path.stem for path in (ROOT / "examples").glob("*.py")} - HELPERS - NEED_MORE


@pytest.fixture
def output(finished):
    def of(name):
        returncode, printed, errors = finished[name]
        assert returncode == 0, errors
        assert errors == ""
        return printed

    return of


@pytest.mark.slow
def test_llama_index_query_engine(output):
    printed = output("llama_index_query_engine")
    nearest, chosen = re.findall(
        r"^(?:nearest neighbours|SIFTReranker)\n((?:  .*\n)+)", printed, re.M
    )
    assert len(nearest.splitlines()) == len(chosen.splitlines()) == 8
    assert "folders.zip_folder" in chosen
    assert "SIFTRetriever chooses the same: True" in printed


@pytest.mark.slow
def test_two_rerankers(output):
    parts = re.findall(r"^(\w.*)\n((?:  .*\n)+)", output("two_rerankers"), re.MULTILINE)
    chosen = {heading: names.splitlines() for heading, names in parts}
    assert list(chosen) == ["SIFT alone", "rare words alone", "rare words, then SIFT"]
    assert all(len(names) == 8 for names in chosen.values())
    assert chosen["rare words, then SIFT"][0] in chosen["rare words alone"][:3]


@pytest.mark.slow
def test_choose_at_query_time(output):
    printed = output("choose_at_query_time")
    modes = re.findall(r"^  mode (\w+), (\d+) chunks, [\d.]+ s$", printed, re.MULTILINE)
    assert [modes[i][0] for i in (0, 3)] == ["context", "base"]
    assert printed.count("of the variance at the query") == 4
    assert re.search(r"the 0\.[56]\d* s of the caller", printed)


@pytest.mark.slow
def test_session(output):
    printed = output("session")
    assert len(re.findall(r"^\[\w+\] learned from 10 chunks", printed, re.MULTILINE)) == 2
    assert len(re.findall(r"^\[\w+\] How do I .*\? ", printed, re.MULTILINE)) == 6
    assert "they answer as they do alone: True" in printed
    assert "bit for bit" in printed


@pytest.mark.slow
def test_langchain_chain(output):
    printed = output("langchain_chain")
    assert len(re.findall(r"^  \d\.\d\d  folders\.", printed, re.MULTILINE)) == 8
    assert "A chain, streamed:" in printed
    assert "SIFTAnswer, mode fine_tune:" in printed


@pytest.mark.slow
def test_agent_tool(output):
    printed = output("agent_tool")
    assert "search_python_docs" in printed
    assert "folders.zip_folder" in printed
    assert "The tool gave me" in printed


@pytest.mark.slow
def test_an_example_before_the_demo_is_one_clear_error(tmp_path):
    process = started("agent_tool", tmp_path)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "run `make demo` once" in errors.splitlines()[-1]


def test_every_example_is_looked_at_by_a_test():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert examples() <= tested
