"""What a user runs without an engine: a plain PEFT loop.

It gets the very tokens that the engine's forward passes see, one chunk a step, and a LoRA of the
same size. Its shapes have no dropout. A way returns when each of its steps ended, so that a step's
time holds neither the set-up nor the first step, which is slower everywhere.

The tag `evidence-2026-11b` also has the HF Trainer.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers.pytorch_utils import Conv1D

from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune

LEARNING_RATE = 5e-4
Steps = Callable[[Sequence[str]], list[float]]  # texts → when each step ended, in seconds


def seconds_a_step(steps: Steps, texts: Sequence[str]) -> float:
    """Return the mean time of a step, without set-up and first step; takes two texts or more."""
    ends = steps(texts)
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def engine_steps(language_model: LanguageModel) -> Steps:
    """Return ours."""

    def run(texts: Sequence[str]) -> list[float]:
        ends: list[float] = []
        on_step = lambda _: ends.append(time.perf_counter())  # noqa: E731
        fine_tune(language_model, texts, FineTuningSettings(), on_step=on_step)
        return ends

    return run


def peft_steps(language_model: LanguageModel) -> Steps:
    """Return a plain loop over the model of `language_model`, which nothing else may use."""

    def run(texts: Sequence[str]) -> list[float]:
        with plain_peft(language_model, texts) as (_, ends):
            return ends

    return run


@contextmanager
def plain_peft(
    language_model: LanguageModel, texts: Sequence[str]
) -> Iterator[tuple[Any, list[float]]]:
    """Learn from the texts in a plain loop; hold the learned model and when its steps ended."""
    model: Any = language_model.model
    config = LoraConfig(
        r=64,
        lora_alpha=16,
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear",
        task_type=TaskType.CAUSAL_LM,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    with warnings.catch_warnings():
        # PEFT 0.21 asks by a name that transformers 6 will not know
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
        peft_model: Any = get_peft_model(model, config)  # adapters in float32 on a bf16 base too
    try:
        learned = [p for p in peft_model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(learned, lr=LEARNING_RATE, weight_decay=0.0)
        ends = []
        for window in (one for text in texts for one in language_model.windows(text)):
            batch = torch.tensor([list(window.inputs)], device=model.device)
            peft_model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
        yield peft_model, ends
    finally:
        peft_model.unload()
        vars(model).pop("peft_config", None)  # PEFT's mark, which `unload` leaves
