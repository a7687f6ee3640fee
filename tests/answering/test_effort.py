"""How much is learned: efforts, and learning rates that fall."""

import pytest
import torch

from sift_core import InvalidInputError
from sift_core.answering import FineTuningSettings, fine_tune
from sift_core.answering.policy import Decision
from sift_core.answering.settings import EFFORTS, effort_for
from sift_core.types import AnswerMode
from tests.answering.plain_peft import TEXTS, losses_of_peft
from tests.engines import engine_of

QUESTION = "How many rows has a table?"
N_STEPS = {name: one.n_steps for name, one in EFFORTS.items()}


@pytest.fixture
def make_engine(small_lm):
    texts = [f"Table {n} has {n} rows and {n + 1} columns." for n in range(60)]

    def make(**options):
        return engine_of(small_lm, texts, max_new_tokens=2, cache=None, **options)

    return make


class Takes:
    """A policy that takes so many steps."""

    on_off_topic = "refuse"

    def __init__(self, n_steps):
        self.n_steps = n_steps

    def decide(self, features):
        n = min(self.n_steps, features.n_steps)
        return Decision(mode=AnswerMode.FINE_TUNE, reasons=("so it is",), n_steps=n)


def test_a_rate_that_falls_learns_as_under_peft_with_torchs_schedule(make_random_lm):
    lm = make_random_lm()
    settings = FineTuningSettings(schedule="linear", learning_rate=1e-2)
    ours = fine_tune(lm, TEXTS * 3, settings).losses
    assert ours == pytest.approx(losses_of_peft(lm, TEXTS * 3, settings), rel=1e-4)
    constant = fine_tune(lm, TEXTS * 3, FineTuningSettings(learning_rate=1e-2)).losses
    assert ours[-1] != pytest.approx(constant[-1], rel=1e-4)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "thorough")) for name in N_STEPS],
)
def test_an_effort_is_a_number_of_steps_with_its_rate(make_engine, name):
    engine = make_engine(effort=name)
    choice = engine.choose(QUESTION, mode="fine_tune")
    assert (choice.effort, len(choice.learned)) == (name, N_STEPS[name])
    learned = engine.prepare(choice).tuned.adapter.values
    by_hand = EFFORTS[name].of(FineTuningSettings())
    again = fine_tune(engine.language_model, choice.chunks(choice.learned).texts, by_hand)
    assert torch.equal(learned, again.adapter.values)


def test_without_a_word_the_effort_is_balanced_and_a_request_says_otherwise(make_engine):
    engine = make_engine()
    assert engine.choose(QUESTION, mode="both").effort == "balanced"
    assert engine.choose(QUESTION, mode="both", effort="quick").effort == "quick"


def test_a_number_of_steps_is_taken_with_the_settings_alone_unless_a_request_names_an_effort(
    make_engine,
):
    engine = make_engine(n_steps=3, effort="quick")
    choice = engine.choose(QUESTION, mode="fine_tune")
    assert (choice.effort, len(choice.learned)) == (None, 3)
    asked = engine.choose(QUESTION, mode="fine_tune", effort="thorough")
    assert (asked.effort, len(asked.learned)) == ("thorough", N_STEPS["thorough"])


def test_a_rate_that_was_set_stays(make_engine):
    settings = FineTuningSettings(learning_rate=1e-3)
    assert all(effort.of(settings) == settings for effort in EFFORTS.values())


def test_fewer_steps_are_taken_with_the_rate_of_the_least_effort_that_has_as_many(make_engine):
    engine = make_engine(effort="thorough", policy=Takes(N_STEPS["quick"] + 1))
    assert engine.choose(QUESTION).effort == "balanced"
    assert [effort_for(n) for n in (1, 5, 6, 13, 500)] == [
        *("quick", "quick", "balanced", "thorough", "thorough"),
    ]


def test_nothing_learned_has_no_effort(make_engine):
    assert make_engine().choose(QUESTION, mode="context").effort is None


@pytest.mark.parametrize("wrong", ["", "fast", None, 3, ["quick"]])
def test_what_is_no_effort_is_refused(make_engine, wrong):
    with pytest.raises(InvalidInputError, match="`effort` must be one of 'quick'"):
        make_engine(effort=wrong)
    if wrong is not None:
        with pytest.raises(InvalidInputError, match="`effort` must be one of 'quick'"):
            make_engine().choose(QUESTION, effort=wrong)
