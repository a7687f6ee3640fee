"""Bits per byte are those of lm-evaluation-harness, the installed one, called as its users do."""

from __future__ import annotations

import atexit
import math
import random
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from tempfile import mkdtemp
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="needs the extra fine-tune")
pytest.importorskip("lm_eval", reason="needs the extra eval")

import transformers  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from tokenizers.processors import TemplateProcessing  # noqa: E402

from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune  # noqa: E402
from tests.answering.plain_peft import pefts_own_warnings  # noqa: E402
from tests.answering.shapes import byte_tokenizer  # noqa: E402
from tests.random_model import save_random_model  # noqa: E402

pytestmark = pytest.mark.slow

TOLERANCE = 1e-6  # bits per byte; float32 on one thread gives 0 on most texts
# Random models that predict no text alike: what a window leaves out shows.
SHARP = {"initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0}
SMALL = {**SHARP, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


def gpt2() -> Any:
    """Absolute positions and a tied head: a token beyond the window is an error here."""
    sizes = {"vocab_size": 8192, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **SHARP))


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=258, num_attention_heads=2, max_position_embeddings=64, **SMALL
    )
    return transformers.LlamaForCausalLM(config)


@cache
def words_folder() -> Path:
    """The model with a tokenizer of words, on disk until the process ends."""
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return save_random_model(Path(folder))


def words_model() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(words_folder(), dtype=torch.float32)


def words_tokenizer(**options: Any) -> Any:
    return transformers.AutoTokenizer.from_pretrained(words_folder(), **options)


def two_ends() -> Any:
    """A BOS that is not the EOS."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "</s>"})
    return tokenizer


def no_bos() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.bos_token = None
    return tokenizer


def adds_bos() -> Any:
    tokenizer = two_ends()
    template = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


class Case(NamedTuple):
    """A model that both load from a folder, and what its user tells the harness."""

    model: Callable[[], Any]
    tokenizer: Callable[[], Any]
    options: dict[str, Any] = {}  # noqa: RUF012


CASES = {
    # The harness reads the model's limit alone where there is one; we keep to the lower of both.
    "words, tokenizer's limit of 128": Case(
        words_model, lambda: words_tokenizer(model_max_length=128), {"max_length": 128}
    ),
    "gpt2, window of 32": Case(gpt2, words_tokenizer),
    "BOS is not EOS": Case(llama, two_ends),
    "EOS alone": Case(llama, no_bos),
    # Without the option the harness would predict the tokenizer's BOS as if it were text.
    "tokenizer adds BOS": Case(llama, adds_bos, {"add_bos_token": False}),
}


class Pair(NamedTuple):
    """One model, loaded by each."""

    ours: LanguageModel
    harness: HFLM


def harness(folder: Path, **options: Any) -> HFLM:
    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1, **options)


def harness_bits_per_byte(model: HFLM, texts: list[str]) -> list[float]:
    requests = [
        Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=i)
        for i, text in enumerate(texts)
    ]
    nats = model.loglikelihood_rolling(requests, disable_tqdm=True)
    return [-n / math.log(2) / len(text.encode()) for n, text in zip(nats, texts, strict=True)]


def saved(case: Case, folder: Path) -> Path:
    torch.manual_seed(0)
    case.model().save_pretrained(folder)
    case.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    case = CASES[request.param]
    folder = saved(case, tmp_path_factory.mktemp("model"))
    return Pair(
        LanguageModel.from_pretrained(folder, device="cpu", dtype="float32"),
        harness(folder, **case.options),
    )


def random_text(lm: LanguageModel, n_tokens: int) -> str:
    """Return random words, or letters where a token is a byte, of exactly so many tokens."""
    vocabulary = sorted(lm.tokenizer.get_vocab())
    words = [" " + word[1:] for word in vocabulary if re.fullmatch("Ġ[a-z]+", word)]
    text = "".join(random.Random(0).choices(words or ascii_lowercase, k=n_tokens))
    assert lm.n_tokens(text) == n_tokens
    return text


TEXTS = {
    "one character": "a",
    "one emoji": "🙂",
    "a space": " ",
    "whitespace": " \t\n\n   \n",
    "a sentence": "The committee decided to postpone the meeting.",
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


def test_bits_per_byte_are_the_harness_s(pair):
    window = pair.ours.window
    texts = TEXTS | {name: random_text(pair.ours, n(window)) for name, n in SIZES.items()}
    ours = {name: pair.ours.bits_per_byte(text) for name, text in texts.items()}
    theirs = harness_bits_per_byte(pair.harness, list(texts.values()))
    assert ours == pytest.approx(dict(zip(texts, theirs, strict=True)), rel=0, abs=TOLERANCE)


def test_bits_per_byte_in_a_window_of_1024_tokens_are_the_harness_s():
    ours = LanguageModel.from_pretrained(words_folder(), device="cpu", dtype="float32")
    text = random_text(ours, 2100)
    assert len(ours.windows(text)) == 3
    (theirs,) = harness_bits_per_byte(harness(words_folder()), [text])
    assert ours.bits_per_byte(text) == pytest.approx(theirs, rel=0, abs=TOLERANCE)


def test_a_fine_tuned_model_scores_as_the_harness_does_with_its_adapter(tmp_path):
    ours = LanguageModel.from_pretrained(words_folder(), device="cpu", dtype="float32")
    text = "Return the rows of the table, sorted by the column *key*, the largest first."
    learned = fine_tune(ours, [text] * 4, FineTuningSettings(learning_rate=5e-3)).adapter
    learned.save(tmp_path)
    with pefts_own_warnings():
        tuned = harness(words_folder(), peft=str(tmp_path))
    (theirs,) = harness_bits_per_byte(tuned, [text])
    with ours.adapted(learned):
        assert ours.bits_per_byte(text) == pytest.approx(theirs, rel=0, abs=TOLERANCE)
    assert theirs < 0.95 * ours.bits_per_byte(text)


def test_a_control_token_in_a_text_is_text_to_us_and_a_token_to_the_harness():
    # Equal once the harness's tokenizer is told to read special tokens as text too.
    ours = LanguageModel.from_pretrained(words_folder(), device="cpu", dtype="float32")
    text = "It ends with <|endoftext|> and goes on."
    tokenizer = words_tokenizer()
    (as_token,) = harness_bits_per_byte(harness(words_folder(), tokenizer=tokenizer), [text])
    tokenizer.split_special_tokens = True
    (as_text,) = harness_bits_per_byte(harness(words_folder(), tokenizer=tokenizer), [text])
    assert ours.bits_per_byte(text) == pytest.approx(as_text, rel=0, abs=TOLERANCE)
    assert abs(ours.bits_per_byte(text) - as_token) > 0.1
