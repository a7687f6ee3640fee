"""One choice beneath every surface: `choose` from a pool, `search` in a source."""

import asyncio
import re
import threading
import warnings
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest

from sift_core import (
    CandidatePool,
    ChoiceOptions,
    ContextSelector,
    InMemorySource,
    InvalidInputError,
    MMRSelector,
    Query,
    StopReason,
    achoose,
    asearch,
    choose,
    search,
)
from sift_core.errors import MissingKeyWarning, NothingFitsWarning, UndatedWarning
from sift_core.places import Place
from sift_core.sources import CombinedSource
from sift_core.sources.multi_query import fetch_for_all
from sift_core.testing import HashingEmbedder

N = 12
EMBEDDER = HashingEmbedder()
TEXTS = [f"fact {row} about {'tea boats cranes harbours'.split()[row % 4]}" for row in range(N)]
ROWS = EMBEDDER.embed_documents(TEXTS)
QUERY = Query(text="tea and boats", embedding=EMBEDDER.embed_query("tea and boats"))


def make_pool(**columns):
    cosines = ROWS @ QUERY.vector / np.linalg.norm(ROWS, axis=1) / np.linalg.norm(QUERY.vector)
    given = {"document_ids": [f"c{row}" for row in range(N)], "texts": TEXTS, "embeddings": ROWS}
    return CandidatePool(**given, similarities=np.clip(cosines, -1, 1), **columns)


class Recording(ContextSelector):
    """Records what it is given."""

    seen: dict = {}  # noqa: RUF012

    @wraps(ContextSelector.select)
    def select(self, *arguments, **options):
        Recording.seen.update(options)
        return super().select(*arguments, **options)


def arguments(pool, **options):
    Recording.seen.clear()
    choose(pool, QUERY, ChoiceOptions(selector=Recording(), **options))
    rules = [Recording.seen.get(name) for name in ("limits", "preferences")]
    found = {name: value for one in rules if one for name, value in vars(one).items()}
    return {name: value for name, value in found.items() if value is not None}


def test_without_rules_the_selector_chooses():
    pool = make_pool()
    chosen = choose(pool, QUERY, ChoiceOptions(words=0))
    expected = ContextSelector().select(QUERY.vectors, ROWS, 10)
    assert chosen.positions.tolist() == expected.positions.tolist()
    assert chosen.variances.tolist() == expected.variances.tolist()
    assert chosen.stop_reason is StopReason.N_SELECT
    assert chosen.pool is pool
    assert chosen.query is QUERY
    assert [one.rows for one in chosen.passages] == [(row,) for row in expected.positions]
    assert arguments(pool, words=0) == {}


def test_a_token_budget_by_hand():
    found = arguments(
        make_pool(), max_tokens=9, count_tokens=lambda text: len(text) - len(TEXTS[0])
    )
    assert found["costs"][0] == 1  # a text without a token costs one
    assert found["costs"][1] == len(TEXTS[1]) - len(TEXTS[0])
    assert found["budget"] == 9
    assert arguments(make_pool(), max_tokens=10**400)["budget"] == 2**53


def test_tokens_are_those_that_are_read():
    class Wrapped(CandidatePool):
        def as_read(self, row, text):
            return f"{self.metadata[row]['title']}: {text}"

    pool = make_pool(metadata=[{"title": "t" * row} for row in range(N)])
    wrapped = Wrapped(**vars(pool))
    found = arguments(wrapped, max_tokens=99, count_tokens=len)
    assert found["costs"] == [row + 2 + len(text) for row, text in enumerate(TEXTS)]
    assert type(wrapped.take([0])) is Wrapped


def test_documents_are_named_by_a_key_or_by_the_usual_ones():
    metadata = [{"source": "a", "url": "u"}, {"url": "b"}, {"page": 3}] + [{}] * (N - 3)
    pool = make_pool(metadata=metadata)
    usual = arguments(pool, max_per_document=2)
    assert usual["groups"][:4] == ["a", "b", (2, None), (3, None)]
    assert usual["max_per_group"] == 2
    by_key = arguments(pool, max_per_document=1, document_key="page")
    assert by_key["groups"][:4] == [(0, None), (1, None), "3", (3, None)]


