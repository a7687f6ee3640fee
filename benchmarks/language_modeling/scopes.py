"""What learns of a model: a LoRA on all layers, or every weight of a copy."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch.nn import functional

from sift_core.answering import FineTuningSettings, LanguageModel
from sift_core.answering.fine_tuning import fine_tuned
from sift_core.answering.report import FineTuningReport
from sift_core.errors import InvalidInputError

SCOPES = ("all", "full")
OnState = Callable[[LanguageModel, int], object]


@contextmanager
def learned(
    language_model: LanguageModel,
    texts: Sequence[str],
    settings: FineTuningSettings,
    *,
    scope: str,
    on_state: OnState,
) -> Iterator[tuple[LanguageModel, FineTuningReport]]:
    """Let a model have learned from texts for the `with` block; it stays as it is.

    Args:
        language_model: The model to learn with.
        texts: What to learn, in order, one Adam step each.
        settings: How a LoRA learns; of it "full" takes the learning rate alone.
        scope: One of `SCOPES`.
        on_state: Called before the first step and after each, with a model that has learned so far
            and with the number of texts that it has learned.

    Yields:
        A model that has learned, and how that went.

    Raises:
        InvalidInputError: If there is no such scope.
    """
    if scope not in SCOPES:
        raise InvalidInputError(f"`scope` must be one of {SCOPES}, got {scope!r}")
    if scope == "full":
        yield fully_tuned(language_model, texts, settings.step_size, on_state=on_state)
        return
    score = partial(on_state, language_model)
    with fine_tuned(language_model, texts, settings, on_state=score) as tuned:
        yield language_model, tuned.report


def fully_tuned(
    language_model: LanguageModel,
    texts: Sequence[str],
    learning_rate: float,
    *,
    on_state: OnState = lambda *_: None,
) -> tuple[LanguageModel, FineTuningReport]:
    """Return a copy of a model in float32, all of whose weights have learned (paper, section 5).

    A step whose loss is not finite is not taken, and ends the learning with the model as it was.
    """
    model = copy.deepcopy(language_model.model).float()
    mine = LanguageModel(model, language_model.tokenizer, name=language_model.name)
    model.requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    losses: list[float] = []
    on_state(mine, 0)
    for text in texts:
        windows = mine.windows(text)
        n_targets = sum(len(window.targets) for window in windows)
        loss = 0.0
        for window in windows:
            logits = model(input_ids=torch.tensor([window.inputs], device=model.device)).logits
            targets = torch.tensor(window.targets, device=model.device)
            nats = functional.cross_entropy(logits[0, -len(targets) :], targets, reduction="sum")
            (nats / n_targets).backward()
            loss += float(nats.detach()) / n_targets
        if not math.isfinite(loss):
            report = FineTuningReport(losses=tuple(losses), n_steps=len(losses), n_refused=1)
            return language_model, replace(report, stop_reason="diverged")
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
        on_state(mine, len(losses))
    return mine, FineTuningReport(
        losses=tuple(losses), n_steps=len(losses), learned=tuple(range(len(losses)))
    )
