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
EIGHT_LINES = r"\n(  .*\n){8}(?!  )"
# What each prints, as regular expressions.
PRINTED = {
    "llama_index_query_engine": [
        rf"(?m)^nearest neighbours{EIGHT_LINES}",
        rf"(?m)^SIFTReranker{EIGHT_LINES}",
        r"SIFTReranker\n(  .*\n)*?.*stochastic_depth\.md",
        r"SIFTRetriever chooses the same: True",
    ],
    "haystack_pipeline": [
        rf"(?m)^nearest neighbours{EIGHT_LINES}",
        rf"(?m)^SIFTRanker{EIGHT_LINES}",
        r"SIFTRanker\n(  .*\n)*?.*stochastic_depth\.md",
    ],
    "two_rerankers": [
        rf"(?m)^{name}{EIGHT_LINES}"
        for name in ("SIFT alone", "rare words alone", "rare words, then SIFT")
    ],
    "choose_at_query_time": [
        r"(?m)^  mode context, \d+ chunks, [\d.]+ s$",
        r"(?m)^  mode base, \d+ chunks, [\d.]+ s$",
        r"(?s)(of the variance at the query.*){3}",
        r"in the prompt, within \S+ s\)",
    ],
    "session": [
        r"(?ms)(^\[\w+\] learned from 10 chunks.*){2}",
        r"(?ms)(^\[\w+\] (?:How|What) [^\n]*\? .*){6}",
        r"they answer as they do alone: True",
        r"weights are what they were",
    ],
    "langchain_chain": [
        r"(?ms)(^  \d\.\d\d  .*){8}",
        r"A chain, streamed:",
        r"SIFTAnswer, mode fine_tune:",
    ],
    "agent_tool": ["search_model_docs", "stochastic depth is computed", "The tool gave me"],
    "vllm_generates": [
        r"^learned in 8 steps: loss \d",
        r"(?m)vLLM would load it as model=[0-9a-f]{16}…$",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(example_runs, name):
    finished = example_runs.of(name)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    for pattern in PRINTED[name]:
        assert re.search(pattern, finished.stdout), pattern


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
    assert set(example_names()) == PRINTED.keys()