def test_dates_by_hand():
    days = [{"on": f"2024-01-{1 + row:02}"} for row in range(N)]
    pool = make_pool(metadata=days)
    found = arguments(pool, newest="on", half_life_days=11)
    assert found["prior"][[0, -1]].tolist() == [0.5, 1.0]
    options = ChoiceOptions(newest="on")
    assert np.array_equal(options.newness(pool), found["prefer"])
    assert ChoiceOptions().newness(pool) is None
    with pytest.warns(UndatedWarning):
        choose(make_pool(), QUERY, options)
    assert options.newness(make_pool()) is not None  # without a warning


def placed(pool, starts):
    class Placed(CandidatePool):
        def place(self, row, document_key=None):
            return Place("a", starts[row], "text")

    return Placed(**vars(pool))


def test_neighbors_become_one_passage():
    starts = np.cumsum([0, *(len(text) + 1 for text in TEXTS)]).tolist()
    pool = placed(make_pool(metadata=[{"n": row} for row in range(N)]), starts)
    chosen = choose(pool, QUERY, ChoiceOptions(n_select=N, merge_neighbors=True))
    assert len(chosen) == len(chosen.passages) == 1
    assert chosen.chunks.texts == ("\n".join(TEXTS),)
    apart = choose(pool, QUERY, ChoiceOptions(n_select=N))
    assert chosen.variances.tolist() == [apart.variances[0], apart.variances[-1]]
    [pick] = chosen.picks
    assert pick.row == chosen.positions[0] == apart.positions[0]
    assert pick.chunks == pool.document_ids
    assert pick.as_dict()["chunks"] == list(pool.document_ids)
    assert chosen.chunks.metadata[0] == {"n": 0, "chunks": list(pool.document_ids)}
    assert chosen.chunks.document_ids == (f"c{pick.row}",)


@pytest.mark.parametrize("tokens", [{"room": 12}, {"max_tokens": 12}])
def test_joined_passages_keep_to_the_room(tokens):
    room = tokens.pop("room", None)
    starts = np.cumsum([0, *(len(text) + 1 for text in TEXTS)]).tolist()
    pool = placed(make_pool(), starts)
    options = ChoiceOptions(
        n_select=3, merge_neighbors=True, count_tokens=lambda text: len(text.split()), **tokens
    )
    chosen = choose(pool, QUERY, options, room=room)
    assert sum(len(text.split()) for text in chosen.chunks.texts) <= 12


def test_from_no_candidate_nothing_is_chosen():
    for options in (
        ChoiceOptions(),
        ChoiceOptions(max_tokens=3, max_per_document=1, newest="on", merge_neighbors=True),
    ):
        chosen = choose(CandidatePool.empty(dimension=len(QUERY.vector)), QUERY, options)
        assert len(chosen) == len(chosen.chunks) == len(chosen.picks) == 0
        assert chosen.stop_reason is StopReason.POOL_EXHAUSTED
        assert chosen.as_dict()["chunks"] == []
        assert chosen.ranking() == []


def make_source():
    return InMemorySource(ROWS, TEXTS, metadata=[{"even": row % 2 == 0} for row in range(N)])


def test_a_search_fetches_and_then_chooses():
    source = make_source()
    options = ChoiceOptions(n_select=2, n_candidates=5, hops=0)
    found = search(source, QUERY, options, filter=lambda metadata: metadata["even"])
    pool = fetch_for_all(
        source, QUERY, 5, filter=lambda metadata: metadata["even"], with_words=True
    )
    assert found.pool.document_ids == pool.document_ids
    assert found.positions.tolist() == choose(pool, QUERY, options).positions.tolist()
    assert found.timings.keys() == {"fetch", "select"}
    awaited = asyncio.run(asearch(source, QUERY, options, filter=lambda metadata: metadata["even"]))
    assert awaited.positions.tolist() == found.positions.tolist()
    assert awaited.timings.keys() == {"fetch", "select"}


def test_choosing_leaves_the_event_loop_free():
    loop_thread, threads = threading.get_ident(), []

    class Noting(ContextSelector):
        def select(self, *arguments, **options):
            threads.append(threading.get_ident())
            return super().select(*arguments, **options)

    options = ChoiceOptions(selector=Noting())

    async def both():
        return await achoose(make_pool(), QUERY, options), await asearch(
            make_source(), QUERY, options
        )

    chosen, found = asyncio.run(both())
    assert chosen.positions.tolist() == choose(make_pool(), QUERY, options).positions.tolist()
    assert len(found) == 10
    assert threads[-1] == loop_thread
    assert loop_thread not in threads[:2]


