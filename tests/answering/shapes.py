"""Small random models of many architectures, with a 64-token window and a token a byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from sift_core.answering.model.bundled import INSTALL, missing_packages

# `make demo` installs the model; tests that read it need not run where it was not called.
needs_smollm2 = pytest.mark.skipif(bool(missing_packages()), reason=INSTALL)

_SIZES = {
    "vocab_size": 257,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_LLAMA = {**_SIZES, "intermediate_size": 64}
_SHARED_KEYS = {**_LLAMA, "num_key_value_heads": 1, "pad_token_id": 0}
_GEMMA = {
    **_SHARED_KEYS,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"],
}
_GPT = {
    "vocab_size": 257,
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_ENDS = {"vocab_size": 257, "bos_token_id": 0, "eos_token_id": 0}


def byte_tokenizer(**options: Any) -> Any:
    """Return a tokenizer with one token a byte, so that token counts can be worked out by hand."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, **{letter: i for i, letter in enumerate(alphabet, start=1)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    kind: Any = transformers.PreTrainedTokenizerFast
    return kind(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>", **options)


def _shape(model: str, config: str, **sizes: Any) -> Callable[[], Any]:
    """Return what builds a random model; its class is looked up only then, which takes time."""

    def build() -> Any:
        built = getattr(transformers, config)(**sizes)
        torch.manual_seed(0)
        return getattr(transformers, model)(built).eval()

    return build


def _causal(name: str, **sizes: Any) -> Callable[[], Any]:
    return _shape(f"{name}ForCausalLM", f"{name}Config", **sizes)


def with_eyes() -> Any:
    """Return a Gemma 3 that sees images too, with a vision tower as deep as its text layers."""
    tower = {"image_size": 28, "patch_size": 14, "intermediate_size": 64, "hidden_size": 32}
    make: Any = transformers.Gemma3Config
    config = make(
        text_config=_GEMMA,
        vision_config={**tower, "num_hidden_layers": 2, "num_attention_heads": 2},
        mm_tokens_per_image=4,
        image_token_index=256,
        boi_token_index=255,
        eoi_token_index=254,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    model: Any = transformers.Gemma3ForConditionalGeneration(config)
    return model.eval()


# The ones that most tests of learning run over: two kinds of head, Conv1D, a fused projection.
SHAPES = {
    "llama, tied head": _causal("Llama", **_LLAMA, tie_word_embeddings=True),
    "llama, own head": _causal("Llama", **_LLAMA, tie_word_embeddings=False),
    "gpt2": _shape("GPT2LMHeadModel", "GPT2Config", **_GPT),
    "gpt-neox": _causal("GPTNeoX", **_LLAMA),
}

ALL_SHAPES = {
    **SHAPES,
    "qwen2": _causal("Qwen2", **_SHARED_KEYS, tie_word_embeddings=True),
    "qwen3": _causal("Qwen3", **_SHARED_KEYS, head_dim=16),
    "mistral, sliding window": _causal("Mistral", **_SHARED_KEYS, sliding_window=8),
    "phi, biased head": _causal("Phi", **_LLAMA),
    "phi3, fused projections": _causal("Phi3", **_SHARED_KEYS),
    "gemma2, capped logits": _causal(
        "Gemma2", **_GEMMA, final_logit_softcapping=0.2, attn_logit_softcapping=1.0
    ),
    "gemma3": _shape("Gemma3ForCausalLM", "Gemma3TextConfig", **_GEMMA),
    "opt, projected embeddings": _causal(
        "OPT", **{**_SIZES, "pad_token_id": 1}, ffn_dim=64, word_embed_proj_dim=16
    ),
    "mixtral, fused experts": _causal(
        "Mixtral", **_SHARED_KEYS, num_local_experts=3, num_experts_per_tok=2
    ),
    "qwen2 moe, shared expert": _causal(
        "Qwen2Moe",
        **_SHARED_KEYS,
        num_experts=3,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
    "cohere, scaled logits": _causal("Cohere", **_SHARED_KEYS, logit_scale=0.25),
    "granite, divided logits": _causal(
        "Granite", **_SHARED_KEYS, logits_scaling=4.0, embedding_multiplier=2.0
    ),
    "stablelm": _causal("StableLm", **_SHARED_KEYS),
    "falcon, own linear class": _causal("Falcon", **_SIZES),
    "bloom, alibi": _causal("Bloom", **_ENDS, hidden_size=32, n_layer=2, n_head=2),
    "mpt": _causal("Mpt", **_ENDS, d_model=32, n_layers=2, n_heads=2, max_seq_len=64),
    # A transform stands between trunk and head; layers that return lists.
    "bert as a decoder": _shape(
        "BertLMHeadModel", "BertConfig", **_LLAMA, is_decoder=True, pad_token_id=0
    ),
    "openai-gpt": _shape("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", **_GPT),
}

# One for each way in which models differ: a head of its own or not, Conv1D, fused projections,
# changed logits, experts, a trunk and a head that cannot be told apart. `make test-all` has all.
DISTINCT = {
    "llama, tied head",
    "gpt2",
    "phi3, fused projections",
    "gemma2, capped logits",
    "mixtral, fused experts",
    "bert as a decoder",
}


def sharpened(lm: Any) -> Any:
    """Return a language model with larger weights, so that it does not repeat one token."""
    with torch.no_grad():
        for weight in lm.model.parameters():
            if weight.ndim == 2:
                weight.mul_(8)
    return type(lm)(lm.model, lm.tokenizer)


def params(shapes: Iterable[str]) -> list[Any]:
    """Return pytest's parameters, all but the distinct shapes marked as slow."""
    return [
        pytest.param(shape, marks=[] if shape in DISTINCT else pytest.mark.slow) for shape in shapes
    ]
