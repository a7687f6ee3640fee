import logging

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_text_splitters import CharacterTextSplitter, RecursiveCharacterTextSplitter

from langchain_sift import SIFTCompressor, SIFTRetriever
from sift_core import ContextSelector, Limits, MMRSelector
from sift_core.errors import EmptyEntryWarning
from sift_core.token_estimate import estimated_tokens

try:
    from langchain_classic.retrievers import ContextualCompressionRetriever
    from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
except ModuleNotFoundError:  # LangChain before 1.0
    from langchain.retrievers import ContextualCompressionRetriever
    from langchain.retrievers.document_compressors import DocumentCompressorPipeline


@pytest.fixture
def ranked(documents):
    """Documents with scores where Cohere's and Flashrank's rerankers put them, the last best."""
    for i, document in enumerate(documents):
        document.metadata["relevance_score"] = np.float32(i)
    return documents


def texts(documents):
    return [document.page_content for document in documents]


def chosen_by(selector, embeddings, question, candidates, n, **options):
    vectors = np.array([embeddings.embed_query(text) for text in candidates])
    query = np.array(embeddings.embed_query(question))
    return [candidates[i] for i in selector.select(query, vectors, n, **options).positions]


def test_the_choice_equals_the_retrievers(make_vector_store, documents, question):
    store = make_vector_store(documents)
    expected = SIFTRetriever(vectorstore=store, k=5).invoke(question)
    found = store.similarity_search(question, k=12)
    chosen = SIFTCompressor(vectorstore=store, top_n=5).compress_documents(found, question)
    assert texts(chosen) == texts(expected)
    for one, other in zip(chosen, expected, strict=True):
        told = one.metadata["sift"]
        expected_told = other.metadata["sift"] | {"score": None}  # not kept by a plain search
        assert told.keys() == expected_told.keys()
        for name, value in expected_told.items():
            is_number = isinstance(value, float)
            assert told[name] == (pytest.approx(value, abs=1e-6) if is_number else value)


@pytest.mark.parametrize("n_stored", [5, 12])
async def test_what_is_not_stored_is_embedded_once_in_one_batch_with_one_warning(
    make_vector_store, documents, embeddings, question, caplog, n_stored
):
    compressor = SIFTCompressor(vectorstore=make_vector_store(documents[:n_stored]))
    embeddings.queries, embeddings.document_batches = 0, []
    compressor.compress_documents(documents, question)
    await compressor.acompress_documents(documents, question)
    n_missing = 12 - n_stored
    assert embeddings.queries == 2
    assert embeddings.document_batches == [n_missing] * bool(n_missing)
    assert len(caplog.records) == len(embeddings.document_batches)
    for record in caplog.records:
        assert (record.levelno, record.name) == (logging.WARNING, "langchain_sift.documents")
        assert f"no stored vector for {n_missing} of 12 documents" in record.message


async def test_mixed_vectors_belong_to_their_documents(make_store, documents, embeddings, question):
    compressor = SIFTCompressor(vectorstore=make_store(documents[1::2]), top_n=12)
    mixed = compressor.compress_documents(documents, question)
    query = embeddings.embed_query(question)
    for each in mixed:
        cosine = np.dot(query, embeddings.embed_query(each.page_content))
        assert each.metadata["sift"]["similarity"] == pytest.approx(cosine, abs=1e-6)
    assert await compressor.acompress_documents(documents, question) == mixed


async def test_the_event_loop_is_not_blocked(
    make_qdrant, documents, embeddings, question, off_the_loop
):
    store = make_qdrant(documents[:6])
    compressor = SIFTCompressor(vectorstore=store, top_n=3)
    off_the_loop(store.client, "retrieve")
    off_the_loop(embeddings, "embed_documents")
    off_the_loop(ContextSelector, "select")
    assert len(await compressor.acompress_documents(documents, question)) == 3


async def test_no_documents_stay_none(embeddings, question):
    compressor = SIFTCompressor(embeddings=embeddings)
    assert compressor.compress_documents([], question) == []
    assert await compressor.acompress_documents([], question) == []
    assert embeddings.queries == 0


