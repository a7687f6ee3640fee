"""Bits per byte are those of lm-evaluation-harness, the installed one, called as its users do."""

from __future__ import annotations

import math
import random
import re
from string import ascii_lowercase

import pytest

torch = pytest.importorskip("torch", reason="needs the extra fine-tune")
pytest.importorskip("lm_eval", reason="needs the extra eval")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from tokenizers.processors import TemplateProcessing  # noqa: E402
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM  # noqa: E402

from sift_core.answering import LanguageModel  # noqa: E402
from tests.answering.shapes import byte_tokenizer  # noqa: E402

pytestmark = pytest.mark.slow

TOLERANCE = 1e-6  # bits per byte; float32 on one thread gives 0 on most texts
CASES = ["words, tokenizer's limit of 128", "EOS alone", "tokenizer adds BOS"]
TEXTS = {
    "one character": "a",
    "whitespace": " \t\n\n   \n",
    "spaces at both ends": "  def f(x):\n    return x\n\n",
    "CRLF": "one\r\ntwo\r\n\r\nthree\rfour",
    "scripts": "naïve café, 北京の猫, Ελληνικά, עברית, e\u0301 \u00e9, \u200b\ufeff",
    "joined emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽",
    "control characters": "a\x00b\x07c\x1bd\x7f",
}
SIZES = {
    "half the window": lambda window: window // 2,
    "the window less one": lambda window: window - 1,
    "the window": lambda window: window,
    "the window and one": lambda window: window + 1,
    "two windows": lambda window: 2 * window,
    "two windows and one": lambda window: 2 * window + 1,
    "three windows and a half": lambda window: 7 * window // 2,
}


def save_byte_model(folder, tokenizer):
    """Save a random model whose larger weights predict no text alike: what is left out shows."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    torch.manual_seed(0)
    config = LlamaConfig(
        **sizes,
        vocab_size=258,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(params=CASES)
def pair(request, random_model, tmp_path):
    """A model as loaded here, and by the harness with what its user tells it."""
    if request.param == "EOS alone":
        tokenizer = byte_tokenizer()
        tokenizer.bos_token = None
        folder, options = save_byte_model(tmp_path, tokenizer), {}
    elif request.param == "tokenizer adds BOS":
        tokenizer = byte_tokenizer()
        tokenizer.add_special_tokens({"eos_token": "</s>"})
        template = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        tokenizer.backend_tokenizer.post_processor = template
        # Without the option the harness would predict the tokenizer's BOS as if it were text.
        folder, options = save_byte_model(tmp_path, tokenizer), {"add_bos_token": False}
    else:
        # The harness reads the model's limit alone where there is one; we keep to the lower.
        LlamaForCausalLM.from_pretrained(random_model).save_pretrained(tmp_path)
        AutoTokenizer.from_pretrained(random_model, model_max_length=128).save_pretrained(tmp_path)
        folder, options = tmp_path, {"max_length": 128}
    ours = LanguageModel.from_pretrained(folder, device="cpu", dtype="float32")
    return ours, harness(folder, **options)


def harness(folder, **options):
    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1, **options)


def harness_bits_per_byte(model, texts):
    requests = [
        Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=i)
        for i, text in enumerate(texts)
    ]
    nats = model.loglikelihood_rolling(requests, disable_tqdm=True)
    return [-n / math.log(2) / len(text.encode()) for n, text in zip(nats, texts, strict=True)]


def random_text(lm, n_tokens):
    """Return random words, or letters where a token is a byte, of exactly so many tokens."""
    vocabulary = sorted(lm.tokenizer.get_vocab())
    words = [" " + word[1:] for word in vocabulary if re.fullmatch("Ġ[a-z]+", word)]
    text = "".join(random.Random(0).choices(words or ascii_lowercase, k=n_tokens))
    assert lm.n_tokens(text) == n_tokens
    return text


def test_bits_per_byte_are_the_harness_s(pair):
    ours, theirs = pair
    sized = {name: random_text(ours, n(ours.window)) for name, n in SIZES.items()}
    texts = TEXTS | sized
    expected = dict(zip(texts, harness_bits_per_byte(theirs, [*texts.values()]), strict=True))
    found = {name: ours.bits_per_byte(text) for name, text in texts.items()}
    assert found == pytest.approx(expected, rel=0, abs=TOLERANCE)


def test_a_control_token_in_a_text_is_text_to_us_and_a_token_to_the_harness(random_model):
    # Equal once the harness's tokenizer is told to read special tokens as text too.
    ours = LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")
    text = "It ends with <|endoftext|> and goes on."
    tokenizer = AutoTokenizer.from_pretrained(random_model)
    (as_token,) = harness_bits_per_byte(harness(random_model, tokenizer=tokenizer), [text])
    tokenizer.split_special_tokens = True
    (as_text,) = harness_bits_per_byte(harness(random_model, tokenizer=tokenizer), [text])
    assert ours.bits_per_byte(text) == pytest.approx(as_text, rel=0, abs=TOLERANCE)
    assert abs(ours.bits_per_byte(text) - as_token) > 0.1
