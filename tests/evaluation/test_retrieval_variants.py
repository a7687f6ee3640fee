import pytest

from sift_core.evaluation.retrieval.variants import (
    LARGEST_BOILERPLATE,
    SMALLEST_LIMIT,
    sentences_of,
    versions,
)

TEXT = (
    "Jane Austen was born in 1775. She wrote six novels. Emma came out in 1815. It was the last "
    'in her life. "Persuasion" followed after her death. She lies in Winchester.'
)
SENTENCES = sentences_of(TEXT)
TEXTS = {"sentences": TEXT, "one line": "A star makes light."}


def test_sentences_are_cut_at_full_stops():
    assert len(SENTENCES) == 6
    assert SENTENCES[4] == '"Persuasion" followed after her death.'
    assert " ".join(SENTENCES) == TEXT


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_versions_are_distinct_and_the_first_is_the_text(text):
    found = versions(text, "id", 20, seed=0)
    assert found[0] == text
    assert len(set(found)) == len(found) == 20


def test_versions_depend_on_the_arguments_alone():
    found = versions(TEXT, "id", 4, seed=0)
    assert found == versions(TEXT, "id", 4, seed=0)
    assert found[:2] == versions(TEXT, "id", 2, seed=0)
    assert found[1:] != versions(TEXT, "other", 4, seed=0)[1:]
    assert found[1:] != versions(TEXT, "id", 4, seed=1)[1:]


def test_a_pinned_version():
    # Embeddings are kept by text: another version of this module makes them all anew.
    assert versions(TEXTS["one line"], "id", 2, seed=0)[1] == "Print this page A star makes light."


def test_at_most_a_third_of_the_sentences_is_dropped_and_none_is_changed():
    kept = [sum(one in text for one in SENTENCES) for text in versions(TEXT, "id", 100, seed=0)]
    assert min(kept) == 4
    assert max(kept) == 6


def test_every_kind_of_edit_happens():
    found = versions(TEXT, "id", 100, seed=0)[1:]
    assert any(not text.startswith(tuple(SENTENCES)) for text in found)
    assert any(not text.endswith(tuple(SENTENCES)) for text in found)
    places = [[text.index(one) for one in SENTENCES if one in text] for text in found]
    assert any(place != sorted(place) for place in places)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_outweighs_the_boilerplate(text):
    limit = max(SMALLEST_LIMIT, LARGEST_BOILERPLATE * len(text))
    longest = max(versions(text, "id", 50, seed=0), key=len)
    assert len(longest) <= len(text) + limit + 2  # two blanks
