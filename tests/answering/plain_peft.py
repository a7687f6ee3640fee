"""Oracles: fine-tuning as a user of PEFT writes it, and what a model computes with an adapter."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers.pytorch_utils import Conv1D

from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.settings import FineTuningSettings

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a cow ate the hay"]


def lora(rank: int, alpha: float = 16.0, targets: Any = "all-linear") -> LoraConfig:
    """Return what `FineTuningSettings` takes."""
    return LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets)


@contextmanager
def pefts_own_warnings() -> Iterator[None]:
    """Ignore what PEFT says of its own code, and of tied heads, which we mean to adapt."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        warnings.filterwarnings("ignore", ".*tie_word_embeddings")
        yield


def head_name(model: Any) -> str:
    """Return the dotted name of a model's output head."""
    head = model.get_output_embeddings()
    return next(str(name) for name, module in model.named_modules() if module is head)


def leaf_names(model: Any) -> list[str]:
    """Return the last parts of the names of all linear layers but the head."""
    kinds = (torch.nn.Linear, Conv1D)
    names = {name for name, module in model.named_modules() if isinstance(module, kinds)}
    return sorted({name.rpartition(".")[2] for name in names - {head_name(model)}})


def losses_of_peft(
    lm: LanguageModel, texts: Sequence[str], settings: FineTuningSettings, **options: Any
) -> list[float]:
    """Return the loss before each step: PEFT's wrapper, the HF loss, one Adam step a text."""
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=16 if settings.lora is None else settings.lora.lora_alpha,
        task_type="CAUSAL_LM",
        **{"target_modules": "all-linear", **options},
    )
    model = copy.deepcopy(lm.model)
    is_transposed = any(isinstance(module, Conv1D) for module in model.modules())
    config.fan_in_fan_out = is_transposed and options.get("target_modules") != [head_name(model)]
    with pefts_own_warnings():
        peft_model = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(settings.seed)
    for name, parameter in peft_model.named_parameters():
        if "lora_A" in name:
            torch.nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)
    learnable = [p for p in peft_model.parameters() if p.requires_grad]
    return losses_of_loop(lm, peft_model, learnable, texts, settings)


def losses_of_loop(
    lm: LanguageModel,
    model: Any,
    parameters: Sequence[Any],
    texts: Sequence[str],
    settings: FineTuningSettings,
) -> list[float]:
    """Return the loss before each step of a plain loop over texts that fit into the window."""
    optimizer = torch.optim.Adam(parameters, lr=settings.step_size)
    falls = settings.schedule == "linear"
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: 1 - i / len(texts) if falls else 1.0
    )
    losses = []
    for text in texts:
        ids = torch.tensor([[0, *lm.token_ids(text)]])
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        losses.append(float(loss.detach()))
    return losses


def logits_of(model: Any, text_ids: Sequence[int]) -> torch.Tensor:
    """Return a model's logits, shape (n, n_vocabulary)."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([[0, *text_ids]])).logits
    return logits[0]


def loaded_by_peft(model: Any, folder: Any) -> Any:
    """Return a copy of a model with the adapter of a folder, as PEFT loads it."""
    with pefts_own_warnings():
        return PeftModel.from_pretrained(copy.deepcopy(model), folder).eval()


def state_of(lm: LanguageModel) -> Any:
    """Everything that must be the same afterwards: weights, modules, flags, attributes."""
    model = lm.model
    return (
        {name: value.clone() for name, value in model.state_dict().items()},
        [(name, id(module)) for name, module in model.named_modules()],
        [p.requires_grad for p in model.parameters()],
        set(vars(model)),
        model.training,
        [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        [parameter.grad for parameter in model.parameters()],
    )


def assert_same_state(lm: LanguageModel, before: Any) -> None:
    """Compare with what `state_of` said, bit for bit."""
    weights, *rest = state_of(lm)
    assert weights.keys() == before[0].keys()
    assert all(torch.equal(weights[name], before[0][name]) for name in weights)
    assert rest == list(before[1:])
