"""An odd value of any setting, of chunks or of answers, is taken or is an error of ours."""

import inspect
from contextlib import suppress
from dataclasses import fields

import pytest

pytest.importorskip("torch", reason="needs the extra fine-tune")
pytest.importorskip("semantic_text_splitter", reason="needs the extra index")

from sift_core import ChoiceOptions
from sift_core.answering import (
    AnswerEngine,
    FineTuningSettings,
    LanguageModel,
    LearningOptions,
    VariancePolicy,
)
from sift_core.documents import Chunker
from sift_core.errors import SiftError
from tests.answering.shapes import SHAPES, byte_tokenizer
from tests.answering.test_isolation import pool_about
from tests.selection.test_odd_values import ODD, tensors

KINDS = [ChoiceOptions, FineTuningSettings, VariancePolicy, Chunker]
OBJECTS = ("size", "lora", "selector", "count_tokens")  # and functions of a user's own
SETTINGS = [
    (kind, name)
    for kind in KINDS
    for name in inspect.signature(kind).parameters
    if name not in OBJECTS
]
OF_CHOICE = [one.name for one in fields(ChoiceOptions) if one.name not in OBJECTS]
OF_ENGINE = ["n_steps", "max_new_tokens", "generation"]
OF_ANSWER = ["mode", "stop", "history", "num_beams", "temperature", "top_k", "top_p", "do_sample"]


@pytest.mark.parametrize(("kind", "name"), SETTINGS)
def test_an_odd_setting_is_taken_or_refused_by_an_error_of_ours(kind, name):
    for odd in [*ODD, *tensors()]:
        with suppress(SiftError):
            kind(**{name: odd})


@pytest.fixture(scope="module")
def language_model():
    return LanguageModel(SHAPES["llama, tied head"](), byte_tokenizer())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sift_core.errors.UndatedWarning")
@pytest.mark.parametrize("name", [*OF_CHOICE, *OF_ENGINE, *OF_ANSWER])
def test_an_odd_argument_of_an_answer_is_taken_or_refused_by_an_error_of_ours(language_model, name):
    for odd in ODD:
        choice, asked = {"n_select": 1}, {"mode": "both"}
        learning, engine = {"n_steps": 1}, {"generation": {"max_new_tokens": 2}}
        if name == "max_new_tokens":
            engine["generation"] = {name: odd}
        else:
            parts = {**dict.fromkeys(OF_CHOICE, choice), "n_steps": learning, "generation": engine}
            parts.get(name, asked)[name] = odd
        with suppress(SiftError):
            answering = AnswerEngine(
                language_model=language_model,
                options=ChoiceOptions(**choice),
                learning=LearningOptions(**learning),
                **engine,
            )
            answering.answer_from(answering.choose_from(*pool_about("dogs"), **asked))
