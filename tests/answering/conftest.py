"""Random language models: one with a tokenizer of words, and small ones of other shapes."""

from __future__ import annotations

import pytest

# Without it pytest leaves out the whole folder: its modules may import what the extra brings.
pytest.importorskip("torch", reason="needs the extra fine-tune")

from sift_core.answering import LanguageModel
from tests.answering.shapes import ALL_SHAPES, SHAPES, byte_tokenizer, params
from tests.answering.vllm_double import Vllm, serving


@pytest.fixture(scope="session")
def small_lm(random_model):
    return LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")


@pytest.fixture(scope="session", name="byte_tokenizer")
def _byte_tokenizer():
    return byte_tokenizer()


@pytest.fixture
def make_random_lm(byte_tokenizer):
    """Return a function from a shape's name to a small random model with a 64-token window."""

    def make(shape="llama, tied head"):
        return LanguageModel(ALL_SHAPES[shape](), byte_tokenizer)

    return make


@pytest.fixture(params=params(SHAPES))
def random_lm(request, make_random_lm):
    return make_random_lm(request.param)


@pytest.fixture
def vllm():
    with serving(Vllm()) as double:
        yield double


@pytest.fixture(scope="session")
def llama(byte_tokenizer):
    """One model for all tests of a file, which leave it as it is."""
    return LanguageModel(ALL_SHAPES["llama, tied head"](), byte_tokenizer)
