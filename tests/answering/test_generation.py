from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
from transformers import AddedToken

from sift_core import InvalidInputError
from sift_core.answering import LanguageModel
from sift_core.answering.model.generation import TextReader
from sift_core.answering.model.generation_options import seeded
from sift_core.answering.model.prompt_tokens import prompt_ids
from tests.answering import shapes
from tests.random_model import save_random_model

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Why?"},
]


def written(tokenizer, text, **options):
    """Let a reader read `text` token by token; return what it passed on and where it stopped."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = []
    reader = TextReader(tokenizer, n_prompt_tokens=1, on_text=pieces.append, **options)
    n_new = len(ids)
    for n in range(1, len(ids) + 1):
        if reader.read(ids[:n]):
            n_new = n
            break
    return pieces, reader.finished(ids[:n_new], max_new_tokens=len(ids), ends=())


def test_a_character_of_several_tokens_comes_as_one_piece(byte_tokenizer):
    pieces, generation = written(byte_tokenizer, "a光é")
    assert pieces == ["a", "光", "é"]
    assert generation.n_new_tokens == 6  # 1 + 3 + 2 bytes


def test_a_text_ends_before_the_first_stop_string(byte_tokenizer):
    pieces, generation = written(byte_tokenizer, "one\n\nEND two", stop=["END", "\n\n"])
    assert generation.text == "one"
    assert generation.finish_reason == "stop"
    assert generation.n_new_tokens == 5
    assert "".join(pieces) == "one"


def test_what_may_begin_a_stop_string_is_held_back_until_it_does_not(byte_tokenizer):
    pieces, generation = written(byte_tokenizer, "a##b", stop=["###"])
    assert pieces == ["a", "##b"]
    assert generation.text == "a##b"


def test_an_incomplete_character_at_the_end_is_kept_as_the_tokenizer_shows_it(byte_tokenizer):
    ids = byte_tokenizer("光", add_special_tokens=False)["input_ids"][:2]
    pieces = []
    reader = TextReader(byte_tokenizer, n_prompt_tokens=1, on_text=pieces.append)
    reader.read(ids)
    assert pieces == []
    generation = reader.finished(ids, max_new_tokens=2, ends=())
    assert "".join(pieces) == generation.text == byte_tokenizer.decode(ids)


@pytest.mark.parametrize("stop", [[""], "\n", [3]])
def test_a_stop_string_must_be_a_text(make_random_lm, stop):
    with pytest.raises(InvalidInputError, match="stop"):
        make_random_lm().generate("hello", stop=stop)
    with pytest.raises(InvalidInputError, match="stop"):
        make_random_lm().generate_batch(["hello"], stop=stop)


def test_a_model_that_ends_its_text_with_its_last_token_stopped(make_random_lm):
    # As Llama 3's: the model has other ends than the tokenizer.
    ended = make_random_lm().generate("hello", max_new_tokens=1, eos_token_id=list(range(1, 257)))
    assert (ended.n_new_tokens, ended.finish_reason) == (1, "stop")


def test_beams_give_their_text_at_the_end(make_random_lm):
    pieces = []
    generation = make_random_lm().generate(
        "hello", max_new_tokens=5, num_beams=2, on_text=pieces.append
    )
    assert pieces == [generation.text]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hi", "Hi"),
        (
            CHAT,
            "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Why?\n\nAssistant:",
        ),
    ],
)
def test_one_message_stands_as_it_is_and_several_say_who_speaks(byte_tokenizer, prompt, expected):
    first, *ids = prompt_ids(byte_tokenizer, prompt, 7)
    assert (first, byte_tokenizer.decode(ids)) == (7, expected)


@pytest.mark.parametrize(
    "prompt", [[], [{"role": "user"}], [{"role": "tool", "content": "x"}], [("user", "x")], 7]
)
def test_what_is_no_chat_is_refused(make_random_lm, prompt):
    with pytest.raises(InvalidInputError, match="prompt"):
        make_random_lm().generate(prompt, max_new_tokens=2)


@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("mine")])
def test_an_error_of_a_listener_is_passed_on_as_it_is(make_random_lm, error):
    def refuse(piece):
        raise error

    with pytest.raises(type(error)) as raised:
        make_random_lm().generate("hello", max_new_tokens=12, on_text=refuse)
    assert raised.value is error


TURN = "The bias is the ratio of the samples to the number of samples.\n\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"It is so. {TURN}{TURN}It goes on.", f"It is so. {TURN}"),
        (f"{TURN}{TURN}", TURN),
        ("- one\n- two, longer\n" * 9, "- one\n- two, longer\n"),
        ("# head\n" + "    a = 1\n" * 9, "# head\n    a = 1\n"),
    ],
)
def test_a_text_that_goes_in_circles_ends_behind_the_first_turn(byte_tokenizer, text, kept):
    pieces, generation = written(byte_tokenizer, text, ends_repetition=True)
    assert generation.text == "".join(pieces) == kept
    assert generation.finish_reason == "stop"


@pytest.mark.parametrize(
    "text",
    [
        f"{TURN}It is so.\n{TURN}",  # said twice, but not at once
        f"{TURN}{TURN[:50]}",
        "Yes. Yes. Yes. No.",
        "| a | b |\n|---|---|\n" + "-" * 200,
        "    a = 1\n    b = 2\n    a = 1\n    b = 3\n",
    ],
)
def test_a_text_that_does_not_go_in_circles_is_whole(byte_tokenizer, text):
    pieces, generation = written(byte_tokenizer, text, ends_repetition=True)
    assert generation.text == "".join(pieces) == text


def test_a_sentence_without_end_is_ended(byte_tokenizer):
    text = "It is " + "the number of " * 40
    pieces, generation = written(byte_tokenizer, text, ends_repetition=True)
    assert len(generation.text) < 100
    assert generation.text == "".join(pieces)


@pytest.mark.slow
def test_a_model_in_circles_ends_unless_a_setting_says_how_often_it_may_repeat(tmp_path):
    lm = LanguageModel.from_pretrained(
        save_random_model(tmp_path, window=1024), device="cpu", dtype="float32"
    )
    pieces = []
    ended = lm.generate("hello", max_new_tokens=400, on_text=pieces.append)
    assert "".join(pieces) == ended.text
    assert ended.text == lm.generate_batch(["hello"], max_new_tokens=400)[0].text
    assert (ended.finish_reason, ended.n_new_tokens < 400) == ("stop", True)
    whole = lm.generate("hello", max_new_tokens=400, repetition_penalty=1.0, eos_token_id=None)
    assert whole.n_new_tokens == 400
    assert whole.text.startswith(ended.text)


class Writes(transformers.LogitsProcessor):
    """Lets a model write these tokens."""

    def __init__(self, ids):
        self.ids, self.n_read, self.n_written = ids, None, 0

    def __call__(self, input_ids, scores):
        is_next = input_ids.shape[1] - 1 == self.n_read
        self.n_read, self.n_written = input_ids.shape[1], self.n_written + 1 if is_next else 1
        forced = torch.full_like(scores, -1e9)
        forced[:, self.ids[self.n_written - 1]] = 0
        return forced


CHATML = """
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"""
NO_LAST_END = CHATML.replace(
    "+ '<|im_end|>\n' }}", "}}{% if not loop.last %}{{ '<|im_end|>\n' }}{% endif %}"
)
NO_END = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}<|assistant|>"
BARE = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.mark.parametrize(
    ("template", "added", "eos", "in_settings", "end"),
    [
        # Of each three places that name an end, two name another one.
        (CHATML, ["<|im_end|>", "<|endoftext|>"], "<|endoftext|>", "<s>", "<|im_end|>"),
        (CHATML, ["<|im_end|>", "<|endoftext|>"], "<|endoftext|>", "<s>", "<|endoftext|>"),
        (CHATML, ["<|im_end|>", "<|endoftext|>"], "<|endoftext|>", "<s>", "<s>"),
        # The template ends a turn only where another follows.
        (NO_LAST_END, ["<|im_end|>"], "<s>", "<s>", "<|im_end|>"),
        # Nothing ends a turn, so the next one's beginning does.
        (NO_END, ["<|user|>", "<|assistant|>"], "<s>", "<s>", "<|user|>"),
        # The end is no token of this tokenizer.
        (CHATML, [], "<s>", "<s>", "<|im_end|>"),
        (BARE, ["<|end|>"], "<|end|>", None, "<|end|>"),
        (None, ["<|end|>"], "<|end|>", "<s>", "<|end|>"),
    ],
)
@pytest.mark.parametrize("is_special", [True, False])
def test_each_end_of_a_turn_ends_an_answer(template, added, eos, in_settings, end, is_special):
    tokenizer = shapes.byte_tokenizer()
    tokenizer.add_tokens([AddedToken(one, special=is_special) for one in added])
    tokenizer.eos_token, tokenizer.chat_template = eos, template
    model = shapes.ALL_SHAPES["llama, tied head"]()
    model.resize_token_embeddings(len(tokenizer))
    model.config.max_position_embeddings = 256
    ids = None if in_settings is None else tokenizer.convert_tokens_to_ids(in_settings)
    model.generation_config.eos_token_id = ids
    lm = LanguageModel(model, tokenizer)
    text = f"Yes.{end}\n<|im_start|>user\nAnd"
    writes = Writes(tokenizer(text, add_special_tokens=False)["input_ids"])
    pieces = []
    options = {"logits_processor": [writes], "max_new_tokens": 40, "on_text": pieces.append}
    generation = lm.generate([{"role": "user", "content": "a"}], **options)
    assert (generation.text, generation.finish_reason) == ("Yes.", "stop")
    assert "".join(pieces) == "Yes."
    assert generation.n_new_tokens == 4 + len(tokenizer(end, add_special_tokens=False)["input_ids"])


LOGITS = torch.tensor([[1.0, 0.0, 2.0, -1.0]])


def frequencies(n=4000, **options):
    """Return how often each token is drawn, by one processor called n times."""
    (processor,) = seeded(seed=0, **options)["logits_processor"]
    drawn = [int(processor(None, LOGITS).argmax()) for _ in range(n)]
    return torch.bincount(torch.tensor(drawn), minlength=4) / n


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_the_softmax_says(temperature):
    expected = torch.softmax(LOGITS[0] / temperature, dim=0)
    # four standard deviations of a share of 4,000 draws
    assert (frequencies(temperature=temperature) - expected).abs().max() < 4 * (0.25 / 4000) ** 0.5


@pytest.mark.parametrize("temperature", [1e-6, 1e-38, 1e-300, 5e-324])
def test_next_to_no_temperature_draws_the_likeliest(temperature):
    assert frequencies(n=20, temperature=temperature).tolist() == [0, 0, 1, 0]


def test_unlikely_tokens_are_cut():
    # the softmax is .24, .09, .64, .03: the two likeliest have .88
    assert (frequencies(top_p=0.8) > 0).tolist() == [True, False, True, False]


def test_the_same_seed_writes_the_same_text_beside_others(small_lm):
    def text(seed):
        return small_lm.generate("fold a", max_new_tokens=12, **seeded(seed=seed)).text

    alone = [text(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(text, range(6))) == alone
    assert len(set(alone)) > 1


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"seed": -1}]
)
def test_numbers_must_be_in_their_range(options):
    with pytest.raises(InvalidInputError):
        seeded(**{"seed": 0, **options})
