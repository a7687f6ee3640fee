"""What a user runs without an engine: a plain PEFT loop, and the HF Trainer.

Each gets the very tokens that the engine's forward passes see, one chunk a step, and a LoRA of
the same size. A rival returns when each of its steps ended, so that a step's time holds neither
what its set-up costs nor the first step, which is slower everywhere.

Generous to the rivals: shapes without dropout, fused AdamW where the Trainer's default is that.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.pytorch_utils import Conv1D

from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune

LEARNING_RATE = 5e-4
Steps = Callable[[Sequence[str]], list[float]]  # texts → when each step ended, in seconds; CPU


def seconds_a_step(steps: Steps, texts: Sequence[str]) -> float:
    """Return the mean time of a step, without set-up and first step; takes two texts or more."""
    ends = steps(texts)
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def engine_steps(language_model: LanguageModel, settings: FineTuningSettings) -> Steps:
    """Return ours."""

    def run(texts: Sequence[str]) -> list[float]:
        ends: list[float] = []
        fine_tune(
            language_model, texts, settings, on_step=lambda _: ends.append(time.perf_counter())
        )
        return ends

    return run


def peft_steps(language_model: LanguageModel) -> Steps:
    """Return a plain loop over the model of `language_model`, which nothing else may use."""

    def run(texts: Sequence[str]) -> list[float]:
        with plain_peft(language_model, texts) as (_, ends):
            return ends

    return run


def trainer_steps(language_model: LanguageModel) -> Steps:
    """Return the Trainer over the model of `language_model`, which nothing else may use."""

    def run(texts: Sequence[str]) -> list[float]:
        with trained(language_model, texts) as (_, ends):
            return ends

    return run


def why_no_trainer() -> str:
    """Return why the Trainer cannot be measured here, "" if it can."""
    return "" if find_spec("accelerate") else "accelerate, which the Trainer needs, is missing"


@contextmanager
def adapted(model: Any) -> Iterator[Any]:
    """Hold a fresh `get_peft_model` for the `with` block."""
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
        yield peft_model
    finally:
        peft_model.unload()
        vars(model).pop("peft_config", None)  # PEFT's mark, which `unload` leaves


@contextmanager
def plain_peft(
    language_model: LanguageModel, texts: Sequence[str]
) -> Iterator[tuple[Any, list[float]]]:
    """Learn from the texts in a plain loop; hold the learned model and when its steps ended."""
    with adapted(language_model.model) as peft_model:
        learned = [p for p in peft_model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(learned, lr=LEARNING_RATE, weight_decay=0.0)
        ends = []
        for ids in model_inputs(language_model, texts):
            batch = torch.tensor([ids], device=language_model.model.device)
            peft_model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
        yield peft_model, ends


class _StepEnds(TrainerCallback):
    """Notes when each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())


@contextmanager
def trained(
    language_model: LanguageModel, texts: Sequence[str]
) -> Iterator[tuple[Any, list[float]]]:
    """Learn from the texts with the Trainer; hold the learned model and when its steps ended.

    Its defaults but for the batch of one, the rate, and that it neither saves nor reports.
    """
    rows = [{"input_ids": ids, "labels": ids} for ids in model_inputs(language_model, texts)]
    with adapted(language_model.model) as peft_model, tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=1,
            max_steps=len(rows),
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=language_model.model.device.type == "cpu",
        )
        callback = _StepEnds()
        trainer = Trainer(
            model=peft_model, args=arguments, train_dataset=rows, callbacks=[callback]
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        peft_model.eval()
        yield peft_model, callback.ends


def model_inputs(language_model: LanguageModel, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of every forward pass that the engine makes over the texts."""
    return [list(window.inputs) for text in texts for window in language_model.windows(text)]
