"""LangChain's own suites for chat models, without exceptions."""

import pytest

pytest.importorskip("torch", reason="needs sift-rerank's extra fine-tune")
pytest.importorskip("langchain_tests", reason="needs langchain-tests")

from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from langchain_sift import ChatSIFT, SIFTAnswer
from sift_core import ChoiceOptions
from sift_core.answering import AnswerEngine


class WithoutSource:
    @pytest.fixture(autouse=True)
    def _engine(self, language_model):
        self.engine = AnswerEngine(language_model=language_model)

    @property
    def chat_model_class(self):
        return ChatSIFT

    @property
    def chat_model_params(self):
        return {"engine": self.engine, "max_tokens": 8}

    @property
    def supports_model_override(self):
        return False  # an engine has one model

    @property
    def has_tool_calling(self):
        return False  # `bind_tools` says so, and what to do

    @property
    def has_structured_output(self):
        return False


class TestUnits(WithoutSource, ChatModelUnitTests):
    @property
    def chat_model_params(self):
        return {"engine": self.engine}  # the suite says `max_tokens` itself


class TestWithoutSource(WithoutSource, ChatModelIntegrationTests):
    pass


@pytest.mark.slow
class TestOverAStore(WithoutSource, ChatModelIntegrationTests):
    @pytest.fixture(autouse=True)
    def _engine(self, language_model, make_in_memory, documents):
        store = make_in_memory(documents)
        self.engine = SIFTAnswer.from_vectorstore(
            store, language_model, options=ChoiceOptions(n_select=2)
        ).engine

    @property
    def chat_model_params(self):
        return {"engine": self.engine, "max_tokens": 8, "mode": "context"}
