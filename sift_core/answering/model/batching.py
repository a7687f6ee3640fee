"""Several prompts continued at once, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sift_core.answering.model.fair_lock import FairLock
from sift_core.answering.model.generation import Generation, TextWatcher
from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error


def generate_batch(
    model: Any,
    tokenizer: Any,
    prompts_ids: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop: Sequence[str] = (),
    pad_id: int | None = None,
    on_text: Callable[[int, str], object] | None = None,
    lock: FairLock | None = None,
    **options: Any,
) -> list[Generation]:
    """Return the continuation of each prompt, greedy unless `options` say otherwise.

    One call of the model's `generate` with the prompts padded at the left, out of the
    attention's sight: memory and time are those of the longest prompt, times their number.
    The logits of a row are those of its prompt alone up to rounding, since kernels add up
    other shapes in another order: in float32 a greedy text differs only where two tokens
    tie, in bfloat16 it may sooner. Sampled texts differ, since rows share a generator.
    Models with a recurrent state must mask padded inputs themselves.

    The caller holds the model, is in inference mode, and checks that prompts and answers fit
    into the window; errors of the model and of unknown options pass as they are.

    Args:
        model: A causal LM of transformers.
        tokenizer: The model's.
        prompts_ids: Tokens of each prompt, at least one.
        max_new_tokens: Length of each continuation at most, >= 1.
        stop: Texts that end a continuation; what is returned ends before them.
        pad_id: Fills what rows are shorter by; it is never seen, so any token will do. The
            tokenizer's padding or EOS token if None.
        on_text: Called with a prompt's position and each new piece of its text.
        lock: Of the model: held by others between two steps of all rows, and while `on_text` runs.
        **options: Passed to `transformers`' `generate` as they are; one continuation a prompt.

    Returns:
        In order of the prompts. A row that ended before others counts its own tokens only.

    Raises:
        InvalidInputError: If a prompt is empty, or several texts a prompt are asked for.
        ListenerError: If `on_text` raised; all rows end with it.
    """
    as_count("max_new_tokens", max_new_tokens, minimum=1)
    sizes = [len(ids) for ids in prompts_ids]
    if not all(sizes):
        raise InvalidInputError(f"prompt {sizes.index(0)} has no tokens; each needs at least one")
    if (options.get("num_return_sequences") or 1) != 1:
        raise InvalidInputError("a batch has one text a prompt; drop `num_return_sequences`")
    if not sizes:
        return []
    width, device = max(sizes), model.device
    pad = _padding(tokenizer, pad_id)
    lock = lock or FairLock()
    watchers = [
        TextWatcher(
            tokenizer, n_prompt_tokens=size, stop=stop, on_text=_listener(on_text, row, lock)
        )
        for row, size in enumerate(sizes)
    ]
    settings = {"do_sample": False, "pad_token_id": pad, **options}
    ends = settings.get("eos_token_id", model.generation_config.eos_token_id)
    others = settings.pop("stopping_criteria", None) or ()
    rows = _RowWatcher(watchers, sizes=sizes, ends=ends, others=others, lock=lock)
    output = model.generate(
        torch.tensor(
            [[pad] * (width - len(ids)) + list(ids) for ids in prompts_ids], device=device
        ),
        attention_mask=torch.tensor([[0] * (width - n) + [1] * n for n in sizes], device=device),
        max_new_tokens=max_new_tokens,
        stopping_criteria=StoppingCriteriaList([rows]),
        **settings,
    )
    new_ids = getattr(output, "sequences", output)[:, width:].tolist()
    return [
        watcher.finished(ids[: rows.length(row, ids)], max_new_tokens=max_new_tokens, ends=ends)
        for row, (watcher, ids) in enumerate(zip(watchers, new_ids, strict=True))
    ]


class _RowWatcher(StoppingCriteria):
    """Ends each row where its watcher, a token or a criterion of the caller's ends it.

    A row that has ended is not read on: what `generate` fills it with may spell anything.

    Args:
        watchers: One a row.
        sizes: Tokens of each row's prompt, without padding.
        ends: The token or tokens that end a text, as `generate` knows them.
        others: Further criteria; each sees the padded rows.
        lock: Of the model: held by others between two steps.
    """

    def __init__(
        self,
        watchers: Sequence[TextWatcher],
        *,
        sizes: Sequence[int],
        ends: int | Sequence[int] | None,
        others: Sequence[StoppingCriteria],
        lock: FairLock,
    ) -> None:
        self._watchers = watchers
        self._width = max(sizes)
        self._padded = [self._width - size for size in sizes]
        self._ends = frozenset(ends if isinstance(ends, Sequence) else [ends])
        self._others = StoppingCriteriaList(others)
        self._lock = lock
        self._lengths: list[int | None] = [None] * len(watchers)

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **options: Any
    ) -> torch.BoolTensor:
        """Return whether each row is at its end."""
        n_rows = len(input_ids)
        self._lock.yield_to_waiting()
        is_over: Any = torch.zeros(n_rows, dtype=torch.bool, device=input_ids.device)
        if self._others:
            is_over |= self._others(input_ids, scores, **options)
        if n_rows != len(self._watchers):  # beams, which are not followed
            return is_over  # type: ignore[no-any-return]
        over = is_over.tolist()
        here: Any = input_ids.cpu()  # once a step, not once a row
        for row, watcher in enumerate(self._watchers):
            if self._lengths[row] is None:
                over[row] |= bool(watcher(here[row : row + 1, self._padded[row] :], scores))
                if over[row] or int(here[row, -1]) in self._ends:
                    self._lengths[row] = here.shape[1] - self._width
            over[row] = self._lengths[row] is not None
        return is_over.new_tensor(over)  # type: ignore[no-any-return]

    def length(self, row: int, new_ids: Sequence[int]) -> int:
        """Return how many of a row's new tokens the model wrote; what follows is padding."""
        known = self._lengths[row]
        if known is None:  # a row that ran to the end, or a beam
            known = next((i + 1 for i, token in enumerate(new_ids) if token in self._ends), None)
        return len(new_ids) if known is None else known


def _padding(tokenizer: Any, pad_id: int | None) -> int:
    known = (pad_id, tokenizer.pad_token_id, tokenizer.eos_token_id)
    return next((token for token in known if token is not None), 0)


def _listener(
    on_text: Callable[[int, str], object] | None, row: int, lock: FairLock
) -> Callable[[str], object] | None:
    if on_text is None:
        return None

    def listen(piece: str) -> None:
        with lock.released():
            on_text(row, piece)

    return listen
