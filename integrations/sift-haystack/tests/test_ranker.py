import copy
import dataclasses
import json

import numpy as np
import pytest
from haystack import Document
from haystack.components.preprocessors import DocumentSplitter

from haystack_integrations.components.rankers.sift import SIFTRanker
from sift_core import ContextSelector, InvalidInputError, Limits, MMRSelector
from sift_core.errors import EmptyEntryWarning
from sift_core.token_estimate import estimated_tokens


def words(text):
    return len(text.split())


def texts(documents):
    return [document.content for document in documents]


def chosen_by(selector, documents, query_embedding, n, **options):
    rows = np.array([document.embedding for document in documents])
    positions = selector.select(np.array(query_embedding), rows, n, **options).positions
    return [documents[i].content for i in positions]


@pytest.fixture
def rank(query_embedding):
    """What a ranker of some settings makes of documents, `run` or `run_async` alike."""

    def ranked(documents, **settings):
        return SIFTRanker(**settings).run(documents, query_embedding=query_embedding)["documents"]

    return ranked


@pytest.mark.parametrize("selector", [None, MMRSelector(relevance_weight=0.3)], ids=["own", "mmr"])
def test_the_choice_equals_select(rank, documents, query_embedding, selector):
    expected = chosen_by(selector or ContextSelector(), documents, query_embedding, 5)
    assert texts(rank(documents, top_k=5, selector=selector, words=0)) == expected


async def test_it_chooses_the_same_when_awaited(documents, query_embedding):
    ranker = SIFTRanker(top_k=5)
    expected = ranker.run(documents, query_embedding=query_embedding)
    assert await ranker.run_async(documents, query_embedding=query_embedding) == expected


async def test_each_of_several_queries_has_its_turns(documents, query_embedding, text_embedder):
    others = [documents[-1].content, documents[0].content]
    ranker = SIFTRanker(top_k=2, text_embedder=text_embedder)
    found = ranker.run(documents, query_embedding=query_embedding, queries=others)["documents"]
    assert sorted(texts(found)) == sorted(others)
    assert await ranker.run_async(documents, queries=others) == {"documents": found}
    alone = ranker.run(documents, query=others[0])["documents"]
    assert ranker.run(documents, query="?", queries=others[:1])["documents"] == alone
    for wrong in ("one text", [" "], [3]):
        with pytest.raises(InvalidInputError, match="`queries` a list of such"):
            ranker.run(documents, queries=wrong)


def test_top_k_of_a_call_goes_before_the_rankers(documents, query_embedding):
    ranker = SIFTRanker(top_k=5)
    found = ranker.run(documents, query_embedding=query_embedding, top_k=2)["documents"]
    assert texts(found) == chosen_by(ContextSelector(), documents, query_embedding, 2)


def test_what_comes_back_are_copies_that_say_why(rank, documents):
    before = copy.deepcopy(documents)
    chosen = rank([dataclasses.replace(each, score=0.5) for each in documents], top_k=4, words=0)
    assert documents == before
    originals = {document.id: document for document in documents}
    for document in chosen:
        told = document.meta["sift"]
        assert list(told) == [
            *("similarity", "score", "relevance", "redundancy", "gain", "variance")
        ]
        assert told["score"] == 0.5
        json.dumps(document.to_dict())  # no numbers of NumPy's
        original = originals[document.id]
        assert document.meta == {**original.meta, "sift": told}
        assert document.embedding == original.embedding
    scores = [document.score for document in chosen]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0)
    assert len(set(scores)) == 4


def test_scores_can_be_cosines_in_the_order_of_choice(rank, documents):
    told = rank(documents, top_k=4)
    near = rank(documents, top_k=4, score="similarity")
    assert texts(near) == texts(told)
    assert [one.score for one in near] == [one.meta["sift"]["similarity"] for one in told]
    with pytest.raises(InvalidInputError, match="`score` must be"):
        SIFTRanker(score="cosine")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("max_token", "max_tokens"), ("n_select", "top_k"), ("top_n", "top_k"), ("k", "top_k")],
)
def test_a_wrong_name_is_refused_with_the_right_one(name, meant):
    with pytest.raises(TypeError, match=f"no option '{name}'; do you mean `{meant}`"):
        SIFTRanker(**{name: 7})


def test_a_question_without_its_text_is_said_once(documents, query_embedding, question, caplog):
    SIFTRanker(words=0).run(documents, query_embedding=query_embedding)
    ranker = SIFTRanker(top_k=2)
    ranker.run(documents, query=question, query_embedding=query_embedding)
    assert not caplog.records
    for _ in range(2):
        ranker.run(documents, query_embedding=query_embedding)
    (record,) = caplog.records
    assert "pass its text as `query`" in record.getMessage()


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_nothing_stays_nothing_and_asks_nobody(text_embedder, is_awaited):
    ranker = SIFTRanker(text_embedder=text_embedder)
    found = await ranker.run_async([]) if is_awaited else ranker.run([])
    assert found == {"documents": []}
    assert text_embedder.n_texts == 0


