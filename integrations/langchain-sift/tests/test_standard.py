"""LangChain's own suite for retrievers, without exceptions."""

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_sift import SIFTRetriever


class StandardSuite(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _store(self, request, documents):
        self.store = request.getfixturevalue(self.store_fixture)(documents)

    @property
    def retriever_constructor(self):
        return SIFTRetriever

    @property
    def retriever_constructor_params(self):
        return {"vectorstore": self.store}

    @property
    def retriever_query_example(self):
        return "how do plants make sugar"


class TestOverQdrant(StandardSuite):
    store_fixture = "make_qdrant"


class TestOverFaiss(StandardSuite):
    store_fixture = "make_faiss"
