"""How a model learns from chunks: the settings of one fine-tuning, and what came of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from sift_core.checks import as_count, check_text
from sift_core.errors import InvalidInputError

LORA_LEARNING_RATE = 5e-4  # the paper's, appendix "Low-Rank Adaptation"
FULL_LEARNING_RATE = 5e-5  # the paper's, section 5

ChunkFormat = Literal["text", "chat"]
ScopeKind = Literal["all", "top", "head", "full"]


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings:
    """How one query's adapter learns. The defaults are the paper's.

    Args:
        rank: Rank of the update to every linear layer in scope, >= 1. Fused experts, which are
            no linear layers of their own, stay as they are.
        alpha: Output scaling; the update is multiplied by alpha / rank.
        learning_rate: Of Adam, > 0. The paper's if None: 5e-4 for a LoRA, 5e-5 for "full".
        seed: Of the adapter's random half. The same seed gives the same answer.
        scope: What learns. "all": a LoRA on every linear layer but the head. "top:3": one on
            those of the last three layers; what the layers below make of a chunk is kept for the
            next time. "head": one on the output head, over kept hidden states. "full": every
            weight, in a private float32 copy of the model.
        chunks_per_step: Chunks whose mean loss one Adam step follows, >= 1; the paper's 1.
        rows_per_pass: Windows in one forward pass, padded to the longest, >= 1. If None one on a
            CPU, where padding costs and rows gain nothing, and a whole step on a GPU.
        reuse_gradients: Whether a chunk that was chosen m times takes its m steps with one
            gradient, all of them where it was chosen first. m times as fast for it, and less
            exact: later gradients of a chunk are smaller. One chunk a step, then.
        max_seconds: Time after which no further step begins, > 0; at least one is taken.
        chunk_format: "text": a chunk follows the BOS (or EOS) token, as in pretraining. "chat":
            it is the assistant's turn in the tokenizer's chat template, after `chat_request`.
        chat_request: What the user says before a chunk in the format "chat".
        checkpointing: Whether activations are computed again in the backward pass, layer by
            layer, for a third more time; otherwise only after memory has run out.

    Raises:
        InvalidInputError: If a value is out of its range.
    """

    rank: int = 64
    alpha: float = 16.0
    learning_rate: float | None = None
    seed: int = 0
    scope: str = "all"
    chunks_per_step: int = 1
    rows_per_pass: int | None = None
    reuse_gradients: bool = False
    max_seconds: float | None = None
    chunk_format: ChunkFormat = "text"
    chat_request: str = "Tell me what you know."
    checkpointing: bool = False

    def __post_init__(self) -> None:
        as_count("rank", self.rank, minimum=1)
        as_count("chunks_per_step", self.chunks_per_step, minimum=1)
        if self.rows_per_pass is not None:
            as_count("rows_per_pass", self.rows_per_pass, minimum=1)
        if as_count("seed", self.seed, minimum=0) >= 2**63:
            raise InvalidInputError(f"`seed` must be < 2**63, got {self.seed}")
        for name in ("alpha", "learning_rate", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InvalidInputError(f"`{name}` must be > 0, got {value}")
        if not isinstance(self.scope, str) or not re.fullmatch(
            r"all|head|full|top:[1-9][0-9]*", self.scope
        ):
            raise InvalidInputError(
                f'`scope` must be "all", "top:k" with k >= 1, "head" or "full", got {self.scope!r}'
            )
        if self.chunk_format not in get_args(ChunkFormat):
            raise InvalidInputError(
                f'`chunk_format` must be "text" or "chat", got {self.chunk_format!r}'
            )
        check_text("chat_request", self.chat_request)

    @property
    def kind(self) -> ScopeKind:
        """Return the scope without its number of layers."""
        kind = self.scope.partition(":")[0]
        return kind  # type: ignore[return-value]  # checked on construction

    @property
    def n_top_layers(self) -> int | None:
        """Return k of "top:k", None in other scopes."""
        number = self.scope.partition(":")[2]
        return int(number) if number else None

    @property
    def step_size(self) -> float:
        """Return the learning rate, the paper's where none was given."""
        if self.learning_rate is not None:
            return self.learning_rate
        return FULL_LEARNING_RATE if self.kind == "full" else LORA_LEARNING_RATE
