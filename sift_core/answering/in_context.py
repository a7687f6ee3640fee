"""Answering with the chosen documents in the prompt: the baseline of retrieval."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from sift_core.answering.answer import Answer
from sift_core.answering.answer_spans import write_span, write_traced, written
from sift_core.answering.citing import citations_in
from sift_core.answering.cost_model import PolicyFeatures
from sift_core.answering.model.text_model import (
    CHUNK_SEPARATOR,
    Generation,
    Prompt,
    RawText,
    TextGenerator,
    TextModel,
    writing_model,
)
from sift_core.checks import as_count, check_flag, check_text
from sift_core.errors import InvalidInputError
from sift_core.explanation import question_variances
from sift_core.types import AnswerMode, CandidatePool, Message, Query

if TYPE_CHECKING:  # a server's model needs no torch
    from sift_core.answering.model.language_model import LanguageModel
    from sift_core.answering.model.prefix_cache import Prefix

LARGEST_COUNT = 1_000_000  # of documents, steps or tokens for one question
INSTRUCTION = (
    "Answer from the numbered texts above. After each statement put the number of the text that "
    "it is from, such as [1]."
)
_PLACE = re.compile(r"\{(?:context|question)\}")
_SOME_NUMBER = 10  # of a chunk, where its tokens are counted before it has one


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """How chunks and question are put.

    Args:
        cite: Number the chunks in the prompt, and ask the model for marks such as [1].
            `Answer.citations` has the marks that it wrote. Small models often write none or wrong
            ones. Default: False.
        system: A system message before all else. A history that begins with a system message
            keeps its own. Default: none.
        template: A text with the places "{context}" and "{question}"; other braces stay. Default:
            the chunks, a blank line, the question. A question without chunks stands alone.
        raw: Have the model continue chunks and question as one text, without a chat template.
            Default: False.

    Raises:
        InvalidInputError: If a text is empty, the template lacks a place, or `raw` goes with
            another option.

    Example:
        >>> from dataclasses import replace
        >>> prompt = PromptOptions(cite=True, system="Answer in one sentence.")
        >>> citing = replace(engine, prompt=prompt)
        >>> answer = citing.answer("When does the ferry sail?", mode="context")
        >>> cited = [answer.chunks.document_ids[citation.chunk] for citation in answer.citations]
    """

    cite: bool = False
    system: str | None = None
    template: str | None = None
    raw: bool = False

    def __post_init__(self) -> None:
        check_flag("cite", self.cite)
        check_flag("raw", self.raw)
        if self.raw and (self.cite or self.system is not None or self.template is not None):
            raise InvalidInputError(
                "`raw` has a text continued as it stands; leave out `cite`, `system` and `template`"
            )
        for name in ("system", "template"):
            if (text := getattr(self, name)) is not None:
                check_text(name, text)
                if not text.strip():
                    raise InvalidInputError(f"`{name}` is empty; leave it out for none")
        if self.template is not None:
            missing = {"{context}", "{question}"} - set(_PLACE.findall(self.template))
            if missing:
                raise InvalidInputError(
                    f"`template` must have the places {{context}} and {{question}}, got none for "
                    f"{' and '.join(sorted(missing))}"
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class InContextAnswerer:
    """Puts whole chunks before the question, as many as the window holds.

    Chunks are joined by a blank line, as in the paper's in-context baseline, the first choice
    next to the question. A chunk that does not fit is left out and a shorter later one may take
    its place; a chunk that was chosen twice stands there once.

    Args:
        language_model: The model that answers.
        max_new_tokens: Length of an answer at most, in tokens, >= 1. Default: 64.
        generation: Passed to `transformers`' `generate` as it is, `stop`, texts that end an
            answer, and `chat_template_kwargs`. Default: greedy decoding, without thinking.
        prefix: What need not be read again, from `LanguageModel.read`. Default: none.
        generator: Writes the texts. Default: the language model itself.
        prompt: How chunks and question are put. Default: without numbers or messages.

    Raises:
        InvalidInputError: If `max_new_tokens` is out of its range.
    """

    language_model: TextModel
    max_new_tokens: int = 64
    generation: Mapping[str, Any] = field(default_factory=dict)
    prefix: Prefix | None = None
    generator: TextGenerator | None = None
    prompt: PromptOptions = field(default_factory=PromptOptions)

    def __post_init__(self) -> None:
        as_count("max_new_tokens", self.max_new_tokens, minimum=1, maximum=LARGEST_COUNT)

    @property
    def writer(self) -> TextModel:
        """The model whose window, tokens and options bound what is written."""
        return writing_model(self.language_model, self.generator)

    @property
    def can_learn(self) -> bool:
        """Whether whoever writes the texts does so with what is learned here."""
        return self.writer.takes_adapters

    @property
    def local_model(self) -> LanguageModel:
        """The language model, where it is in this process.

        Raises:
            InvalidInputError: If it is a server's.
        """
        if not self.language_model.takes_adapters:
            raise InvalidInputError(
                f"the model {self.language_model.name!r} is a server's, which neither learns nor "
                f"scores texts; pass a `LanguageModel` as `language_model`"
            )
        return cast("LanguageModel", self.language_model)

    def with_generation(self, **generation: Any) -> InContextAnswerer:
        """Return an answerer with other settings of generation.

        Args:
            **generation: `max_new_tokens`, `stop`, and what `transformers`' `generate` takes.

        Raises:
            InvalidInputError: If `max_new_tokens` is out of its range.
        """
        n_new = generation.pop("max_new_tokens", self.max_new_tokens)
        return replace(self, max_new_tokens=n_new, generation={**self.generation, **generation})

    def fit(self, chunks: CandidatePool, room: int) -> CandidatePool:
        """Return the distinct chunks that fit into `room` tokens, in order of choice."""
        kept: list[int] = []
        seen: set[str] = set()
        for position, text in enumerate(chunks.texts):
            size = self.size(text)
            if text in seen or size > room:
                continue
            seen.add(text)
            room -= size
            kept.append(position)
        return chunks.take(kept)

    def size(self, text: str) -> int:
        """Return how many tokens a chunk takes in the prompt, its blank line included."""
        as_read = _numbered(text, _SOME_NUMBER) if self.prompt.cite else text
        return self.writer.n_tokens(as_read + CHUNK_SEPARATOR)

    def context(self, chunks: CandidatePool) -> str:
        """Return the chunks as one text, the first choice last."""
        return CHUNK_SEPARATOR.join(chunks.texts[::-1])

    def prompt_for(self, query: Query, chunks: CandidatePool) -> Prompt:
        """Return the chunks and the question as one text, after what was said before."""
        text = self._put(self._as_read(chunks), query.text) if len(chunks) else query.text
        if self.prompt.raw:
            if query.history:
                raise InvalidInputError("a text that is continued has no history; leave it out")
            return RawText(text)
        history: tuple[Message, ...] = tuple(query.history)
        if self.prompt.system is not None and not (history and history[0]["role"] == "system"):
            history = ({"role": "system", "content": self.prompt.system}, *history)
        if not history:
            return text
        return [*history, {"role": "user", "content": text}]

    def _as_read(self, chunks: CandidatePool) -> str:
        """Return the chunks as the model reads them before a question."""
        if not self.prompt.cite:
            return self.context(chunks)
        texts = [_numbered(text, i + 1) for i, text in enumerate(chunks.texts)]
        return CHUNK_SEPARATOR.join([*texts[::-1], INSTRUCTION])

    def _put(self, context: str, question: str) -> str:
        if self.prompt.template is None:
            return context + CHUNK_SEPARATOR + question
        texts = {"{context}": context, "{question}": question}
        return _PLACE.sub(lambda place: texts[place.group()], self.prompt.template)

    def room_beside(self, query: Query) -> int:
        """Return how many tokens chunks may take beside question, answer and all put with them."""
        room = self.room(self.prompt_for(query, CandidatePool.empty()))
        around = [INSTRUCTION] if self.prompt.cite else []
        if self.prompt.template is not None:
            around.append(_PLACE.sub("", self.prompt.template))
        return room - sum(map(self.writer.n_tokens, around))

    def check(self, query: Query) -> None:
        """Refuse a question that does not fit into the window, before any work.

        Raises:
            InvalidInputError: If question and answer alone do not fit, or an option of generation
                cannot be used.
        """
        self.writer.check_generation(self.generation)
        prompt = self.prompt_for(query, CandidatePool.empty())
        template = self.generation.get("chat_template_kwargs")
        self.writer.check_prompt(prompt, self.max_new_tokens, template)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt, as the chat template spells it with these settings."""
        return self.local_model.prompt_ids(prompt, self.generation.get("chat_template_kwargs"))

    def n_prompt_tokens(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt takes."""
        template = self.generation.get("chat_template_kwargs")
        return self.writer.n_prompt_tokens(prompt, template)

    def room(self, prompt: Prompt) -> int:
        """Return how many tokens the window leaves beside `prompt` and answer; < 0: too long."""
        return self.writer.window - self.n_prompt_tokens(prompt) - self.max_new_tokens

    def features(
        self, query: Query, chosen: CandidatePool, lessons: CandidatePool
    ) -> PolicyFeatures:
        """Return the features of a question that a policy decides by, all but the time.

        Costs the tokens of the chunks, and two conditionings in the paper's setting.

        Args:
            query: The question.
            chosen: What was chosen for the prompt, in order.
            lessons: What would be learned from, in order, repeats included.
        """
        prompt = self.prompt_for(query, chosen.take([]))
        room = self.room_beside(query)
        read = self.fit(chosen, room)
        learned = question_variances(query, lessons.embeddings)
        variances_read = question_variances(query, read.embeddings)
        lengths = {text: self.language_model.n_tokens(text) for text in set(lessons.texts)}
        return PolicyFeatures(
            variance_before=float(learned[0]),
            variance_read=float(variances_read[-1]),
            variances_learned=tuple(learned[1:].tolist()),
            question_tokens=self.n_prompt_tokens(prompt),
            context_tokens=sum(map(self.size, set(chosen.texts))),
            read_tokens=sum(map(self.size, read.texts)),
            room=room,
            learn_tokens=tuple(lengths[text] for text in lessons.texts),
            max_new_tokens=self.max_new_tokens,
            can_learn=self.can_learn,
        )

    def answer(
        self,
        query: Query,
        chunks: CandidatePool,
        *,
        on_text: Callable[[str], object] | None = None,
    ) -> Answer:
        """Return the model's continuation of chunks and question.

        Args:
            query: The question, and what was said before it.
            chunks: What to read, in order of choice.
            on_text: Called with each piece of the text as it comes.

        Raises:
            InvalidInputError: If question and answer alone do not fit into the window.
            AnswerError: If the model fails.
        """
        started = time.perf_counter()
        used = self.used(query, chunks)
        generation = write_traced(
            self.generator or self.language_model,
            self.writer.name,
            self.prompt_for(query, used),
            max_new_tokens=self.max_new_tokens,
            on_text=on_text,
            prefix=self.prefix,
            **self.generation,
        )
        return self._answer(generation, used, time.perf_counter() - started)

    def answers(self, queries: Sequence[Query], chunks: CandidatePool) -> list[Answer]:
        """Return the answers to several questions over the same chunks, computed as one batch.

        A `generator` writes them one after another.

        Raises:
            InvalidInputError: If a question and its answer alone do not fit into the window.
            AnswerError: If the model fails.
        """
        if self.generator is not None or not self.can_learn:
            return [self.answer(query, chunks) for query in queries]
        started = time.perf_counter()
        used = [self.used(query, chunks) for query in queries]
        prompts = [self.prompt_for(query, read) for query, read in zip(queries, used, strict=True)]
        settings = {"max_new_tokens": self.max_new_tokens, **self.generation}
        with write_span(self.local_model, self.writer.name, prompts, settings) as span:
            generations = self.local_model.generate_batch(prompts, **settings)
            written(span, generations)
        seconds = time.perf_counter() - started
        return [
            self._answer(generation, read, seconds)
            for generation, read in zip(generations, used, strict=True)
        ]

    def used(self, query: Query, chunks: CandidatePool) -> CandidatePool:
        """Return the chunks that fit into the window beside question and answer."""
        used = self.fit(chunks, self.room_beside(query))
        # Tokens may join differently where chunks meet, so the sum of lengths is an estimate.
        while len(used) and self.room(self.prompt_for(query, used)) < 0:
            used = used.take(range(len(used) - 1))
        return used

    def bits_per_byte(self, text: str, chunks: CandidatePool, *, opening: str = "") -> float:
        """Return the code length of `text` after the chunks, in bits per byte.

        The chunks get what the text leaves of the window, and at least half of it: a
        longer text is scored in several windows, each of which begins with the chunks.

        Args:
            text: What to predict, not empty.
            chunks: What is read before it.
            opening: What stands between the two; it does not count.
        """
        check_text("opening", opening)
        check_text("text", text)
        context = self.context(self.fit(chunks, self.room_for_chunks(opening + text)))
        if not opening:
            return self.local_model.bits_per_byte(text, context=context)
        lead = self.local_model.lead_ids(context + CHUNK_SEPARATOR if context else "", opening)
        return self.local_model.bits_per_byte(text, lead=lead)

    def answer_bits_per_byte(self, query: Query, chunks: CandidatePool, answer: str) -> float:
        """Return the code length of an answer to a question, in bits per byte.

        Chunks and question are put as `answer` puts them.
        """
        check_text("answer", answer)
        n_tokens = max(1, self.language_model.n_tokens(answer))
        local = replace(self, generator=None, max_new_tokens=n_tokens)
        used = local.used(query, chunks)
        lead = self.prompt_ids(self.prompt_for(query, used))
        return self.local_model.bits_per_byte(answer, lead=lead)

    def room_for_chunks(self, text: str) -> int:
        """Return how many tokens `bits_per_byte` leaves to the chunks."""
        window = self.language_model.window
        return max(window - 1 - self.language_model.n_tokens(text), window // 2)

    def _answer(self, generation: Generation, used: CandidatePool, seconds: float) -> Answer:
        citations, unknown = citations_in(generation.text, used) if self.prompt.cite else ((), ())
        return Answer(
            **vars(generation),
            mode=AnswerMode.CONTEXT if len(used) else AnswerMode.BASE,
            chunks=used,
            n_read=len(used),
            timings={"generate": seconds},
            citations=citations,
            unknown_marks=unknown,
        )


def _numbered(text: str, number: int) -> str:
    """Return a chunk as it stands in the prompt."""
    return f"[{number}] {text}"
