"""Ways to answer a question: an engine of ours, and what a user writes without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.fine_tuning_rivals import plain_peft
from sift_core import CandidateSource, Embedder
from sift_core.answering import AnswerEngine, LanguageModel, LearningOptions
from sift_core.answering.model.adapters import Adapter
from sift_core.types import FloatArray

N_NEW = 32  # tokens of an answer
Stages: TypeAlias = dict[str, float]  # seconds
Ask: TypeAlias = Callable[[str], Stages]
Search: TypeAlias = Callable[[FloatArray, int], Sequence[str]]  # (query's vector, n) → n texts


def engine_over(
    source: CandidateSource,
    model: LanguageModel,
    embedding: Embedder,
    adapter: Adapter | None = None,
) -> AnswerEngine:
    """Return an engine as it is by default, which keeps nothing and writes as many tokens."""
    return AnswerEngine(
        language_model=model,
        source=source,
        embedder=embedding,
        learning=LearningOptions(cache=None, adapter=adapter),
        generation={"max_new_tokens": N_NEW, "min_new_tokens": N_NEW},
    )


def ours(engine: AnswerEngine, **options: Any) -> Ask:
    """Return a call that answers in one mode."""

    def ask(question: str) -> Stages:
        first: list[float] = []
        answer = engine.answer(
            question, on_text=lambda _: first.append(time.perf_counter()), **options
        )
        stages = dict(answer.timings)
        writing = time.perf_counter() - first[0]  # after the first piece of the text
        stages["read"] = stages["generate"] - writing
        return {**stages, "generate": writing}

    return ask


def peft_script(search: Search, model: LanguageModel, embedding: Embedder, n: int) -> Ask:
    """Return a call of what a user writes without us: a LoRA learns the n nearest, then answers."""

    def ask(question: str) -> Stages:
        marks = [time.perf_counter()]

        def mark() -> None:
            marks.append(time.perf_counter())

        vector = np.asarray(embedding.embed_query(question), dtype=np.float32)
        mark()
        texts = search(vector, n)
        mark()
        with plain_peft(model, texts) as (learned, _):
            mark()
            learned.eval()
            plain_answer(learned, model.tokenizer, question)
            mark()
        names = ("embed", "fetch", "fine_tune", "generate")
        return dict(zip(names, np.diff(marks).tolist(), strict=True))

    return ask


def plain_answer(model: Any, tokenizer: Any, prompt: str) -> str:
    """Answer greedily, as the model's chat template puts it if there is one."""
    if tokenizer.chat_template is not None:
        messages = [{"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).to(model.device)
    with torch.inference_mode():
        written = model.generate(
            **given,
            max_new_tokens=N_NEW,
            min_new_tokens=N_NEW,
            do_sample=False,
            pad_token_id=tokenizer.eos_token_id,
        )
    return str(tokenizer.decode(written[0, given["input_ids"].shape[1] :]))