def test_a_document_that_arrives_twice_is_kept_once_with_its_highest_score(rank, documents):
    first, *rest = documents
    twice = [dataclasses.replace(first, score=score) for score in (None, 0.2, 0.9, 0.4)]
    kept = rank([*twice, *rest], top_k=20)
    assert sorted(texts(kept)) == sorted(texts(documents))
    (again,) = (document for document in kept if document.id == first.id)
    assert again.meta["sift"]["score"] == 0.9


def test_chunks_that_share_an_id_are_kept_each_with_its_own_text(rank, documents):
    shared = [dataclasses.replace(one, id=f"d{i % 2}") for i, one in enumerate(documents[3:])]
    kept = rank(shared, top_k=9)
    assert sorted(texts(kept)) == sorted(texts(shared))
    own = {one.content: one.embedding for one in shared}
    assert all(one.embedding == own[one.content] for one in kept)


def test_scores_of_an_earlier_ranker_say_what_is_relevant(rank, documents, query_embedding):
    ranked = [dataclasses.replace(each, score=float(i)) for i, each in enumerate(documents[::-1])]
    ranked = ranked[::-1]  # best first: the last text of all says most
    ranked = [dataclasses.replace(each, score=float(words(each.content))) for each in ranked]
    scores = np.array([document.score for document in ranked])
    expected = chosen_by(ContextSelector(), ranked, query_embedding, 4, relevance=scores)
    by_cosines = chosen_by(ContextSelector(), ranked, query_embedding, 4)
    assert expected != by_cosines
    assert texts(rank(ranked, top_k=4, words=0)) == expected
    assert texts(rank(ranked, top_k=4, words=0, use_scores=False)) == by_cosines


def test_a_missing_score_that_must_be_used_is_refused(rank, documents):
    with pytest.raises(InvalidInputError, match="has no finite score"):
        rank(documents, use_scores=True)


def test_no_more_tokens_are_kept_than_asked_for(rank, documents, query_embedding):
    limits = Limits(costs=list(map(words, texts(documents))), budget=20)
    expected = chosen_by(ContextSelector(), documents, query_embedding, 10, limits=limits)
    assert texts(rank(documents, max_tokens=20, count_tokens=words)) == expected
    estimated = rank(documents, max_tokens=20)
    assert 0 < sum(map(estimated_tokens, texts(estimated))) <= 20


@pytest.mark.parametrize(
    ("key", "settings"),
    [("file_path", {}), ("source_id", {}), ("page", {"document_key": "page"})],
    ids=["file", "splitter", "own key"],
)
def test_no_document_has_more_chunks_than_asked_for(rank, documents, key, settings):
    first, *rest = documents
    rest = [
        dataclasses.replace(each, meta={**each.meta, key: i % 3}) for i, each in enumerate(rest)
    ]
    kept = rank([first, *rest], max_per_document=1, **settings)
    assert sorted(str(each.meta.get(key)) for each in kept) == ["0", "1", "2", "None"]


@pytest.mark.parametrize("overlap", [0, 3])
def test_neighbors_become_one_document_with_the_text_of_all(rank, overlap, document_embedder):
    page = Document(content=" ".join(f"word{n}" for n in range(60)), meta={"file_path": "a.md"})
    splitter = DocumentSplitter(split_by="word", split_length=10, split_overlap=overlap)
    chunks = splitter.run([page])["documents"]
    chunks = document_embedder.run(documents=chunks)["documents"]
    [kept] = rank(chunks, top_k=len(chunks), merge_neighbors=True)
    assert kept.content == page.content
    assert kept.meta["file_path"] == "a.md"
    assert kept.meta["sift"]["chunks"] == [chunk.id for chunk in chunks]
    assert kept.id in kept.meta["sift"]["chunks"]


def test_chunks_of_one_file_that_no_splitter_split_are_not_joined(rank, documents):
    whole = "bees find home by the sun again"
    chunks = [
        dataclasses.replace(
            documents[3],
            id=str(start),
            content=whole[start : start + 9],
            meta={"file_path": "a.md", "split_idx_start": start},
        )
        for start in (0, 9)
    ]
    assert len(rank(chunks, merge_neighbors=True)) == 2
    split = [dataclasses.replace(each, meta={**each.meta, "source_id": "a"}) for each in chunks]
    assert len(rank(split, merge_neighbors=True)) == 1


