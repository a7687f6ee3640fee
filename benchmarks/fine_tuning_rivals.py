"""What a user runs without an engine: a plain PEFT loop.

It gets the very tokens that the engine's forward passes see, one chunk a step, and a LoRA of the
same size. Its shapes have no dropout. A way returns when its first and its last step ended, so that
a step's time holds neither the set-up nor the first step, which is slower everywhere. On a GPU both
times are taken once all work is done; in between nobody waits who need not.

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
Ends = tuple[float, float]  # of the first and of the last step, in seconds
Steps = Callable[[Sequence[str]], Ends]  # takes two texts or more


def seconds_a_step(steps: Steps, texts: Sequence[str]) -> float:
    """Return the mean time of a step, without set-up and first step."""
    first, last = steps(texts)
    return (last - first) / (len(texts) - 1)


def engine_steps(language_model: LanguageModel) -> Steps:
    """Return ours."""

    def run(texts: Sequence[str]) -> Ends:
        ends: list[float] = []

        def on_step(_: float) -> None:
            is_counted = len(ends) in (0, len(texts) - 1)
            ends.append(time_on(language_model.model.device) if is_counted else 0.0)

        fine_tune(language_model, texts, FineTuningSettings(), on_step=on_step)
        return ends[0], ends[-1]

    return run


def peft_steps(language_model: LanguageModel, *, autocast: bool = False) -> Steps:
    """Return a plain loop over the model of `language_model`, which nothing else may use."""

    def run(texts: Sequence[str]) -> Ends:
        with plain_peft(language_model, texts, autocast=autocast) as (_, ends):
            return ends

    return run


def time_on(device: torch.device) -> float:
    """Return the time in seconds once a device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@contextmanager
def plain_peft(
    language_model: LanguageModel, texts: Sequence[str], *, autocast: bool = False
) -> Iterator[tuple[Any, Ends]]:
    """Learn from the texts in a plain loop; hold the learned model and when its steps ended.

    With `autocast` products are in bfloat16, as with the HF Trainer's `bf16=True`. Without it
    PEFT's adapters compute in float32, on a base in bfloat16 too.
    """
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
        first = None
        for window in (one for text in texts for one in language_model.windows(text)):
            batch = torch.tensor([list(window.inputs)], device=model.device)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
                loss = peft_model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            first = first or time_on(model.device)
        last = time_on(model.device)
        yield peft_model, (first or last, last)
    finally:
        peft_model.unload()
        vars(model).pop("peft_config", None)  # PEFT's mark, which `unload` leaves
