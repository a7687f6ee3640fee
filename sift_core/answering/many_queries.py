"""Several queries' adapters learned together: one forward pass, a row and an adapter a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from sift_core.answering.adapters import AdapterLayout
from sift_core.answering.fine_tuning import (
    FineTuned,
    Run,
    Step,
    failures_named,
    plan,
)
from sift_core.answering.hooks import LoraPair, pairs_in_force
from sift_core.answering.language_model import LanguageModel
from sift_core.answering.learners import LoraLearner
from sift_core.answering.model_parts import ModelParts
from sift_core.answering.out_of_memory import MEMORY_ERRORS, is_out_of_memory
from sift_core.answering.passes import Passes, WeightedWindow
from sift_core.answering.settings import FineTuningSettings
from sift_core.errors import AnswerError, InvalidInputError, MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error


def adapt_many(
    language_model: LanguageModel,
    texts: Sequence[Sequence[str]],
    settings: FineTuningSettings | None = None,
) -> list[FineTuned]:
    """Return what `fine_tune` returns for each query, learned in common passes.

    A pass has one row a query, padded to the longest, and each row its own A and B. It pays
    where a row alone leaves the machine idle: short chunks, and GPUs. Losses equal those of one
    query after another up to rounding (2e-6 in float32), since padding alters the order of sums.

    Args:
        language_model: The model to learn with.
        texts: For each query what to learn, in order.
        settings: The paper's if None. The scope must be "all". `rows_per_pass` is how many queries
            share a pass; all of them if None, halved where memory runs out.

    Raises:
        AnswerError: If the model fails, or memory runs out with one query a pass.
        InvalidInputError: If the scope is another, or rows cannot be told apart in this model.
    """
    settings = settings or FineTuningSettings()
    if settings.kind != "all":
        raise InvalidInputError(
            f'`scope` must be "all" for several queries at once, got {settings.scope!r}; use '
            f"`fine_tune` for one after another"
        )
    queries = []
    for chunks in texts:
        steps, n_skipped = plan(language_model, chunks, settings)
        with language_model.turns.taken(), failures_named():
            learner = LoraLearner(
                language_model.model, settings, language_model.activations, language_model.name
            )
        run = Run(language_model=language_model, learner=learner, settings=settings)
        queries.append(_Query(steps=steps, n_skipped=n_skipped, learner=learner, run=run))
    with language_model.turns.taken(), failures_named():
        batch = _Batch(language_model, settings, queries)
    for n in range(max((len(query.steps) for query in queries), default=0)):
        active = [query for query in queries if n < len(query.steps) and not query.run.is_over()]
        with language_model.turns.taken(), failures_named():
            losses = batch.backward(active, n)
            for query, loss in zip(active, losses, strict=True):
                query.run.settle(query.steps[n], loss)
    for query in queries:
        query.run.end(query.steps)
        query.run.rows_per_pass = batch.rows_per_pass
        with failures_named():
            query.learner.live_in(query.learner.values.clone())  # let go of the others' values
    return [query.run.result(n_skipped=query.n_skipped, key=uuid4().hex) for query in queries]


_NONE = torch.empty(0)  # where there is no query


class _Query:
    """What belongs to one query."""

    row: int  # of the tensor that has the values of all

    def __init__(
        self, *, steps: Sequence[Step], n_skipped: int, learner: LoraLearner, run: Run
    ) -> None:
        self.steps, self.n_skipped, self.learner, self.run = steps, n_skipped, learner, run


class _Batch:
    """Passes that several queries share."""

    def __init__(
        self,
        language_model: LanguageModel,
        settings: FineTuningSettings,
        queries: Sequence[_Query],
    ) -> None:
        self._model, self._parts = language_model.model, language_model.parts
        self._alpha = settings.alpha
        self._passes = Passes(model=self._model, parts=self._parts, kept=language_model.activations)
        self._checkpointing = settings.checkpointing
        self.rows_per_pass = settings.rows_per_pass or max(1, len(queries))
        with torch.inference_mode(False), torch.no_grad():
            self._values = torch.stack([query.learner.values for query in queries] or [_NONE])
        for row, query in enumerate(queries):
            query.row = row
            query.learner.live_in(self._values[row])

    def backward(self, queries: Sequence[_Query], n: int) -> list[float]:
        """Add the gradient of step `n` to each query's; return their losses."""
        losses = dict.fromkeys(queries, 0.0)
        for k in range(max((len(query.steps[n].rows) for query in queries), default=0)):
            waiting = [query for query in queries if k < len(query.steps[n].rows)]
            while waiting:
                together = waiting[: self.rows_per_pass]
                try:
                    parts = self._pass(together, [query.steps[n].rows[k] for query in together])
                except MEMORY_ERRORS as error:
                    if not is_out_of_memory(error):
                        raise
                    if len(together) == 1:
                        raise AnswerError(
                            "memory ran out while fine-tuning one query of several; use "
                            "`fine_tune`, which knows how to do with less"
                        ) from error
                    self.rows_per_pass = len(together) // 2
                    continue
                for query, part in zip(together, parts, strict=True):
                    losses[query] += part
                waiting = waiting[len(together) :]
        return list(losses.values())

    def _pass(self, queries: Sequence[_Query], rows: Sequence[WeightedWindow]) -> list[float]:
        with torch.inference_mode(False), torch.no_grad():
            values = self._values
            if len(queries) < len(values):
                values = values[[query.row for query in queries]]
            layout = queries[0].learner.layout
            leaves = _StackedLeaves(layout, values.to(self._model.dtype), alpha=self._alpha)
        with pairs_in_force(leaves.by_module(self._parts), instead_of=self._parts.modules):
            losses = self._passes.backward(rows, checkpointing=self._checkpointing)
        for n, query in enumerate(queries):
            query.learner.add_gradient(leaves.gradient(n))
        return losses


class _StackedLeaves:
    """A and B of every layer and query as autograd sees them, views of `values`, (rows, n)."""

    def __init__(self, layout: AdapterLayout, values: torch.Tensor, *, alpha: float) -> None:
        self._scale = alpha / layout.rank
        self._leaves = {
            name: tuple(
                values.as_strided(
                    (len(values), *piece.shape),
                    (values.stride(0), *piece.stride()),
                    piece.storage_offset(),
                ).requires_grad_()
                for piece in pair
            )
            for name, pair in layout.pairs(values[0]).items()
        }

    def by_module(self, parts: ModelParts) -> dict[Any, LoraPair]:
        """Return layer → what is computed with."""
        return {
            parts.module(name): LoraPair(a=a, b=b, scale=self._scale)
            for name, (a, b) in self._leaves.items()
        }

    def gradient(self, n: int) -> torch.Tensor:
        """Return the gradient of the n-th query, shape (n_values,), float32."""
        pieces = [
            leaf[n].detach().new_zeros(leaf[n].numel())
            if leaf.grad is None
            else leaf.grad[n].flatten()
            for pair in self._leaves.values()
            for leaf in pair
        ]
        return torch.cat(pieces).float()