def test_the_file_goes_before_what_a_splitter_took_it_from(rank, documents):
    chunks = [
        dataclasses.replace(each, meta={"file_path": "one.md", "source_id": str(i)})
        for i, each in enumerate(documents)
    ]
    assert len(rank(chunks, max_per_document=2)) == 2


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_what_has_no_embedding_is_embedded_in_one_batch_with_a_warning(
    documents, bare_documents, question, text_embedder, document_embedder, caplog, is_awaited
):
    ranker = SIFTRanker(top_k=5, text_embedder=text_embedder, document_embedder=document_embedder)
    mixed = [*documents[:7], *bare_documents[7:]]
    if is_awaited:
        found = await ranker.run_async(mixed, query=question)
    else:
        found = ranker.run(mixed, query=question)
    whole = SIFTRanker(top_k=5, text_embedder=text_embedder).run(documents, query=question)
    assert texts(found["documents"]) == texts(whole["documents"])
    assert (text_embedder.n_texts, document_embedder.n_texts) == (2, 5)
    assert all(document.embedding is None for document in bare_documents)
    (record,) = caplog.records
    assert "no embedding on 5 of 12 documents" in record.message


def test_too_few_documents_to_choose_from_are_said_once(documents, query_embedding, caplog):
    ranker = SIFTRanker(top_k=12, words=0)
    for _ in range(2):
        ranker.run(documents, query_embedding=query_embedding)
    (record,) = caplog.records
    assert "12 documents arrived for top_k=12" in record.message
    for _ in range(2):
        ranker.run(documents[:5], query_embedding=query_embedding, top_k=6)
    (_, record) = caplog.records  # another mistake, once too
    assert "5 documents arrived for top_k=6" in record.message


def test_what_cannot_be_embedded_is_an_error_that_says_what_to_do(
    documents, bare_documents, question, query_embedding, text_embedder
):
    with pytest.raises(InvalidInputError, match="nothing embeds the question"):
        SIFTRanker().run(documents, query=question)
    for query in (None, " "):
        with pytest.raises(InvalidInputError, match="not blank"):
            SIFTRanker(text_embedder=text_embedder).run(documents, query=query)
    with pytest.raises(InvalidInputError, match=r"12 of 12 documents .* return_embedding=True"):
        SIFTRanker().run(bare_documents, query_embedding=query_embedding)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([1.0, 0.0], "64 dimensions, the documents have"),
        ([float("nan")] * 64, "finite"),
    ],
    ids=["dimension", "nan"],
)
def test_an_embedding_that_cannot_be_compared_is_refused(rank, documents, wrong, said):
    with pytest.raises(InvalidInputError, match=said):
        rank([*documents, Document(content="wrong", embedding=wrong)])


def test_a_document_without_a_direction_is_left_out(rank, documents, document_embedder):
    """Its vector is zero, or it has neither a vector nor a text to embed."""
    expected = texts(rank(documents, top_k=20))
    zero, bare = Document(id="zero", content="z", embedding=[0.0] * 64), Document(id="bare")
    with pytest.warns(EmptyEntryWarning, match="'bare', 'zero'") as caught:
        found = rank([*documents, zero, bare], top_k=20, document_embedder=document_embedder)
    assert len(caught) == 1
    assert texts(found) == expected
    with pytest.warns(EmptyEntryWarning, match="'bare'"):  # without anything that embeds
        assert texts(rank([*documents, bare], top_k=20)) == expected


def test_an_embedder_that_leaves_documents_out_is_refused(bare_documents, query_embedding):
    class Forgetful:
        def run(self, documents):
            return {"documents": documents[1:]}

    ranker = SIFTRanker(document_embedder=Forgetful())
    with pytest.raises(InvalidInputError, match=r"12 document\(s\) gave 0 embedding\(s\)"):
        ranker.run(bare_documents, query_embedding=query_embedding)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"top_k": 0}, "`top_k` must be a whole number >= 1, got 0"),
        ({"top_k": True}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_per_document": -1}, "max_per_document"),
        ({"selector": "mmr"}, "`selector`"),
        ({"max_per_document": 2, "selector": MMRSelector()}, "got MMRSelector"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_at_construction(settings, said):
    with pytest.raises(ValueError, match=said):
        SIFTRanker(**settings)


def test_bad_arguments_of_a_call_are_refused(documents, query_embedding):
    with pytest.raises(ValueError, match="top_k"):
        SIFTRanker().run(documents, query_embedding=query_embedding, top_k=0)
    with pytest.raises(InvalidInputError, match="list of Documents"):
        SIFTRanker().run("a question", documents)
