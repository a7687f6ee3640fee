"""What an engine reads under rules: a budget of tokens, a cap per document, the newest version."""

import asyncio
import re
from functools import partial

import pytest

from sift_core import (
    ChoiceOptions,
    InvalidInputError,
    NearestNeighborSelector,
    StopReason,
)
from sift_core.answering.in_context import InContextAnswerer
from sift_core.documents import Chunker
from tests.engines import engine_of

QUESTION = "How do I read the rows of a table?"
TEXTS = [
    f"{verb} the rows of table {n}" + " and then the rest" * n
    for verb in ("read", "copy", "sort")
    for n in range(4)
]


FILES = [{"source": f"{text.split()[0]}.md"} for text in TEXTS]


@pytest.fixture
def make_engine(small_lm):
    def make(texts=TEXTS, metadata=FILES, n_steps=None, **options):
        own = {"n_steps": n_steps, "options": ChoiceOptions(**options)}
        return engine_of(small_lm, texts, metadata=metadata, max_new_tokens=4, **own)

    return make


def n_tokens(small_lm, choice):
    size = InContextAnswerer(language_model=small_lm).size
    return sum(size(text) for text in choice.chunks(choice.read).texts)


def test_what_is_read_keeps_to_the_budget_in_the_models_tokens(make_engine, small_lm):
    free = make_engine().choose(QUESTION, mode="context")
    choice = make_engine(max_tokens=60).choose(QUESTION, mode="context")
    assert 0 < n_tokens(small_lm, choice) <= 60 < n_tokens(small_lm, free)
    assert choice.read.stop_reason is StopReason.LIMITS
    assert free.read.stop_reason is StopReason.N_SELECT


def test_a_request_goes_before_the_engine(make_engine, small_lm):
    engine = make_engine(max_tokens=60, max_per_document=3)
    more = engine.choose(QUESTION, mode="context", max_tokens=120)
    assert 60 < n_tokens(small_lm, more) <= 120
    one = asyncio.run(engine.achoose(QUESTION, mode="context", max_per_document=1))
    assert len({row["source"] for row in one.chunks(one.read).metadata}) == len(one.read)
    assert n_tokens(small_lm, one) <= 60


@pytest.mark.filterwarnings("ignore::sift_core.errors.NothingFitsWarning")
def test_what_is_learned_from_is_not_limited(make_engine):
    engine = make_engine(n_steps=5, max_tokens=1, max_per_document=1)
    choice = engine.choose(QUESTION, mode="both")
    assert (len(choice.read), len(choice.learned)) == (0, 5)


def test_a_selector_that_keeps_no_limits_is_refused(make_engine):
    with pytest.raises(InvalidInputError, match="NearestNeighborSelector"):
        make_engine(selector=NearestNeighborSelector(), max_tokens=10)
    engine = make_engine(selector=NearestNeighborSelector())
    with pytest.raises(InvalidInputError, match="NearestNeighborSelector"):
        engine.choose(QUESTION, max_per_document=1)


@pytest.fixture
def make_page_engine(make_engine):
    """An engine over one page that was cut into its sentences."""
    page = " ".join(
        f"Sentence {n} of the page tells of {'rows' if n % 5 else 'a pause'}." for n in range(30)
    )
    chunks = Chunker(60).split(page, format="text", document_id="page.txt")
    return partial(make_engine, [one.text for one in chunks], [one.metadata for one in chunks])


def test_neighbors_are_read_as_one_passage(make_page_engine, small_lm):
    apart = make_page_engine().choose(QUESTION, mode="both")
    for choice in [
        make_page_engine(merge_neighbors=True).choose(QUESTION, mode="both"),
        make_page_engine().choose(QUESTION, mode="both", merge_neighbors=True),
    ]:
        read, chunks = choice.chunks(choice.read), apart.chunks(apart.read)
        assert len(read) < len(chunks)
        assert set(chunks.texts) <= set(re.findall(r"Sentence[^.]*\.", " ".join(read.texts)))
        assert n_tokens(small_lm, choice) <= n_tokens(small_lm, apart) + 200
        assert choice.read.variances[-1] == apart.read.variances[-1]
        assert choice.learned.positions.tolist() == apart.learned.positions.tolist()
        assert choice.chunks(choice.learned).texts == apart.chunks(apart.learned).texts
