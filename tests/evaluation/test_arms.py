from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.language_modeling.arms import BASE, Arm, learning, reading
from sift_core.evaluation.language_modeling.parts import PARTS, MainSettings, arms_of
from sift_core.selection import (
    ContextSelector,
    HullReconstructionSelector,
    NearestNeighborSelector,
    RepeatedNeighborSelector,
    SIFTSelector,
    UncertaintySamplingSelector,
)

LEARNING = {"scope": "all", "learning_rate": 5e-4, "chunks_per_step": 1, "order": "chosen"}
SIFT = {"selector": "SIFT", "noise_variance": 0.1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "finetune", **SIFT}, "mode"),
        ({"mode": "context", "selector": "sift"}, "selector"),
        ({"mode": "fine_tune", **SIFT, **LEARNING, "order": "random"}, "order"),
        ({"mode": "base", "selector": "NN"}, "mode 'base' does not go"),
        ({"mode": "context"}, "mode 'context' does not go"),
        ({"mode": "fine_tune", **LEARNING}, "mode 'fine_tune' does not go"),
        ({"mode": "base", "noise_variance": 0.1}, "noise_variance"),
        ({"mode": "base", **LEARNING}, "does not go"),
        ({"mode": "context", "selector": "SIFT"}, "noise_variance"),
        ({"mode": "context", "selector": "US"}, "noise_variance"),
        ({"mode": "context", "selector": "other prompt"}, "noise_variance"),
        ({"mode": "context", "selector": "NN", "noise_variance": 0.1}, "noise_variance"),
        ({"mode": "context", "selector": "NN-F", "noise_variance": 0.1}, "noise_variance"),
        ({"mode": "context", "selector": "HullFT", "noise_variance": 0.1}, "noise_variance"),
        ({"mode": "context", "selector": "SIFT context", "noise_variance": 1}, "noise_variance"),
        *(
            ({"mode": "context", **SIFT, name: value}, "does not go")
            for name, value in LEARNING.items()
        ),
        *(
            ({"mode": mode, **SIFT, **LEARNING, name: None}, "does not go")
            for name in LEARNING
            for mode in ("fine_tune", "both")
        ),
        ({"mode": "context", "selector": "SIFT", "noise_variance": 0.0}, "noise_variance"),
        ({"mode": "context", "selector": "SIFT", "noise_variance": float("nan")}, "noise_var"),
        ({"mode": "context", "selector": "SIFT", "noise_variance": True}, "noise_variance"),
        ({"mode": "fine_tune", **SIFT, **LEARNING, "learning_rate": -1.0}, "learning_rate"),
        ({"mode": "fine_tune", **SIFT, **LEARNING, "chunks_per_step": 0}, "chunks_per_step"),
        ({"mode": "context", **SIFT, "n_candidates": 0}, "n_candidates"),
        ({"mode": "context", **SIFT, "n_steps": 2.0}, "n_steps"),
        ({"mode": "context", **SIFT, "is_normalized": 1}, "is_normalized"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Arm(**settings)


@pytest.mark.parametrize("arm", [*arms_of(PARTS), BASE])
def test_an_arm_comes_back_from_its_record(arm):
    assert Arm.from_record(arm.as_record()) == arm
    assert Arm.from_record(arm.as_record()).as_record() == arm.as_record()


def test_equal_arms_have_one_spelling():
    spelled = str(learning("SIFT", 1, learning_rate=1).as_record())
    assert spelled == str(learning("SIFT", 1.0, learning_rate=1.0).as_record())


@pytest.mark.parametrize("change", [{"temperature": 1}, {"order": ...}])
def test_a_record_of_another_version_is_refused(change):
    record = {**BASE.as_record(), **change}
    record = {name: value for name, value in record.items() if value is not ...}
    with pytest.raises(InvalidInputError, match="another version"):
        Arm.from_record(record)


@pytest.mark.parametrize(
    ("arm", "label"),
    [
        (BASE, "base"),
        (learning("NN"), "NN"),
        (learning("SIFT", 0.1), "SIFT(0.1)"),
        (learning("SIFT", 1e-4, mode="both"), "both SIFT(0.0001)"),
        (reading("SIFT context"), "context SIFT context"),
        (learning("other prompt", 0.1), "other prompt"),
    ],
)
def test_labels(arm, label):
    assert arm.label == label


@pytest.mark.parametrize(
    ("arm", "kind", "noise_variance"),
    [
        (learning("SIFT", 0.3), SIFTSelector, 0.3),
        (learning("other prompt", 0.3), SIFTSelector, 0.3),
        (learning("US", 0.3), UncertaintySamplingSelector, 0.3),
        (learning("NN"), NearestNeighborSelector, None),
        (learning("NN-F"), RepeatedNeighborSelector, None),
        (learning("HullFT"), HullReconstructionSelector, None),
        (reading("SIFT context"), ContextSelector, None),
    ],
)
def test_what_chooses(arm, kind, noise_variance):
    selector = arm.make_selector()
    assert type(selector) is kind
    if noise_variance is not None:
        assert selector.noise_variance == noise_variance


@pytest.mark.parametrize("selector", ["SIFT", "US", "other prompt"])
def test_lengths_count_where_embeddings_are_not_normalized(selector):
    selector = learning(selector, 0.1, is_normalized=False).make_selector()
    query, short, long = np.array([1.0, 0.0]), [0.5, 0.0], [3.0, 1.0]
    assert selector.select(query, np.array([short, long]), 1).positions.tolist() == [1]


def test_the_base_chooses_nothing():
    with pytest.raises(InvalidInputError, match="chooses nothing"):
        BASE.make_selector()


def test_arms_that_choose_alike_have_one_in_common():
    one = learning("SIFT", 0.1)
    alike = [
        learning("SIFT", 0.1, scope="head", learning_rate=1e-3, order="reversed"),
        learning("SIFT", 0.1, mode="both", chunks_per_step=5),
        reading("SIFT", 0.1),
    ]
    assert {arm.what_chooses for arm in (one, *alike)} == {reading("SIFT", 0.1)}
    for change in ("n_candidates", "n_steps"):
        assert replace(one, **{change: 7}).what_chooses != one.what_chooses
    assert replace(one, is_normalized=False).what_chooses != one.what_chooses
    assert replace(one, noise_variance=1.0).what_chooses != one.what_chooses
    assert BASE.what_chooses == BASE


def test_reading_and_learning_differs_from_learning_alone_in_mode():
    both = learning("SIFT", 0.1, mode="both")
    assert both.without_context == learning("SIFT", 0.1)
    assert learning("NN").without_context == learning("NN")
    assert reading("NN").without_context == reading("NN")


def differences(one, other):
    left, right = one.as_record(), other.as_record()
    return {name for name in left if left[name] != right[name]}


VARIED = {
    "main": {"selector", "noise_variance"},
    "noise_variance": {"noise_variance", "selector"},
    "learning_rate": {"learning_rate", "scope"},
    "order": {"order", "selector"},
    "batch": {"chunks_per_step"},
    "scope": {"scope", "learning_rate"},
    "normalized": {"is_normalized", "selector"},
    "candidates": {"n_candidates"},
}
MAIN = MainSettings(
    scope="head",
    learning_rate=2e-3,
    noise_variance=0.3,
    n_candidates=77,
    n_steps=9,
    scope_rates={"all": 1e-3, "full": 1e-4},
)


@pytest.mark.parametrize("main", [MainSettings(), MAIN])
@pytest.mark.parametrize("part", VARIED)
def test_a_part_varies_what_its_name_says_from_the_main_settings(part, main):
    common = main.learning("NN" if part == "learning_rate" else "SIFT")
    arms = arms_of([part], main)
    for arm in arms:
        varied = differences(arm, common)
        if arm.selector == common.selector:
            varied -= {"selector"}
        elif arm.noise_variance is None:
            varied -= {"noise_variance"}  # it has none to differ in
        assert varied <= VARIED[part]
        assert len(varied - {"learning_rate"}) <= (2 if "selector" in varied else 1)
    if part not in ("learning_rate", "candidates", "noise_variance"):
        assert common in arms


def test_modes_are_compared_with_the_same_choice():
    arms = arms_of(["context"], MAIN)
    modes = {arm.mode for arm in arms if arm.what_chooses == MAIN.reading("SIFT")}
    assert modes == {"context", "fine_tune", "both"}
    assert {arm.n_candidates for arm in arms} == {77}
    assert {arm.n_steps for arm in arms} == {9}


@pytest.mark.parametrize("selector", ["US", "other prompt", "SIFT"])
def test_every_selector_with_noise_can_be_read_with_the_main_noise(selector):
    assert MAIN.reading(selector).noise_variance == 0.3


@pytest.mark.parametrize("main", [None, MAIN])
def test_no_arm_stands_twice(main):
    arms = arms_of(PARTS, main)
    assert len(set(arms)) == len(arms)
    assert len({str(arm.as_record()) for arm in arms}) == len(arms)
    for one, other in combinations(PARTS, 2):
        assert set(arms_of([one, other], main)) == set(arms_of([one], main)) | set(
            arms_of([other], main)
        )


def test_the_main_table_has_every_selector():
    selectors = [arm.selector for arm in arms_of(["main"])]
    assert selectors == ["SIFT", "NN", "NN-F", "US", "HullFT", "other prompt"]


def test_a_part_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match=r"'lambda'.*noise_variance"):
        arms_of(["main", "lambda"])