INVOICES = [f"Invoice {1000 + row}: pay 50 euros for cleaning until May." for row in range(60)]


def invoices(**columns):
    """Return a pool whose embeddings hardly differ, as those of templated chunks."""
    rows = 1.0 + 0.02 * np.random.default_rng(0).standard_normal((len(INVOICES), 16))
    query = np.ones(16)
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    pool = CandidatePool(
        document_ids=[str(row) for row in range(len(INVOICES))],
        texts=INVOICES,
        embeddings=rows,
        similarities=np.minimum(cosines, 1.0),
        **columns,
    )
    return pool, Query(text="What does invoice 1037 ask for?", embedding=query)


def test_words_find_the_number_that_embeddings_do_not_tell_apart():
    pool, query = invoices()
    assert choose(pool, query, ChoiceOptions(words=0)).positions[0] != 37
    chosen = choose(pool, query)
    assert chosen.positions[0] == 37
    assert chosen.picks[0].relevance > chosen.picks[1].relevance
    assert any("37" in word for word in chosen.picks[0].shares)
    # All invoices have the other words of the question, which say nothing about a pick.
    other = chosen.picks[1]
    assert other.shares == ()
    other = replace(other, reached_from=None)
    assert other.reason == f"similarity {other.similarity:.2f}, gain {other.gain:.2f}"
    assert chosen.picks[0].similarity == pool.similarities[37]  # still of embeddings alone


def test_words_of_a_title_count():
    titles = [{"title": "Harbour" if row == 21 else "Notice"} for row in range(len(INVOICES))]
    pool, query = invoices(metadata=titles)
    query = replace(query, text="harbour")
    assert choose(pool, query, ChoiceOptions(words=0.7)).positions[0] == 21
    headings = replace(pool, metadata=[{"heading": ["A", one["title"]]} for one in titles])
    assert headings.heading(21) == "A Harbour"
    assert choose(headings, query, ChoiceOptions(words=0.7)).positions[0] == 21


def test_short_versions_that_differ_in_a_number_are_still_versions():
    texts = [
        "The fee for a library card is 4 euros a year and is due in March.",
        "The fee for a library card is 5 euros a year and is due in March.",
        "All offices of the town hall open at 8 from Monday to Friday.",
        "All offices of the town hall open at 9 from Monday to Friday.",
    ]
    rows = np.array([[1, 0, 0], [0.98, 0.15, 0], [0.6, 0.8, 0], [0.55, 0.83, 0.1]])
    dates = ["2023-01-01", "2024-01-01", "2022-05-01", "2022-05-02"]
    pool = CandidatePool(
        document_ids=list("0123"),
        texts=texts,
        embeddings=rows,
        similarities=rows[:, 0],
        metadata=[{"on": date} for date in dates],
    )
    query = Query(text="what is the fee", embedding=np.array([1.0, 0, 0]))
    chosen = choose(pool, query, ChoiceOptions(n_select=2, newest="on"))
    assert chosen.positions.tolist() == [1, 3]


def test_a_question_without_words_ranks_by_its_embedding():
    pool, query = invoices()
    chosen = choose(pool, replace(query, text="?"))
    cosines = pool.similarities[chosen.positions]
    assert [one.relevance for one in chosen.picks] == pytest.approx(cosines.tolist())


def test_any_selector_goes_by_words():
    pool, query = invoices()
    options = ChoiceOptions(words=0.7, selector=MMRSelector(), n_select=2)
    assert choose(pool, query, options).positions[0] == 37


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"newest": "dat"}, r"key 'dat', so `newest` does nothing; there are \['date', 'file'\]"),
        ({"document_key": "fiel", "max_per_document": 1}, "'fiel', so `document_key` does"),
        ({"document_key": "fiel", "merge_neighbors": True}, "'fiel', so `document_key` does"),
    ],
)
def test_a_key_that_no_candidate_has_is_named(options, said):
    rows = np.eye(3)
    metadata = [{"file": "a", "date": "2024-01-01"}, {"file": "a"}, {}]  # one of them is enough
    source = InMemorySource(rows, ["x", "y", "z"], metadata=metadata)
    query = Query(text="", embedding=rows[0])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        search(source, query, ChoiceOptions(**options))
    assert [one.category for one in warned] == [MissingKeyWarning]  # one warning for one cause
    assert re.search(said, str(warned[0].message))
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingKeyWarning)
        warnings.simplefilter("ignore", UndatedWarning)  # of the other two
        right = {"dat": "date", "fiel": "file"}
        fixed = {name: right.get(value, value) for name, value in options.items()}
        search(source, query, ChoiceOptions(**fixed))
        search(source, query, ChoiceOptions(document_key="fiel"))  # no rule needs it


