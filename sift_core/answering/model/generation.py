"""Prompts continued by a model, one or several at once, and their text while it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sift_core.answering.model.fair_lock import FairLock
from sift_core.answering.model.generation_options import ListenerError
from sift_core.answering.model.prompt_tokens import turn_ends
from sift_core.answering.model.text_model import Generation
from sift_core.answering.model.thoughts import BEGIN, END, split_thoughts
from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, MissingDependencyError

try:
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList
except ImportError as error:
    raise MissingDependencyError("torch and transformers", extra="fine-tune") from error

REPLACEMENT = "\ufffd"  # what a tokenizer decodes the first bytes of a character to
# Who sets one of these says by it how often a text may repeat itself, or how long it is.
_ON_REPETITION = frozenset(
    {"repetition_penalty", "no_repeat_ngram_size", "logits_processor"}
    | {"min_new_tokens", "min_length"}
)


SAID_AGAIN = 60  # characters that make a repetition, and a whole turn at least; a guess
_PASSAGE = re.compile(r"(?<=[.!?:]\s)|(?<=\n)")  # begins behind a sentence's end or a new line


def generate_batch(
    model: Any,
    tokenizer: Any,
    prompts_ids: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    pad_id: int,
    lock: FairLock,
    stop: Sequence[str] = (),
    on_text: Callable[[str], object] | None = None,
    **options: Any,
) -> list[Generation]:
    """Return the continuation of each prompt, greedy unless `options` say otherwise.

    One call of the model's `generate` with the prompts padded at the left, out of the
    attention's sight: memory and time are those of the longest prompt, times their number.
    The logits of a row are those of its prompt alone up to rounding: in float32 a greedy text
    differs only where two tokens tie, in bfloat16 it may sooner. Sampled texts differ, since rows
    share a generator. Models with a recurrent state must mask padded inputs themselves.

    A greedy text that repeats itself without end ends behind the first turn
    (`repetition_at_the_end`), unless `options` have a penalty on repetition, a `logits_processor`
    or a least length.

    The caller holds the lock, is in inference mode, and checks that prompts and answers fit
    into the window. Errors of the model and of unknown options pass as they are.

    Args:
        model: A causal LM of transformers.
        tokenizer: The model's.
        prompts_ids: Tokens of each prompt, at least one.
        max_new_tokens: As for `LanguageModel.generate`, like `stop`, `on_text` and `options`.
        pad_id: Fills what rows are shorter by; it is never seen, so any token will do.
        lock: Of the model: others have it between two steps, and while `on_text` runs.
        stop: Texts that end a continuation.
        on_text: For one prompt alone.
        **options: Of `transformers`' `generate`; one continuation a prompt.

    Raises:
        InvalidInputError: If a prompt is empty, or several texts a prompt are asked for.
        ListenerError: If `on_text` raised.
    """
    as_count("max_new_tokens", max_new_tokens, minimum=1)
    sizes = [len(ids) for ids in prompts_ids]
    if not all(sizes):
        raise InvalidInputError(f"prompt {sizes.index(0)} has no tokens; each needs at least one")
    if (options.get("num_return_sequences") or 1) != 1:
        raise InvalidInputError("there is one text a prompt; drop `num_return_sequences`")
    if not sizes:
        return []

    def listen(piece: str) -> None:
        with lock.released():
            on_text(piece)  # type: ignore[misc]  # not None where this is passed on

    width, device = max(sizes), model.device
    settings = {"do_sample": False, "pad_token_id": pad_id, **options}
    # Folders disagree: the end of a turn may stand in the settings, the tokenizer or the template.
    known, texts = turn_ends(tokenizer)
    stop = (*stop, *texts)
    ends = settings.get("eos_token_id", model.generation_config.eos_token_id)
    ends = frozenset(ends if isinstance(ends, Sequence) else [ends])
    unsaid = known
    if "eos_token_id" not in options:
        ends = unsaid = (ends | known) - {None}
        settings["eos_token_id"] = sorted(ends) or None
    rows = _Rows(
        [
            TextReader(
                tokenizer,
                n_prompt_tokens=size,
                stop=stop,
                ends_repetition=not settings["do_sample"] and _ON_REPETITION.isdisjoint(options),
                on_text=None if on_text is None else listen,
                is_open=tokenizer.decode(ids[-8:]).rstrip().endswith(BEGIN),
                unsaid=unsaid,
            )
            for size, ids in zip(sizes, prompts_ids, strict=True)
        ],
        width=width,
        ends=ends,
        others=settings.pop("stopping_criteria", None) or (),
        lock=lock,
    )
    padded = [[pad_id] * (width - len(ids)) + list(ids) for ids in prompts_ids]
    output = model.generate(
        torch.tensor(padded, device=device),
        attention_mask=torch.tensor([[0] * (width - n) + [1] * n for n in sizes], device=device),
        max_new_tokens=max_new_tokens,
        stopping_criteria=StoppingCriteriaList([rows]),
        **settings,
    )
    new_ids = getattr(output, "sequences", output)[:, width:].tolist()
    return rows.finished(new_ids, max_new_tokens=max_new_tokens)


class _Rows(StoppingCriteria):
    """Ends each row where its reader, a token or a criterion of the caller's ends it.

    A row that has ended is not read on: what `generate` fills it with may spell anything. Others
    have the model's lock between two steps.
    """

    def __init__(
        self,
        readers: Sequence[TextReader],
        *,
        width: int,  # tokens of each padded prompt
        ends: Collection[int | None],  # tokens that end a text, as `generate` knows them
        others: Sequence[StoppingCriteria],  # each sees the padded rows
        lock: FairLock,
    ) -> None:
        self._readers, self._width, self._ends = readers, width, ends
        self._others = StoppingCriteriaList(others)
        self._lock = lock
        self._lengths: list[int | None] = [None] * len(readers)

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **options: Any
    ) -> torch.BoolTensor:
        """Return whether each row is at its end."""
        self._lock.yield_to_waiting()
        is_over: Any = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        if self._others:
            is_over |= self._others(input_ids, scores, **options)
        if len(input_ids) != len(self._readers):  # beams, which are not followed
            return is_over  # type: ignore[no-any-return]
        over = is_over.tolist()
        here: Any = input_ids[:, self._width :].cpu()  # once a step, not once a row
        for row, reader in enumerate(self._readers):
            if self._lengths[row] is None:
                over[row] |= reader.is_needed and reader.read(here[row].tolist())
                if over[row] or int(here[row, -1]) in self._ends:
                    self._lengths[row] = here.shape[1]
            over[row] = self._lengths[row] is not None
        return is_over.new_tensor(over)  # type: ignore[no-any-return]

    def finished(
        self, new_ids: Sequence[Sequence[int]], *, max_new_tokens: int
    ) -> list[Generation]:
        """Return what each row wrote; what follows its end is padding."""
        generations = []
        for reader, ids, length in zip(self._readers, new_ids, self._lengths, strict=True):
            if length is None:  # a row that ran to the end, or a beam
                length = next((i + 1 for i, one in enumerate(ids) if one in self._ends), None)
            generations.append(
                reader.finished(ids[:length], max_new_tokens=max_new_tokens, ends=self._ends)
            )
        return generations


class TextReader:
    """Reads along while a model writes a text: passes it on, and tells where it is to stop.

    Text is held back while it may be the beginning of a stop string, of a character, or of a
    repetition, which is not closed before the same has been said again.
    Decodes all new tokens at each step: O(n²) in their number, small beside the model.

    Args:
        tokenizer: The model's.
        n_prompt_tokens: Tokens that are not the model's.
        stop: Texts that end the text; none of them empty.
        ends_repetition: Whether such a text ends behind the first turn of what it repeats.
        on_text: Called with each new piece.
        is_open: Whether the prompt has begun a thought. Default: False. Thoughts are known where
            the tokenizer has a chat template; no piece and no stop string is looked for in them.
        unsaid: Tokens that are no part of a text that they end. Default: none.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        n_prompt_tokens: int,
        stop: Sequence[str] = (),
        ends_repetition: bool = False,
        on_text: Callable[[str], object] | None = None,
        is_open: bool = False,
        unsaid: Collection[int | None] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._thinks, self._is_open = bool(getattr(tokenizer, "chat_template", None)), is_open
        added = {i: one.content for i, one in tokenizer.added_tokens_decoder.items()}
        # Decoded apart, since a special token would leave no text.
        self._marks = {i: word for i, word in added.items() if word in (BEGIN, END)}
        self._unsaid = unsaid
        self._n_prompt_tokens = n_prompt_tokens
        self._stop = tuple(stop)
        self._ends_repetition = ends_repetition
        self._on_text = on_text
        self._n_passed_on = 0

    @property
    def is_needed(self) -> bool:
        """Whether a text is to be read at all while it is written."""
        return bool(self._stop) or self._ends_repetition or self._on_text is not None

    def read(self, new_ids: Sequence[int]) -> bool:
        """Return whether the text of all new tokens has ended, after passing on what is certain.

        Raises:
            ListenerError: If `on_text` raised.
        """
        _, text, end = self._decoded(new_ids)
        self._pass_on(text[: self._n_certain(text) if end is None else end])
        return end is not None

    def finished(
        self, new_ids: Sequence[int], *, max_new_tokens: int, ends: Collection[int | None]
    ) -> Generation:
        """Return what was written in tokens, of `max_new_tokens`, after the rest was passed on.

        Raises:
            ListenerError: If `on_text` raised.
        """
        has_end = len(new_ids) > 0 and new_ids[-1] in ends
        thoughts, text, end = self._decoded(new_ids)
        text = text[:end]
        self._pass_on(text)
        is_short = len(new_ids) < max_new_tokens
        is_whole = end is not None or is_short or has_end
        return Generation(
            text=text,
            n_prompt_tokens=self._n_prompt_tokens,
            n_new_tokens=len(new_ids),
            finish_reason="stop" if is_whole else "length",
            thoughts=thoughts,
        )

    def _decoded(self, ids: Sequence[int]) -> tuple[str, str, int | None]:
        """Return thoughts, text, and where a stop string or second turn begins in it, if any."""
        if ids and ids[-1] in self._unsaid:
            ids = ids[:-1]
        text, begin = "", 0
        for i in [*(i for i, one in enumerate(ids) if one in self._marks), len(ids)]:
            text += self._tokenizer.decode(
                ids[begin:i], skip_special_tokens=True, clean_up_tokenization_spaces=False
            ) + (self._marks[ids[i]] if i < len(ids) else "")
            begin = i + 1
        thoughts = ""
        if self._thinks:
            thoughts, text = split_thoughts(text, is_open=self._is_open)
        found = [start for stop in self._stop if (start := text.find(stop)) >= 0]
        repetition = repetition_at_the_end(text) if self._ends_repetition else None
        if repetition is not None and repetition.is_closed:
            found.append(repetition.start)
        return thoughts, text, min(found, default=None)

    def _n_certain(self, text: str) -> int:
        """Return how many characters nothing that follows can take back."""
        certain = len(text.rstrip(REPLACEMENT))
        if self._thinks and BEGIN.startswith(text.strip()):
            return 0  # it may begin a thought
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(text)), 0, -1):
                if text.endswith(stop[:size]):
                    certain = min(certain, len(text) - size)
                    break
        repetition = repetition_at_the_end(text) if self._ends_repetition else None
        return certain if repetition is None else min(certain, repetition.start)

    def _pass_on(self, text: str) -> None:
        if self._on_text is not None and len(text) > self._n_passed_on:
            piece = text[self._n_passed_on :]
            self._n_passed_on = len(text)
            try:
                self._on_text(piece)
            except Exception as error:  # whatever it is, it is the listener's own
                raise ListenerError(error) from error


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The end of a text that says again what stands right before it.

    Args:
        start: Where the second turn begins; the text's length where it has no beginning.
        is_closed: Whether it is a repetition by now; if not, the text may still leave it.
    """

    start: int
    is_closed: bool


def repetition_at_the_end(text: str) -> Repetition | None:
    """Return how a text repeats itself at its end, as a small model's greedy text does, or None.

    Penalties on what was said before cure that at a price: those on the prompt's tokens too keep a
    model from using what it has read, those on its own spoil code.

    Sentences and lines are compared, of which the last may be unfinished. One without an end is
    compared by its characters. Takes O(n²) in the number of passages.
    """
    passages = [passage for passage in _PASSAGE.split(text) if passage]
    best = Repetition(start=len(text), is_closed=_turns(passages[-1]) if passages else False)
    for period in range(1, len(passages)):
        n = _n_again(passages, period)
        size = sum(map(len, passages[len(passages) - n :]))
        if n and len(text) - size < best.start:
            turn = passages[len(passages) - n - period : len(passages) - n]
            is_closed = size >= max(SAID_AGAIN, sum(map(len, turn))) and _says_something(turn)
            best = Repetition(start=len(text) - size, is_closed=best.is_closed or is_closed)
    return best if best.is_closed or best.start < len(text) else None


def _n_again(passages: list[str], period: int) -> int:
    """Return how many passages at the end are those that stand `period` before them."""
    if not passages[-1 - period].startswith(passages[-1]):
        return 0
    n = 1
    while n + period < len(passages) and passages[-1 - n] == passages[-1 - n - period]:
        n += 1
    return n


def _turns(passage: str) -> bool:
    """Return whether an unfinished passage repeats a part of itself, without end."""
    last = passage[-SAID_AGAIN:]
    before = passage.rfind(last, 0, len(passage) - 1)
    is_near = before >= len(passage) - 2 * SAID_AGAIN
    return len(last) == SAID_AGAIN and before >= 0 and is_near and _says_something([last])


def _says_something(passages: list[str]) -> bool:
    """Return whether there is a letter or a digit: a ruled line is no repetition."""
    return any(character.isalnum() for passage in passages for character in passage)
