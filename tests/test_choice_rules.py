"""What a choice must keep, as selectors are told it."""

import numpy as np
import pytest

from sift_core import ChoiceRules, ContextSelector, InvalidInputError, MMRSelector, SIFTSelector
from sift_core.choice_rules import document_of, estimated_tokens, token_counter
from sift_core.testing import HashingEmbedder


def n_words(text):
    return len(text.split())


def test_limits_by_hand():
    told = ChoiceRules(max_tokens=3, max_per_document=1).on(
        ["a b c", "", "d"], [{}] * 3, count_tokens=n_words, documents=["file", None, None]
    )
    assert told.pop("groups") == ["file", (1, None), (2, None)]
    assert told == {"costs": [3, 1, 1], "budget": 3, "max_per_group": 1}


def test_documents_are_read_from_metadata_that_is_not_told():
    told = ChoiceRules(max_per_document=2).on(
        [], iter([{"source": "a"}, {"url": "b"}, {}]), count_tokens=n_words
    )
    assert told["groups"] == ["a", "b", (2, None)]


def test_dates_by_hand():
    dated = [{"on": "2024-01-01"}, {"on": "2024-01-11"}]
    rules = ChoiceRules(newest="on", half_life_days=10)
    told = rules.on([], dated, count_tokens=n_words)
    assert told.keys() == {"prefer", "weight"}
    assert told["weight"].tolist() == [0.5, 1.0]
    assert np.array_equal(rules.newness(dated), told["prefer"])


def test_without_rules_nothing_is_looked_at():
    untouched = iter(["text"])
    told = ChoiceRules().on(untouched, untouched, count_tokens=len, documents=untouched)
    assert told == {}
    assert next(untouched) == "text"
    assert ChoiceRules().newness([{}]) is None
    assert not ChoiceRules()
    assert ChoiceRules(newest="on")


@pytest.mark.parametrize(
    "wrong",
    [{"max_tokens": 0}, {"max_per_document": 1.5}, {"newest": 3}, {"half_life_days": float("nan")}],
    ids=str,
)
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidInputError, match=f"`{next(iter(wrong))}`"):
        ChoiceRules(**wrong)


def test_rules_that_do_not_fit_the_selector_are_refused():
    ChoiceRules().check(MMRSelector())
    ChoiceRules(max_tokens=1, newest="on").check(None)
    ChoiceRules(max_tokens=1, newest="on").check(ContextSelector())
    with pytest.raises(InvalidInputError, match="`half_life_days` needs `newest`"):
        ChoiceRules(half_life_days=3).check(None)
    with pytest.raises(InvalidInputError, match=r"a limit on tokens.*got MMRSelector"):
        ChoiceRules(max_tokens=1).check(MMRSelector())
    with pytest.raises(InvalidInputError, match="takes prefer, weight, as ContextSelector's"):
        ChoiceRules(newest="on").check(SIFTSelector())


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"source": "a.md", "url": "b"}, "a.md"),
        ({"source": "", "file_path": "c.md"}, "c.md"),
        ({"source": 3}, None),
        ({}, None),
    ],
)
def test_a_document_is_what_the_metadata_names(metadata, name):
    assert document_of(metadata) == name


def test_an_embedder_counts_without_its_marks_and_else_characters_do():
    class Marking(HashingEmbedder):
        def count_tokens(self, text):
            return 2 + len(text.split())

    assert token_counter(Marking())("one two three") == 3
    assert token_counter(HashingEmbedder()) is estimated_tokens
    assert [estimated_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]
