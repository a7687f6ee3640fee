"""The number type follows the processor, and what one type has learned fits the other."""

import os
import re
import subprocess
import sys
from typing import get_args

import pytest
import torch

from sift_core import InvalidInputError
from sift_core.answering import AdapterCache, FineTuningSettings, LanguageModel
from sift_core.answering.adapter_cache import fine_tune_cached
from sift_core.answering.model.loading import (
    LIMITING_VARIABLES,
    NumberType,
    chosen_type,
    cpu_number_type,
    load,
    slowdown_of_bfloat16,
)
from sift_core.cli.options import DtypeName
from sift_core.types import CandidatePool
from tests.answering.plain_peft import lora

AVX2 = frozenset({"fpu", "avx", "avx2", "fma"})
TEXTS = ["A lighthouse shows ships the coast.", "Its lamp turns all night."]


def never():
    raise AssertionError("nothing is timed where the instructions decide")


@pytest.mark.parametrize(
    ("known", "limits", "slowdown", "expected"),
    [
        (AVX2, [], never, ("float32", "no instructions for bfloat16")),
        (AVX2 | {"avx512f", "avx512_vnni"}, [], never, ("float32", "no instructions")),
        (AVX2, ["ATEN_CPU_CAPABILITY"], never, ("float32", "no instructions")),
        (AVX2 | {"avx512_bf16"}, [], never, ("bfloat16", "avx512_bf16")),
        (AVX2 | {"amx_bf16"}, [], never, ("bfloat16", "amx_bf16")),
        (frozenset({"asimd", "bf16"}), [], never, ("bfloat16", "bf16")),
        (AVX2 | {"avx512_bf16"}, ["X"], lambda: 20.0, ("float32", "limited by X.*20 times")),
        (None, [], lambda: 59.0, ("float32", "does not tell .* 59 times")),
        (None, [], lambda: 0.5, ("bfloat16", "0.5 times")),
        (None, [], lambda: 0.9, ("float32", "0.9 times")),  # hardly quicker: the exact one
    ],
)
def test_what_the_processor_has_decides(known, limits, slowdown, expected):
    found = chosen_type(known, limits, slowdown)
    assert found.name == expected[0]
    assert re.search(expected[1], found.reason)


def test_both_types_can_be_timed_here():
    assert slowdown_of_bfloat16() > 0


@pytest.mark.slow
def test_a_limit_on_pytorch_is_noticed():
    code = (
        "from sift_core.answering.model.loading import cpu_number_type; "
        "print(cpu_number_type().reason)"
    )
    variables = {
        name: value for name, value in os.environ.items() if name not in LIMITING_VARIABLES
    }
    limited = {**variables, "ATEN_CPU_CAPABILITY": "default"}
    printed = subprocess.check_output([sys.executable, "-c", code], env=limited, text=True)
    assert "limited by ATEN_CPU_CAPABILITY" in printed or "no instructions" in printed


def test_the_default_is_that_of_the_cpu_and_what_is_asked_for_wins(random_model):
    chosen = getattr(torch, cpu_number_type().name)
    assert LanguageModel.from_pretrained(random_model, device="cpu").model.dtype is chosen
    for name in ("float32", "bfloat16"):
        asked = LanguageModel.from_pretrained(random_model, device="cpu", dtype=name)
        assert asked.model.dtype is getattr(torch, name)


@pytest.mark.parametrize("wrong", ["int8", "torch.float32", None, torch.float32])
def test_no_other_type_is_taken(random_model, wrong):
    with pytest.raises(InvalidInputError, match="`dtype` must be one of 'auto', 'float32'"):
        load(str(random_model), device="cpu", dtype=wrong, trust_remote_code=False)


def test_the_command_line_knows_the_same_types():
    assert get_args(DtypeName) == get_args(NumberType)


@pytest.fixture
def both(random_model):
    return [
        LanguageModel.from_pretrained(random_model, device="cpu", dtype=dtype)
        for dtype in ("float32", "bfloat16")
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_an_adapter_learned_in_one_type_opens_in_the_other(both, first, tmp_path):
    learner, reader = both[first], both[1 - first]
    chunks = CandidatePool(
        document_ids=["a", "b"],
        texts=TEXTS,
        embeddings=torch.eye(2).numpy(),
        similarities=[1.0, 0.5],
    )
    settings = FineTuningSettings(lora=lora(4), learning_rate=1e-2)
    learned = fine_tune_cached(learner, chunks, settings, AdapterCache(folder=tmp_path))
    assert learned.report.source == "trained"
    found = fine_tune_cached(reader, chunks, settings, AdapterCache(folder=tmp_path))
    assert found.report.source == "disk"
    assert torch.equal(found.adapter.values, learned.adapter.values)
    before = reader.bits_per_byte(TEXTS[0])
    with reader.adapted(found.adapter):
        after = reader.bits_per_byte(TEXTS[0])
    assert after < before - 0.01
    with learner.adapted(learned.adapter):
        assert after == pytest.approx(learner.bits_per_byte(TEXTS[0]), rel=0.02)
