"""Every example runs without an argument once the demo has set things up."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra demo")
for framework in ("haystack", "langchain_qdrant", "langgraph", "llama_index.vector_stores.qdrant"):
    pytest.importorskip(framework, reason="the examples show the frameworks")

from tests.example_runs import example_names  # noqa: E402

ROOT = Path(__file__).parents[1]


@pytest.fixture
def output(example_runs):
    def of(name):
        finished = example_runs.of(name)
        assert finished.returncode == 0, finished.stderr
        assert finished.stderr == ""
        return finished.stdout

    return of


@pytest.mark.slow
def test_llama_index_query_engine(output):
    printed = output("llama_index_query_engine")
    nearest, chosen = re.findall(
        r"^(?:nearest neighbours|SIFTReranker)\n((?:  .*\n)+)", printed, re.M
    )
    assert len(nearest.splitlines()) == len(chosen.splitlines()) == 8
    assert "stochastic_depth.md" in chosen
    assert "SIFTRetriever chooses the same: True" in printed


@pytest.mark.slow
def test_haystack_pipeline(output):
    printed = output("haystack_pipeline")
    nearest, chosen = re.findall(
        r"^(?:nearest neighbours|SIFTRanker)\n((?:  .*\n)+)", printed, re.M
    )
    assert len(nearest.splitlines()) == len(chosen.splitlines()) == 8
    assert "stochastic_depth.md" in chosen


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
    assert printed.count("of the variance at the query") >= 3
    waits = float(re.search(r"in the prompt, within (\S+) s\)", printed)[1])
    budgets = re.findall(r"the (\S+) s of the caller", printed)
    assert budgets
    assert all(float(budget) <= waits for budget in budgets)  # fetching took some of it


@pytest.mark.slow
def test_session(output):
    printed = output("session")
    assert len(re.findall(r"^\[\w+\] learned from 10 chunks", printed, re.MULTILINE)) == 2
    assert len(re.findall(r"^\[\w+\] (?:How|What) .*\? ", printed, re.MULTILINE)) == 6
    assert "they answer as they do alone: True" in printed
    assert "weights are what they were" in printed


@pytest.mark.slow
def test_langchain_chain(output):
    printed = output("langchain_chain")
    assert len(re.findall(r"^  \d\.\d\d  ", printed, re.MULTILINE)) == 8
    assert "A chain, streamed:" in printed
    assert "SIFTAnswer, mode fine_tune:" in printed


@pytest.mark.slow
def test_agent_tool(output):
    printed = output("agent_tool")
    assert "search_model_docs" in printed
    assert "stochastic depth is computed" in printed
    assert "The tool gave me" in printed


@pytest.mark.slow
def test_vllm_generates(output):
    printed = output("vllm_generates")
    assert re.search(r"^learned in 8 steps: loss \d", printed)
    assert re.search(r"vLLM would load it as model=[0-9a-f]{16}…$", printed, re.MULTILINE)


@pytest.mark.slow
def test_an_example_before_the_demo_is_one_clear_error(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples/agent_tool.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "SIFT_DEMO_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        timeout=300,
        check=False,
    )
    assert finished.returncode == 1
    assert "run `make demo` once" in finished.stderr.splitlines()[-1]


def test_every_example_is_looked_at_by_a_test():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(example_names()) <= tested
