"""Language models of known shapes with random weights, and texts of known lengths for them.

Random weights take as long as trained ones. A text is a row of words "w1" "w2" ..., each of
them one token, drawn from the whole vocabulary, so that n words are n tokens and no part of the
embedding stays in a cache that would not in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from sift_core.answering import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A shape of transformers, by its configuration.

    Args:
        name: In tables.
        config: Without dropout, so that every rival computes the same.
    """

    name: str
    config: PreTrainedConfig

    def language_model(
        self, dtype: torch.dtype = torch.float32, *, device: str = "cpu"
    ) -> LanguageModel:
        """Return a model with random weights, made on its device, the same ones at each call."""
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                self.config, dtype=dtype
            )
        return LanguageModel(model.eval(), self._tokenizer())

    def texts(self, n_texts: int, n_tokens: int, *, seed: int = 0) -> list[str]:
        """Return different texts of `n_tokens` tokens each."""
        numbers = np.random.default_rng(seed)
        drawn = numbers.integers(1, self.config.vocab_size, (n_texts, n_tokens))
        return [" ".join(f"w{token}" for token in row) for row in drawn]

    def _tokenizer(self) -> PreTrainedTokenizerFast:
        """Return a tokenizer with one token a word "w1" ... and "<s>" as token 0."""
        vocabulary = {"<s>": 0, **{f"w{i}": i for i in range(1, self.config.vocab_size)}}
        tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<s>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=tokenizer,
            bos_token="<s>",
            eos_token="<s>",
            model_max_length=self.config.max_position_embeddings,
        )


GPT2 = Shape(
    name="GPT-2 124 M",
    config=GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0
    ),
)
SMOLLM2_135M = Shape(
    name="SmolLM2 135 M",
    config=LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    ),
)
LLAMA_1B = Shape(
    name="Llama 3.2 1 B",
    config=LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    ),
)
TINY = Shape(
    name="tiny",
    config=LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=0,
    ),
)
