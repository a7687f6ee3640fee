"""Query-time fine-tuning: a LoRA learned from the chosen documents, for one query.

Paper: section 5 and appendix "Low-Rank Adaptation"; one gradient step a document in the
order of choice.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.language_model import LanguageModel, TokenWindow
from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError
from sift_core.types import Answer, AnswerMode, CandidatePool, Query, as_count

try:
    import torch
    from peft import LoraConfig, LoraModel, TaskType
    from transformers.pytorch_utils import Conv1D
except ImportError as error:
    raise MissingDependencyError("torch and peft", extra="fine-tune") from error

ADAPTER = "sift"
_global_generator = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings:
    """How one query's adapter learns. The defaults are the paper's.

    Args:
        rank: Rank of the update to every `nn.Linear` (or GPT-2's Conv1D) but the head, >= 1.
            Fused experts, which are neither, stay as they are.
        alpha: Output scaling; the update is multiplied by alpha / rank.
        learning_rate: Of Adam, > 0. The paper's 5e-4 is for LoRA.
        seed: Of the adapter's random half. The same seed gives the same answer.

    Raises:
        InvalidInputError: If a number is out of its range.
    """

    rank: int = 64
    alpha: float = 16.0
    learning_rate: float = 5e-4
    seed: int = 0

    def __post_init__(self) -> None:
        as_count("rank", self.rank, minimum=1)
        if as_count("seed", self.seed, minimum=0) >= 2**63:
            raise InvalidInputError(f"`seed` must be < 2**63, got {self.seed}")
        for name in ("alpha", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidInputError(f"`{name}` must be > 0, got {getattr(self, name)}")


@contextmanager
def fine_tuned(
    language_model: LanguageModel,
    texts: Sequence[str],
    settings: FineTuningSettings | None = None,
    *,
    on_step: Callable[[float], object] | None = None,
) -> Iterator[list[float]]:
    """Hold a model that has taken one Adam step on each text, for the `with` block.

    Afterwards, also after an exception, the model has its own modules back and their
    weights are the bits they were: they were frozen and nothing was merged into them.
    The model is held throughout: other threads wait, and other asyncio tasks of this
    thread get an error, rather than see the adapter.

    Args:
        language_model: The model to adapt.
        texts: What to learn, in order. A text longer than the window is learned from in
            several windows whose gradients are summed into its one step. A text without
            a token teaches nothing and takes no step.
        settings: The paper's if None.
        on_step: Called after each step with the loss before it, for a progress bar. What
            it raises ends the fine-tuning.

    Yields:
        The loss before each step in nats per token, one a text that has tokens.

    Raises:
        AnswerError: If a loss or gradient is not finite, or the model fails.
        InvalidInputError: If the model is fine-tuned already.
    """
    with language_model.changing():
        model = language_model.model
        modules = [(p, name, child) for p in model.modules() for name, child in p.named_children()]
        try:
            losses: list[float] = []
            steps = _steps(language_model, texts, settings or FineTuningSettings())
            for loss in steps:
                losses.append(loss)
                if on_step is not None:
                    on_step(loss)
            yield losses
        finally:
            for parent, name, child in modules:
                setattr(parent, name, child)
            vars(model).pop("peft_config", None)  # PEFT's mark of an adapted model
            model.requires_grad_(False)
            model.eval()


def _steps(
    language_model: LanguageModel, texts: Sequence[str], settings: FineTuningSettings
) -> Iterator[float]:
    """Adapt the model in place, one Adam step a text; yield the loss before each."""
    try:
        # Also in a caller's `no_grad` or `inference_mode`, as servers run.
        with torch.inference_mode(False), torch.enable_grad():
            parameters = _add_adapter(language_model.model, settings)
        optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, eps=1e-8)
        for position, text in enumerate(texts):
            windows = language_model.windows(text)
            if not windows:
                continue
            with torch.inference_mode(False), torch.enable_grad():
                loss = _backward(language_model, windows)
                norm = torch.nn.utils.get_total_norm(
                    [p.grad for p in parameters if p.grad is not None]
                )
                if not torch.isfinite(norm) or not loss < float("inf"):
                    raise AnswerError(
                        f"the loss or gradient of chunk {position} is not finite; lower the "
                        f"learning rate of {settings.learning_rate}"
                    )
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            yield loss
    except RuntimeError as error:  # out of memory is one of them
        raise AnswerError(f"fine-tuning failed: {error}") from error


def _backward(language_model: LanguageModel, windows: Sequence[TokenWindow]) -> float:
    """Accumulate the gradient of a text's mean loss; return the loss in nats per token."""
    n_targets = sum(len(window.targets) for window in windows)
    loss = 0.0
    for window in windows:
        part = language_model.loss_sum(window) / n_targets
        part.backward()  # type: ignore[no-untyped-call]
        loss += float(part.detach())
    return loss


def _add_adapter(model: Any, settings: FineTuningSettings) -> list[torch.nn.Parameter]:
    """Put a fresh LoRA around every `nn.Linear` but the head; return what it can learn."""
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # annotated int, used as a float
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear",
        task_type=TaskType.CAUSAL_LM,
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()),  # GPT-2
    )
    # PEFT draws from torch's global generator; ours must neither disturb nor depend on it.
    with _global_generator, torch.random.fork_rng(devices=[]):
        LoraModel(model, config, ADAPTER)
    generator = torch.Generator().manual_seed(settings.seed)
    for name, parameter in model.named_parameters():
        if ".lora_A." in name:  # PEFT's own initialisation; lora_B starts at zero
            drawn = torch.nn.init.kaiming_uniform_(
                torch.empty(parameter.shape), a=math.sqrt(5), generator=generator
            )
            parameter.data.copy_(drawn)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.data = parameter.data.float()  # in bf16 a small step would round away
    return parameters


@dataclass(frozen=True, kw_only=True)
class FineTuningAnswerer:
    """Learns from the chunks, answers the question alone, and forgets them.

    One answer at a time on one model: concurrent callers wait for each other.

    Args:
        language_model: The model that learns and answers.
        settings: How it learns; the paper's if left out.
        max_new_tokens: Length of an answer at most.
    """

    language_model: LanguageModel
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    max_new_tokens: int = 64

    def answer(self, query: Query, chunks: CandidatePool) -> Answer:
        """Return the fine-tuned model's continuation of the question.

        Costs a forward and backward pass a chunk, repeats counted, and the generation.

        Raises:
            InvalidInputError: If question and answer do not fit into the window.
            AnswerError: If learning or generating fails; the model is as before.
        """
        answerer = InContextAnswerer(
            language_model=self.language_model, max_new_tokens=self.max_new_tokens
        )
        nothing = chunks.take([])
        # before the work
        self.language_model.check_prompt(answerer.prompt(query, nothing), self.max_new_tokens)
        started = time.perf_counter()
        with fine_tuned(self.language_model, chunks.texts, self.settings):
            learned_s = time.perf_counter() - started
            answer = answerer.answer(query, nothing)
        return replace(
            answer,
            mode=AnswerMode.FINE_TUNE,
            chunks=chunks,
            timings={"fine_tune": learned_s, **answer.timings},
        )

    def bits_per_byte(self, text: str, chunks: CandidatePool) -> float:
        """Return the code length of `text` under the fine-tuned model, in bits per byte."""
        with fine_tuned(self.language_model, chunks.texts, self.settings):
            return self.language_model.bits_per_byte(text)