@pytest.mark.parametrize(
    ("pool", "query", "options", "message"),
    [
        (
            "tea",
            make_pool(),
            ChoiceOptions(),
            "`pool` must be of the class CandidatePool, got 'tea'",
        ),
        (
            make_pool(),
            "tea",
            ChoiceOptions(),
            "`query` must be of the class Query, got 'tea'; pass",
        ),
        (make_pool(), QUERY.vector, ChoiceOptions(), "`query` must be of the class Query"),
        (make_pool(), QUERY, {"n_select": 3}, "`options` must be of the class ChoiceOptions"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(pool, query, options, message):
    with pytest.raises(InvalidInputError, match=message):
        choose(pool, query, options)
    source = InMemorySource(ROWS, TEXTS)
    if isinstance(pool, CandidatePool):
        with pytest.raises(InvalidInputError, match=message):
            search(source, query, options)
        with pytest.raises(InvalidInputError, match=message):
            asyncio.run(asearch(source, query, options))


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("junk", ["# Empty", "TODO", "harbours"])
def test_a_budget_buys_no_empty_page(junk, backend):
    """A page of two words costs next to nothing, and filled the rest of each budget.

    By hand: the question's direction is e0. Five long texts have the cosines 0.9, 0.8, 0.7, 0.6
    and 0.5 with it, and the page 0.0; of the texts two fit into 120 tokens of 50 each.
    """
    cosines = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.0])
    rows = np.eye(7)[1:] * np.sqrt(1 - cosines**2)[:, None]
    rows[:, 0] = cosines
    texts = [" ".join(f"word{10 * i + j}" for j in range(50)) for i in range(5)]
    candidates = CandidatePool(
        document_ids=[*"abcde", "junk"], texts=[*texts, junk], embeddings=rows, similarities=cosines
    )
    options = ChoiceOptions(
        max_tokens=120,
        count_tokens=lambda text: len(text.split()),
        selector=ContextSelector(backend=backend),
        words=0,
    )
    chosen = choose(candidates, Query(text="?", embedding=np.eye(7)[0]), options)
    assert list(chosen.chunks.document_ids) == ["a", "b"]
    assert chosen.stop_reason is StopReason.LIMITS


@pytest.mark.parametrize("words", [0.7, 0])
def test_a_limit_below_every_text_is_said_with_the_shortest(words):
    texts = ["one two three", "one two", "one two three four"]
    pool = replace(make_pool().take([0, 1, 2]), texts=texts)
    options = ChoiceOptions(words=words, max_tokens=1, count_tokens=lambda text: len(text.split()))
    with pytest.warns(NothingFitsWarning, match="shortest of 3 .* 2 tokens, .* is 1; raise it"):
        assert len(choose(pool, QUERY, options).picks) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", NothingFitsWarning)
        assert len(choose(pool, QUERY, replace(options, max_tokens=2)).picks) == 1
        choose(pool.take([]), QUERY, options)


@pytest.mark.parametrize("wrong", [None, "docs", object()], ids=["none", "text", "object"])
def test_what_finds_nothing_is_refused_by_the_methods_that_it_lacks(wrong):
    query = Query(text="ships", embedding=np.ones(2))
    with pytest.raises(InvalidInputError, match=r"`source` must have the method `fetch`.* no `fe"):
        search(wrong, query)
    with pytest.raises(InvalidInputError, match=r"`source` must have the method `afetch`"):
        asyncio.run(asearch(wrong, query))
    with pytest.raises(InvalidInputError, match=r"`sources\['it'\]` must have the methods `fetch`"):
        CombinedSource({"it": wrong})
