"""Odd values for every public number of answering: an error of ours, or one that works."""

import inspect
from dataclasses import fields

import pytest
from peft import LoraConfig

from sift_core import ChoiceOptions
from sift_core.answering import (
    AdapterCache,
    AnswerRequest,
    CostModel,
    FineTuningSettings,
    LearningOptions,
    PromptOptions,
    VariancePolicy,
)
from sift_core.answering.policy import Decision
from sift_core.errors import SiftError
from sift_core.types import AnswerMode
from tests.engines import changed, engine_of
from tests.selection.test_odd_values import ODD, tensors

QUESTION = "What is a cup of?"
LINE = ((1, 0.5), (2, 1.0))
COSTS = {"prefill": LINE, "adapted_prefill": LINE, "step": LINE}
COSTS |= dict.fromkeys(["new_token_s", "adapted_new_token_s", "setup_s"], 0.1)
KINDS = [
    (ChoiceOptions, {}, {"count_tokens"}),
    (FineTuningSettings, {}, {"lora"}),
    (CostModel, COSTS, set()),
    (VariancePolicy, {}, {"cost_model"}),
    (AdapterCache, {}, {"folder"}),
    (LearningOptions, {}, set()),
    (PromptOptions, {}, set()),
    (AnswerRequest, {"question": QUESTION}, {"filter"}),
    (Decision, {"mode": AnswerMode.BASE, "reasons": ()}, {"reasons"}),
]


def _errors_but_ours(use):
    """Return what odd values end in, other than errors of ours."""
    found = []
    for odd in [*ODD, *tensors()]:
        try:
            use(odd)
        except SiftError:
            pass
        except Exception as error:
            found.append(f"{type(odd).__name__}: {error!r:.200}")
    return found


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (kind, given, name)
        for kind, given, free in KINDS
        for name in inspect.signature(kind).parameters
        if name not in free
    ],
)
def test_an_odd_setting_is_an_error_of_ours_or_works(kind, given, name):
    assert _errors_but_ours(lambda odd: kind(**{**given, name: odd})) == []


@pytest.fixture(scope="module")
def engine(small_lm):
    return engine_of(small_lm, ["A cup of tea", "A pot of tea"], n_steps=1, max_new_tokens=1)


OF_ENGINE = ["options", "prompt", "learning", "generation", "policy", "query_rewriting"]


@pytest.mark.parametrize("name", [*OF_ENGINE, "max_new_tokens"])
def test_an_odd_option_of_an_engine_is_an_error_of_ours_or_works(engine, name):
    assert _errors_but_ours(lambda odd: changed(engine, **{name: odd})) == []


OF_CHOICE = [one.name for one in fields(ChoiceOptions) if not one.metadata.get("is_live")]
OF_ANSWER = ["mode", "stop", "history", "num_beams", "temperature", "top_k", "top_p", "do_sample"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sift_core.errors.NothingFitsWarning")
@pytest.mark.filterwarnings("ignore::sift_core.errors.UndatedWarning")
@pytest.mark.parametrize("name", [*OF_CHOICE, *OF_ANSWER])
def test_an_odd_argument_of_an_answer_is_an_error_of_ours_or_works(engine, name):
    asked = {"mode": "both", "n_select": 1}
    assert _errors_but_ours(lambda odd: engine.answer(QUESTION, **{**asked, name: odd})) == []


@pytest.mark.parametrize("name", ["question", "history", "max_new_tokens", "stop", "num_beams"])
def test_an_odd_argument_of_a_session_is_an_error_of_ours_or_works(engine, name):
    session = engine.session(QUESTION, mode="context")

    def answered(odd):
        return session.answer(**{"question": QUESTION, "max_new_tokens": 1, name: odd})

    assert _errors_but_ours(answered) == []


def test_an_odd_text_of_a_session_is_an_error_of_ours_or_works(engine):
    session = engine.session(QUESTION, mode="context")
    assert _errors_but_ours(session.answers) == []
    assert _errors_but_ours(session.bits_per_byte) == []
    assert _errors_but_ours(lambda odd: session.bits_per_byte("text", opening=odd)) == []
    assert _errors_but_ours(session.answer_bits_per_byte) == []


@pytest.mark.parametrize("name", ["r", "lora_alpha"])
def test_an_odd_number_of_a_lora_is_an_error_of_ours_or_works(name):
    config = LoraConfig()

    def settings(odd):
        setattr(config, name, odd)
        return FineTuningSettings(lora=config).alpha

    assert _errors_but_ours(settings) == []
