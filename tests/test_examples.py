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
    *(f"demo_{name}" for name in ("answers", "harbour", "methods", "picture", "report", "store")),
    "python_docs",
}
ELSEWHERE = {"demo", "index_with_ray"}  # the other wants a server
LIMIT_S = 600
EIGHT_LINES = r"\n(  .*\n){8}(?!  )"
# What each prints, as regular expressions.
PRINTED = {
    "llama_index_query_engine": [
        rf"(?m)^nearest neighbours{EIGHT_LINES}",
        rf"(?m)^SIFTReranker{EIGHT_LINES}",
        r"SIFTRetriever chooses the same: True",
    ],
    "haystack_pipeline": [
        rf"(?m)^nearest neighbours{EIGHT_LINES}",
        rf"(?m)^SIFTRanker{EIGHT_LINES}",
    ],
    "two_rerankers": [
        rf"(?m)^{name}{EIGHT_LINES}"
        for name in ("SIFT alone", "rare words alone", "rare words, then SIFT")
    ],
    "choose_at_query_time": [
        r"(?m)^  mode context, \d+ chunks, [\d.]+ s$",
        r"(?m)^  mode base, \d+ chunks, [\d.]+ s$",
        r"(?s)(of the variance at the query.*){2}",
        r"in the prompt, within \S+ s\)",
    ],
    "session": [
        r"(?ms)(^\[\w+\] learned from 10 chunks.*){2}",
        r"(?ms)(^\[\w+\] (?:How|What|Where|When|Who) [^\n]*\? .*){6}",
        r"they answer as they do alone: True",
        r"weights are what they were",
    ],
    "langchain_chain": [
        r"(?ms)(^  \d\.\d\d  .*){4}",
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
    """The demo over the harbour's handbook: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, run("demo", folder, "--cache", "cache", "--all-answers", **model)


@pytest.mark.slow
def test_the_demo_counts_facts_and_answers(demo):
    folder, demo = demo
    assert demo.returncode == 0, demo.stderr
    assert demo.stderr == ""
    for kind in ("two hops", "number or name", "newest", "several facts", "all"):
        of, *found = re.search(rf"(?m)^{kind}((?: +\d+)(?:(?: +\d+)[ ↓↑]*){{5}})$", demo.stdout)[
            1
        ].split()
        assert all(0 <= int(one) <= int(of) for one in found if one.isdigit())
    for name in ("nearest", "MMR", "hybrid", "SIFT"):
        assert len(re.findall(rf"(?m)^{name}(: \d of \d facts?)?$", demo.stdout)) == 5
        assert len(re.findall(rf"(?m)^ [✓✗] {name} ", demo.stdout)) == 5
    assert re.search(r"(?m)^     ↳ shares: \w+", demo.stdout)
    assert re.search(r"(?m)^unanswerable +5( +[0-5] *[↓↑]?){4} *$", demo.stdout)
    assert (folder / "cache/demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_demo_asks_a_folder_of_ones_own(tmp_path, model):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "kettle.md").write_text("# Kettle\n\nIt is in the galley.\n", encoding="utf-8")
    asked = ["--docs", "docs", "--cache", "cache", "--question", "Where is the kettle?"]
    finished = run("demo", tmp_path, *asked, **model)
    assert finished.returncode == 0, finished.stderr
    assert "1 chunk, 1 of them new" in finished.stdout
    assert len(re.findall(r"(?m)^   kettle.md.* It is in the galley\.$", finished.stdout)) == 4
    assert len(re.findall(r"(?m)^   (nearest|MMR|hybrid|SIFT) ", finished.stdout)) == 4
    assert "harbour" not in finished.stdout
    assert " of " not in finished.stdout.replace("1 of them", "")  # nothing is counted
    assert not (tmp_path / "cache/demo.png").exists()


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
