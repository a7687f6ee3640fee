"""Context distillation: the model that reads a chunk teaches the model that does not.

After Snell, Klein and Zhong (2022), "Learning by Distilling Context", arXiv 2209.15189, and
Eyuboglu et al. (2025), "Cartridges", arXiv 2506.06266. Questions and statements are about spans of
a chunk: names and numbers. The model writes some, rules make the others. With the chunk in its
prompt the model gives its likeliest tokens along a reply, and an adapter learns to give them
without the chunk. Decision 0038 has the figures.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.taught_window import TaughtWindow, taught_window
from sift_core.answering.model.text_model import CHUNK_SEPARATOR, Prompt
from sift_core.answering.model.training import TokenWindow
from sift_core.types import Message

N_QUESTIONS = 4  # of a chunk, that the model writes; half as many of each other kind
N_PASSES, LESSONS_PER_STEP = 2, 4  # decision 0038
MAX_NEW_TOKENS = 40  # of a question or statement
LEAST_SENTENCE = 10  # characters; guess: a shorter one is a heading or an entry of a list
SHORT = "Answer with a short phrase only."
_SENTENCE_END = re.compile(r"(?<=[a-z\d)][.!?])\s+|\n+")
_SPAN = re.compile(
    r"[A-Z][\w'\u2019.-]*\w(?: (?:(?:of|the|de|von) )?[A-Z][\w'\u2019-]+)*"  # a name
    r"|\d[\d,.]*\d|\d"
)
_EXAMPLE = "Mount Kenya: Its highest summit, Batian, has a height of 5,199 metres."
_EXAMPLE_QUESTIONS = {
    "Batian": "What is the highest summit of Mount Kenya called?",
    "5,199 metres": "How high is the highest summit of Mount Kenya?",
}


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A chunk, and what it is about: its title, or how it begins."""

    text: str
    subject: str

    @classmethod
    def of(cls, text: str, metadata: Mapping[str, Any]) -> Passage:
        """Return a chunk with the title that its metadata or else its first words give."""
        title = metadata.get("title")
        named = title if isinstance(title, str) and title.strip() else " ".join(text.split()[:6])
        return cls(text=text, subject=named.strip()[:200])


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A question or task about a passage, and the reply along which the teacher is followed."""

    prompt: str
    reply: str


def taught_windows(language_model: LanguageModel, passage: Passage) -> list[TaughtWindow]:
    """Return what the model that reads a passage teaches about it; none if it has no sentence.

    Costs a generation of six texts and a forward pass a lesson. A lesson that does not fit into the
    window beside the passage is left out.

    Raises:
        AnswerError: If the model fails.
    """
    windows = []
    for lesson in lessons_of(language_model, passage):
        window = taught_window(
            language_model,
            teacher_prompt=_reading(passage, lesson.prompt),
            prompt=lesson.prompt,
            reply=lesson.reply,
        )
        if window is not None:
            windows.append(window)
    return windows


def steps_of(windows: Sequence[TaughtWindow]) -> list[list[tuple[TokenWindow, float]]]:
    """Return the steps of two passes in random order; a lesson counts alike, however long."""
    generator = np.random.default_rng(0)
    order = np.concatenate([generator.permutation(len(windows)) for _ in range(N_PASSES)])
    parts = [
        [windows[i] for i in order[start : start + LESSONS_PER_STEP]]
        for start in range(0, len(order), LESSONS_PER_STEP)
    ]
    return [[(one, 1 / (len(one.targets) * len(part))) for one in part] for part in parts]


def lessons_of(language_model: LanguageModel, passage: Passage) -> list[Lesson]:
    """Return questions, gaps, sentences and statements about a passage, always the same."""
    draw = random.Random(passage.text)
    sentences = [one for one in _SENTENCE_END.split(passage.text) if len(one) >= LEAST_SENTENCE]
    spans = _spans(sentences)
    draw.shuffle(spans)
    draw.shuffle(sentences)
    half = N_QUESTIONS // 2
    to_ask, to_fill = spans[:N_QUESTIONS], spans[N_QUESTIONS:][:half] or spans[:half]
    gaps = [(span, _with_gap(sentence, span)) for span, sentence in to_fill]
    return [
        *_written(language_model, passage, to_ask, spans[:half]),
        *(
            Lesson(
                prompt=f"Fill in the blank. {passage.subject}: {gap}\n{SHORT}",
                reply=span,
            )
            for span, gap in gaps
        ),
        *(
            Lesson(
                prompt=f"What does the text on {passage.subject} say?",
                reply=f"The text says: {sentence}",
            )
            for sentence in sentences[:half]
        ),
    ]


def _spans(sentences: Sequence[str]) -> list[tuple[str, str]]:
    """Return each name and number, with the first sentence that has it.

    A single word that begins a sentence is a name only if it also stands within one.
    """
    inside = {m.group() for one in sentences for m in _SPAN.finditer(one) if m.start()}
    spans: dict[str, str] = {}
    for sentence in sentences:
        for found in _SPAN.finditer(sentence):
            span = found.group()
            if span in inside or " " in span or span[0].isdigit():
                spans.setdefault(span, sentence)
    return list(spans.items())


def _with_gap(sentence: str, span: str) -> str:
    """Return a sentence with a gap in place of a span. A gap for 9 leaves 1999 whole."""
    return re.sub(rf"(?<!\w){re.escape(span)}(?!\w)", "____", sentence)


def _written(
    language_model: LanguageModel,
    passage: Passage,
    to_ask: Sequence[tuple[str, str]],
    to_state: Sequence[tuple[str, str]],
) -> list[Lesson]:
    """Return the questions and statements that the model writes, in one batch."""
    tasks = [
        f"In one sentence, what does the text on {passage.subject} say about {span}?"
        for span, _ in to_state
    ]
    prompts: list[Prompt] = [
        *(_question_prompt(f"{passage.subject}: {sentence}", span) for span, sentence in to_ask),
        *(_reading(passage, task) for task in tasks),
    ]
    fitting = [
        language_model.n_prompt_tokens(prompt) + MAX_NEW_TOKENS <= language_model.window
        for prompt in prompts
    ]
    kept = [prompt for prompt, fits in zip(prompts, fitting, strict=True) if fits]
    written = iter(
        language_model.generate_batch(kept, max_new_tokens=MAX_NEW_TOKENS, stop=["\n"])
        if kept
        else []
    )
    texts = [next(written).text.strip() if fits else "" for fits in fitting]
    lessons = [
        Lesson(prompt=f"Question: {question}\n{SHORT}", reply=span)
        for (span, _), question in zip(to_ask, texts, strict=False)
        if question.endswith("?") and span.lower() not in question.lower()
    ]
    statements = zip(tasks, texts[len(to_ask) :], strict=True)
    return lessons + [Lesson(prompt=task, reply=text) for task, text in statements if text]


def _reading(passage: Passage, prompt: str) -> str:
    """Return the prompt of the model that reads, as mode "context" puts it."""
    return passage.text + CHUNK_SEPARATOR + prompt


def _question_prompt(source: str, answer: str) -> Prompt:
    """Return the chat that asks for a question, with two examples."""
    turns: list[Message] = []
    for text, span, question in [
        *((_EXAMPLE, span, question) for span, question in _EXAMPLE_QUESTIONS.items()),
        (source, answer, ""),
    ]:
        put = f'{text}\n\nWrite one question about this text whose answer is "{span}".'
        turns.append({"role": "user", "content": put})
        if question:
            turns.append({"role": "assistant", "content": question})
    return turns
