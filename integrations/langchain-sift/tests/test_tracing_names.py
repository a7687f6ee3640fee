"""What LangSmith and callbacks see of the retriever: the same as of the store's own."""

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from langchain_sift import SIFTRetriever


class Recorder(BaseCallbackHandler):
    """Keeps what a run of a retriever starts with."""

    def on_retriever_start(self, serialized, query, *, tags=None, metadata=None, **kwargs):
        self.tags, self.metadata, self.name = tags, metadata, kwargs["name"]


@pytest.fixture(params=["qdrant", "faiss", "in_memory", "text_only"])
def store(request, documents):
    return request.getfixturevalue(f"make_{request.param}")(documents)


def seen_by_callbacks(retriever, question):
    recorder = Recorder()
    retriever.invoke(question, {"callbacks": [recorder]})
    return recorder


async def test_tags_and_providers_are_those_of_as_retriever(store, question):
    expected = seen_by_callbacks(store.as_retriever(), question)
    found = seen_by_callbacks(SIFTRetriever(vectorstore=store), question)
    assert found.tags == expected.tags
    assert found.metadata == {**expected.metadata, "ls_retriever_name": "sift"}
    assert found.name == "SIFTRetriever"


def test_ones_own_tags_replace_them(store, question):
    retriever = SIFTRetriever(vectorstore=store, tags=["mine"])
    assert seen_by_callbacks(retriever, question).tags == ["mine"]