@pytest.mark.parametrize("key", ["relevance_score", "points"])
def test_scores_of_an_earlier_reranker_say_what_is_relevant(ranked, embeddings, question, key):
    for each in ranked:
        each.metadata[key] = each.metadata["relevance_score"]
    cosines_alone = chosen_by(ContextSelector(), embeddings, question, texts(ranked), 4)
    expected = chosen_by(
        ContextSelector(), embeddings, question, texts(ranked), 4, relevance=np.arange(12.0)
    )
    assert expected != cosines_alone
    settings = {"embeddings": embeddings, "top_n": 4, "words": 0}
    compressor = SIFTCompressor(**settings, relevance_key=key)
    found = compressor.compress_documents(ranked, question)
    assert texts(found) == expected
    for each in found:
        told = each.metadata["sift"]
        assert told["relevance"] == told["score"] == each.metadata[key]
    disregarding = SIFTCompressor(**settings, relevance_key=None)
    assert texts(disregarding.compress_documents(ranked, question)) == cosines_alone


@pytest.mark.parametrize("score", ["variance", "similarity"])
def test_a_score_goes_where_rerankers_leave_theirs(ranked, embeddings, question, score):
    arrived = {each.page_content: each.metadata["relevance_score"] for each in ranked}
    settings = {"embeddings": embeddings, "top_n": 4}
    plain = SIFTCompressor(**settings).compress_documents(ranked, question)
    found = SIFTCompressor(**settings, score=score).compress_documents(ranked, question)
    assert texts(found) == texts(plain)
    for each in found:
        assert each.metadata["sift"]["score"] == arrived[each.page_content]
    scores = [each.metadata["relevance_score"] for each in found]
    if score == "similarity":
        assert scores == [each.metadata["sift"]["similarity"] for each in found]
    else:
        left = [each.metadata["sift"]["variance"] for each in found]
        assert scores == pytest.approx([1.0, *left[:-1]])
    with pytest.raises(ValueError, match="'variance' or 'similarity'"):
        SIFTCompressor(**settings, score="cosine")


@pytest.mark.parametrize("missing", [None, float("nan"), "0.5", True], ids=repr)
def test_scores_that_not_all_documents_have_are_disregarded(ranked, embeddings, question, missing):
    ranked[3].metadata["relevance_score"] = missing
    expected = chosen_by(ContextSelector(), embeddings, question, texts(ranked), 4)
    compressor = SIFTCompressor(embeddings=embeddings, top_n=4, words=0)
    assert texts(compressor.compress_documents(ranked, question)) == expected


def test_the_stores_score_that_the_retriever_kept_is_kept(make_qdrant, documents, question):
    store = make_qdrant(documents)
    found = SIFTRetriever(vectorstore=store, k=12).invoke(question)
    scores = {each.id: each.metadata["sift"]["score"] for each in found}
    for each in SIFTCompressor(vectorstore=store, top_n=4).compress_documents(found, question):
        assert each.metadata["sift"]["score"] == scores[each.id]


async def test_it_works_in_a_contextual_compression_retriever(make_store, documents, question):
    store = make_store(documents)
    compressor = SIFTCompressor(vectorstore=store, top_n=3)
    retriever = ContextualCompressionRetriever(
        base_compressor=compressor, base_retriever=store.as_retriever(search_kwargs={"k": 12})
    )
    expected = compressor.compress_documents(store.similarity_search(question, k=12), question)
    assert retriever.invoke(question) == expected
    assert await retriever.ainvoke(question) == expected


