"""The demo, and then every example over what it left behind, each as a user runs it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra demo")
for framework in (
    "mcp",
    "haystack",
    "langchain_qdrant",
    "langgraph",
    "pydantic_ai",
    "llama_index.vector_stores.qdrant",
):
    pytest.importorskip(framework, reason="the examples show the frameworks")

from tests.random_model import save_random_model  # noqa: E402

EXAMPLES = Path(__file__).parents[1] / "examples"
HELPERS = {
    *("demo_answers", "demo_pace", "demo_questions", "demo_report", "demo_store"),
    *("python_docs", "transformers_docs"),
}
ELSEWHERE = {"demo", "index_with_ray"}  # the other wants a server
QUESTION = "How is stochastic depth computed?"
LIMIT_S = 600
TOPICS = (
    "stochastic depth",
    "relative position bias",
    "window partition",
    "patch embedding",
    "class token",
    "layer scale",
    "attention pooling",
    "causal mask",
    "feature pyramid",
    "position encoding",
)
PAGE = """# {topic}

How {topic} is computed in an image model, with `{name}(hidden_states, scale)`.

The hidden states are walked once, from the first layer to the last, at most *scale* of them are
changed. The call returns {topic} for each sample of the batch; an empty batch gives an empty
tensor. It raises ValueError where *scale* is negative, and where there are no such states.
"""
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
    "vllm_generates": [
        r"^learned in 8 steps: loss \d",
        r"(?m)vLLM would load it as model=[0-9a-f]{16}…$",
    ],
}

# The same of those that need no demo. Only what SIFT chose leads the bundled model to the fact.
PRINTED_ALONE = {
    "agent_memory": [
        r"^200 notes remembered",
        r"(?ms)(^  and \d other notes, in [1-7]\d\d tokens$.*){9}",
        r"came first for [89] of 9 questions",  # on some machines not the one that never changed
        r"was returned for 9 of 9 questions",
    ],
    "langgraph_node": [
        r"\nnearest neighbours\n(  Runbook of .*\n){2}answer: (?!.*pay-2)",
        r"\nSIFT\n  Runbook .*\(adds \d+%, shares: .*\n  .* pay-2\. \(adds .*\nanswer: .*pay-2",
    ],
    "llama_index_workflow": [
        r"\nnearest neighbours\n(  Ticket \d+: .*\n){2}answer: (?!.*3\.4)",
        r"\nSIFT\n  Ticket \d+: .*\(adds .*\n  Version 3\.4 .*\(adds .*\nanswer: .*3\.4",
    ],
    "pydantic_ai_agent": [
        r"\nnearest neighbours\n(  .*within 30 days of delivery\.\n){2}\n",
        r"\n    pages/parcels\.md: similarity \d\.\d\d; adds \d+%; shares: .*parcel",
        r"\nreply: .*pays for the parcel.*within 30 days of delivery",
        r"\nsources: pages/parcels\.md, pages/returns-\d+\.md\n$",
    ],
}


def run(name, folder, *arguments, **variables):
    """Run an example in a folder, since nothing may depend on where one stands."""
    own = {"COLUMNS": "140", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", *arguments],
        env={**os.environ, **own, **variables},
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=LIMIT_S,
        check=False,
    )


def check(finished, patterns):
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    for pattern in patterns:
        assert re.search(pattern, finished.stdout), f"{pattern} in {finished.stdout}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return {
        "SIFT_DEMO_MODEL": str(save_random_model(tmp_path_factory.mktemp("model"), window=2048))
    }


@pytest.fixture(scope="module")
def demo(tmp_path_factory, model):
    """The demo over ten pages: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "docs").mkdir()
    for topic in TOPICS:
        name = topic.replace(" ", "_")
        page = PAGE.format(topic=topic, name=name)
        (folder / f"docs/{name}.md").write_text(page, encoding="utf-8")
    asked = ["--docs", "docs", "--cache", "cache", "--question", QUESTION]
    return folder, run("demo", folder, *asked, **model)


@pytest.mark.slow
def test_the_demo_answers_a_question(demo):
    folder, demo = demo
    assert demo.returncode == 0, demo.stderr
    assert demo.stderr == ""
    assert "10 chunks, 10 of them new" in demo.stdout
    for name in ("nearest", "MMR", "SIFT"):
        assert re.search(rf"{name}: \d+ of 10 repeat", demo.stdout)
        assert f"Answer from {name}" in demo.stdout
    assert len(re.findall(r"\d+ tokens read, first word after", demo.stdout)) == 3
    rows = re.findall(r"^(\w+) +(\d\.\d{3}) +(\d+)% +\d", demo.stdout, re.MULTILINE)
    bits = {mode: float(figure) for mode, figure, _ in rows}
    assert list(bits) == ["base", "context", "fine_tune", "both"]
    picture = folder / "cache/demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(demo, model, tmp_path, name):
    cache = shutil.copytree(demo[0] / "cache", tmp_path / "cache")  # a Qdrant folder is for one
    finished = run(name, tmp_path, SIFT_DEMO_CACHE=str(cache), **model)
    check(finished, PRINTED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED_ALONE)
def test_an_example_prints_what_it_should_without_the_demo(tmp_path, name):
    check(run(name, tmp_path), PRINTED_ALONE[name])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_example_before_the_demo_is_one_clear_error(tmp_path):
    finished = run("haystack_pipeline", tmp_path, SIFT_DEMO_CACHE=str(tmp_path))
    assert finished.returncode == 1
    assert "run `make demo` once" in finished.stderr.splitlines()[-1]


def test_every_example_is_looked_at_by_a_test():
    examples = {path.stem for path in EXAMPLES.glob("*.py")}
    assert examples - HELPERS - ELSEWHERE == PRINTED.keys() | PRINTED_ALONE.keys()
