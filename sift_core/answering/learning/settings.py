"""How a model learns from chunks: the settings of one fine-tuning, and what came of it."""

from __future__ import annotations

import copy
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from sift_core.checks import as_count, as_number, check_text, short_repr
from sift_core.errors import InvalidInputError

DEFAULT_RANK, DEFAULT_ALPHA = 64, 16.0  # the paper's, appendix "Low-Rank Adaptation"
LORA_LEARNING_RATE = 5e-4  # the paper's, appendix "Low-Rank Adaptation"
FULL_LEARNING_RATE = 5e-5  # the paper's, section 5

ChunkFormat: TypeAlias = Literal["text", "chat"]
ScopeKind: TypeAlias = Literal["all", "top", "head", "full"]
Schedule: TypeAlias = Literal["constant", "linear"]


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings:
    """How one query's adapter learns. The defaults are the paper's.

    Args:
        lora: A `peft.LoraConfig`: rank, scaling (also rank-stabilised) and which linear layers
            (`target_modules`, `exclude_modules`, `layers_to_transform`), as PEFT reads them. What
            else PEFT can do, dropout for one, is refused. Rank 64 and alpha 16 on every linear
            layer in scope if None. Fused experts, which are no linear layers, stay as they are.
        learning_rate: Of Adam, > 0. The paper's if None: 5e-4 for a LoRA, 5e-5 for "full".
        schedule: Of the learning rate. "constant": the paper's. "linear": it falls with every step
            to a last one of 1 / N, N the steps that are planned.
        seed: Of the adapter's random half. The same seed gives the same answer.
        scope: What learns, of what `lora` names. "all": a LoRA on every linear layer but the
            head. "top:3": one on those of the last three layers; what the layers below make of a
            chunk is kept for the next time. "head": one on the output head, over kept hidden
            states. "full": every weight, in a private float32 copy of the model; `lora` has no
            part in it.
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

    lora: Any = None
    learning_rate: float | None = None
    schedule: Schedule = "constant"
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
        as_count("chunks_per_step", self.chunks_per_step, minimum=1)
        if self.rows_per_pass is not None:
            as_count("rows_per_pass", self.rows_per_pass, minimum=1)
        if as_count("seed", self.seed, minimum=0) >= 2**63:
            raise InvalidInputError(f"`seed` must be < 2**63, got {short_repr(self.seed)}")
        for name in ("learning_rate", "max_seconds"):
            if (value := getattr(self, name)) is not None:
                as_number(name, value, above=0)
        if not isinstance(self.scope, str) or not re.fullmatch(
            r"all|head|full|top:[1-9][0-9]*", self.scope
        ):
            raise InvalidInputError(
                f'`scope` must be "all", "top:k" with k >= 1, "head" or "full", got '
                f"{short_repr(self.scope)}"
            )
        for name, known in (("chunk_format", ChunkFormat), ("schedule", Schedule)):
            value = getattr(self, name)
            if not (isinstance(value, str) and value in get_args(known)):
                both = " or ".join(f'"{one}"' for one in get_args(known))
                raise InvalidInputError(f"`{name}` must be {both}, got {short_repr(value)}")
        check_text("chat_request", self.chat_request)
        if self.lora is not None:
            self._check_lora()

    def _check_lora(self) -> None:
        from sift_core.answering.model.lora_config import check_plain  # imports PEFT

        check_plain(self.lora, has_learned=False)
        object.__setattr__(self, "lora", copy.deepcopy(self.lora))  # nobody changes ours

    @property
    def rank(self) -> int:
        """Return the rank of every update."""
        return DEFAULT_RANK if self.lora is None else int(self.lora.r)

    @property
    def alpha(self) -> float:
        """Return the output scaling; the update is multiplied by alpha / rank."""
        if self.lora is None:
            return DEFAULT_ALPHA
        from sift_core.answering.model.lora_config import alpha_of

        return alpha_of(self.lora)

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

    def within(self, max_seconds: float | None) -> FineTuningSettings:
        """Return these settings with at most so many seconds; None for no further limit."""
        if max_seconds is None:
            return self
        return replace(self, max_seconds=min(max_seconds, self.max_seconds or max_seconds))

    def as_record(self) -> dict[str, Any]:
        """Return all settings in JSON's types, equal for equal settings."""
        record = asdict(replace(self, lora=None))
        record |= {"rank": self.rank, "alpha": self.alpha, "learning_rate": self.step_size}
        if self.lora is not None:
            for name in ("target_modules", "exclude_modules", "layers_to_transform"):
                named = getattr(self.lora, name, None)
                record[name] = sorted(named) if isinstance(named, set | list) else named
            record["layers_pattern"] = self.lora.layers_pattern
        return record

    @property
    def step_size(self) -> float:
        """Return the learning rate, the paper's where none was given."""
        if self.learning_rate is not None:
            return self.learning_rate
        return FULL_LEARNING_RATE if self.kind == "full" else LORA_LEARNING_RATE