async def test_it_works_after_a_splitter(make_vector_store, documents, embeddings, question):
    # The pieces have the metadata of their documents, in Qdrant's case the id too.
    store = make_vector_store(documents)
    splitter = CharacterTextSplitter(separator=" ", chunk_size=20, chunk_overlap=0)
    pipeline = DocumentCompressorPipeline(
        transformers=[splitter, SIFTCompressor(vectorstore=store, top_n=30)]
    )
    found = store.similarity_search(question, k=12)
    pieces = pipeline.compress_documents(found, question)
    assert len(pieces) > 12
    query = embeddings.embed_query(question)
    for each in pieces:
        cosine = np.dot(query, embeddings.embed_query(each.page_content))
        assert each.metadata["sift"]["similarity"] == pytest.approx(cosine, abs=1e-6)
    assert await pipeline.acompress_documents(found, question) == pieces


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_n": 0}, "top_n"),
        ({"selector": "mmr"}, "instance of Selector"),
        ({"topn": 3}, "no option 'topn'; do you mean `top_n`"),
        ({"k": 3}, "SIFTCompressor has no option 'k'; do you mean `top_n`"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_per_document": 2, "selector": MMRSelector()}, "got MMRSelector"),
        ({"half_life_days": 3}, "`half_life_days` needs `newest`"),
        ({"embeddings": None}, "one of `embeddings` and `vectorstore` must be given"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_at_construction(embeddings, settings, message):
    with pytest.raises(ValueError, match=message):
        SIFTCompressor(**{"embeddings": embeddings, **settings})


def test_no_more_tokens_are_kept_than_asked_for(documents, embeddings, question):
    settings = {"max_tokens": 20, "count_tokens": lambda text: len(text.split()), "words": 0}
    kept = SIFTCompressor(embeddings=embeddings, **settings).compress_documents(documents, question)
    costs = [len(text.split()) for text in texts(documents)]
    limits = Limits(costs=costs, budget=20)
    asked = ContextSelector(), embeddings, question, texts(documents), 10
    assert texts(kept) == chosen_by(*asked, limits=limits)
    estimated = SIFTCompressor(embeddings=embeddings, max_tokens=20)
    kept = estimated.compress_documents(documents, question)
    assert 0 < sum(map(estimated_tokens, texts(kept))) <= 20


PAGE = "\n\n".join(f"Paragraph {n}. It tells of thing {n * 7}." for n in range(12))


def cut(overlap):
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=80, chunk_overlap=overlap, add_start_index=True
    )
    page = Document(page_content=PAGE, metadata={"source": "page.md"})
    return splitter.split_documents([page])


@pytest.mark.parametrize("overlap", [0, 40])
def test_neighbors_become_one_document_with_the_text_of_all(overlap, embeddings, question):
    chunks = [chunk.model_copy(update={"id": str(i)}) for i, chunk in enumerate(cut(overlap))]
    compressor = SIFTCompressor(embeddings=embeddings, top_n=len(chunks), merge_neighbors=True)
    [kept] = compressor.compress_documents(chunks, question)
    assert kept.page_content == PAGE
    assert kept.metadata["source"] == "page.md"
    assert kept.metadata["start_index"] == 0
    assert kept.metadata["sift"]["chunks"] == [str(i) for i in range(len(chunks))]


def test_documents_that_share_an_id_have_each_the_vector_of_its_own_text(embeddings, question):
    texts_ = ["bees dance", "steel melts", "honey is stored in wax"]
    shared = [Document(id="guide", page_content=text) for text in texts_]
    compressor = SIFTCompressor(
        embeddings=embeddings, vectors=lambda ids: {"guide": embeddings.embed_query("bees dance")}
    )
    kept = compressor.compress_documents(shared, question)
    assert sorted(texts(kept)) == sorted(texts_)
    query = np.array(embeddings.embed_query(question))
    for one in kept:
        row = np.array(embeddings.embed_query(one.page_content))
        cosine = query @ row / np.linalg.norm(query) / np.linalg.norm(row)
        assert one.metadata["sift"]["similarity"] == pytest.approx(cosine, abs=1e-6)


async def test_a_document_without_text_is_left_out(
    make_vector_store, documents, embeddings, question
):
    compressor = SIFTCompressor(embeddings=embeddings, top_n=20)
    expected = texts(compressor.compress_documents(documents, question))
    found = [*documents, Document(id="bare", page_content=" ")]
    with pytest.warns(EmptyEntryWarning, match="'bare'"):
        assert texts(compressor.compress_documents(found, question)) == expected
    with pytest.warns(EmptyEntryWarning, match="'bare'"):
        assert texts(await compressor.acompress_documents(found, question)) == expected
