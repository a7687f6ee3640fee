"""Real language models: the trained tiny one, and small random ones of other shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra fine-tune")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from sift_core.answering import LanguageModel  # noqa: E402

TINY_LM = Path(__file__).parents[2] / "examples/tiny_lm"


@pytest.fixture(scope="session")
def tiny_lm():
    return LanguageModel.from_pretrained(TINY_LM, device="cpu")


@pytest.fixture(scope="session")
def byte_tokenizer():
    """One token a byte, so that token counts can be worked out by hand."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, **{letter: i for i, letter in enumerate(alphabet, start=1)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>")


def _llama(tied):
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=257,
            num_attention_heads=2,
            max_position_embeddings=64,
            tie_word_embeddings=tied,
            bos_token_id=0,
            eos_token_id=0,
            **shape,
        )
    )


def _gpt2():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=257,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _gpt_neox():
    return GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=257,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


SHAPES = {
    "llama, tied head": lambda: _llama(tied=True),
    "llama, own head": lambda: _llama(tied=False),
    "gpt2": _gpt2,
    "gpt-neox": _gpt_neox,
}


@pytest.fixture
def make_random_lm(byte_tokenizer):
    """Return a function from a shape's name to a small random model with a 64-token window."""

    def make(shape="llama, tied head"):
        torch.manual_seed(0)
        return LanguageModel(SHAPES[shape](), byte_tokenizer)

    return make


@pytest.fixture(params=list(SHAPES))
def random_lm(request, make_random_lm):
    return make_random_lm(request.param)
