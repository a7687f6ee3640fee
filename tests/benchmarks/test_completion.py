"""Which texts the benchmark of completions holds back, and that no chunk shows them."""

import sys

import pytest

from benchmarks import completion
from benchmarks.completion_data import MINUTES, _code, read_collection
from benchmarks.completion_overlap import best, runs
from sift_core.documents import Chunker

BODY = "\n".join(f"    {name} = load({name!r}, {n})" for n, name in enumerate("abcde", start=10))
TEXT = f'''"""A module."""


class Shelf:
    limit = 3

    @property
    def first(self):
        """Return the first."""
    {BODY.replace(chr(10), chr(10) + "    ")}
        return a


def short():
    return 1


async def second(
    shelf,
):
{BODY.replace("load", "fetch")}
    return b
'''


def test_a_held_back_body_stands_between_its_prompt_and_the_rest_and_in_no_chunk():
    collection = _code("shelves", {"shelf.py": TEXT}, Chunker(), 2)
    begins = {one.body.split("'")[0] for one in collection.examples}
    assert begins == {"\n        a = load(", "\n    a = fetch("}
    assert len(collection.chunks) > 0
    for one in collection.examples:
        assert one.before + one.body + one.after == TEXT
        assert one.before.endswith(('"""Return the first."""', "shelf,\n):"))
        line = one.body.strip().split("\n")[0]
        assert not any(line in chunk.text for chunk in collection.chunks)


def test_bodies_that_were_drawn_for_tuning_stay_in_the_collection():
    tuned, other = (_code("shelves", {"shelf.py": TEXT}, Chunker(), 1, n_tuned=n) for n in (0, 1))
    assert tuned.examples[0].body != other.examples[0].body
    line = tuned.examples[0].body.strip().split("\n")[0]
    assert any(line in chunk.text for chunk in other.chunks)


def test_the_newest_minutes_are_held_back_and_the_rest_of_the_handbook_is_the_collection(tmp_path):
    part = {"n": 60, "cache": tmp_path, "data": None}
    collection = read_collection(MINUTES, Chunker(), **part)
    held_back = [one.path for one in collection.examples]
    assert held_back == sorted(held_back, reverse=True)
    assert len(held_back) == 12
    kept = {chunk.metadata["source"] for chunk in collection.chunks}
    assert not kept & set(held_back)
    assert max(one for one in kept if one.startswith("minutes/")) < min(held_back)
    assert len({one.split("/")[0] for one in kept}) > 2
    for one in collection.examples:
        assert one.before.startswith("# HSOC minutes")
        assert "Present:" in one.body


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sets", "mcp,mpc"], "no mpc; there are a2a-sdk, mcp"),
        (["--arms", "bases"], "no bases; there are base"),
        (["--sets", "release notes"], "needs --data"),
    ],
)
def test_a_name_that_is_not_there_is_refused(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["completion", *arguments])
    with pytest.raises(SystemExit):
        completion.parse()
    assert message in capsys.readouterr().err


def _rows(arm, n):
    about = {"set": "mcp", "held_back": 2, "n_chunks": 9, "n_learned": 3, "left_out": None}
    measured = {"bits": 40.0, "bytes": 20, "hits": 3, "tokens": 5, "choose_s": 0.1, "learn_s": 0.1}
    scores = dict.fromkeys([*completion.GENERATED, "read_s", "write_s"], 0.5)
    return [{**about, "arm": arm, "example": i, **measured, **scores} for i in range(n)]


def test_an_arm_that_is_still_measured_shortens_no_other():
    found = completion.summaries([*_rows("base", 2), *_rows("sift", 2), *_rows("learned", 1)])
    assert [(one["arm"], one["n"]) for one in found] == [("base", 2), ("sift", 2)]


def test_arms_without_the_base_model_are_refused():
    with pytest.raises(SystemExit, match="measure it with --arms base"):
        completion.summaries(_rows("learned", 2))


def test_runs_that_two_chunks_share_count_once_among_the_best():
    wanted = runs(list("abcdefgh"))
    assert wanted[0] == tuple("abcd")
    assert len(wanted) == 5
    chunks = [set(runs(list(text))) for text in ("xabcdef", "bcdefg", "defgh", "zzzz")]
    assert [best(wanted, chunks, n) for n in (0, 1, 2, 9)] == [0, 3, 5, 5]
    assert best([*wanted, wanted[0]], chunks[:1], 1) == 4
    assert best(wanted, [], 4) == 0
