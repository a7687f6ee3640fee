"""From chosen documents to what a policy decides by."""

from __future__ import annotations

from sift_core.answering.cost_model import CostModel
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.situation import Situation
from sift_core.selection import posterior_variances
from sift_core.types import CandidatePool, Query, Selection


def situation_of(
    answerer: InContextAnswerer,
    query: Query,
    pool: CandidatePool,
    *,
    read: Selection,
    learned: Selection,
    cost_model: CostModel | None,
    latency_s: float | None,
    n_questions: int,
) -> Situation:
    """Return all that is known about a question before the model runs.

    Costs the tokens of the chunks, and two conditionings in the paper's setting.

    Args:
        answerer: How the question will be put.
        query: The question.
        pool: Its candidates.
        read: What would go into the prompt.
        learned: What would be learned from, in order.
        cost_model: Seconds on this machine; None if they are not known.
        latency_s: How long the caller will wait; None if that is no matter.
        n_questions: How many questions one fine-tuning will serve.
    """
    prompt = answerer.prompt(query, pool.take([]))
    room = answerer.room(prompt)
    chunks = pool.take(read.positions)
    fitting = answerer.fitting(chunks, room)
    lessons = pool.take(learned.positions)
    lengths = {text: answerer.language_model.n_tokens(text) for text in set(lessons.texts)}
    learn_tokens = tuple(lengths[text] for text in lessons.texts)
    sizes = {text: answerer.size(text) for text in set(chunks.texts)}
    read_tokens = sum(sizes[text] for text in fitting.texts)
    variances = posterior_variances(query.embedding, lessons.embeddings)
    reading = posterior_variances(query.embedding, fitting.embeddings)
    question_tokens = len(answerer.language_model.prompt_ids(prompt))
    seconds = None
    if cost_model is not None:
        seconds = cost_model.predict(
            question_tokens=question_tokens,
            read_tokens=read_tokens,
            learn_tokens=learn_tokens,
            max_new_tokens=answerer.max_new_tokens,
        )
    return Situation(
        variance_before=float(variances[0]),
        variance_read=float(reading[-1]),
        variances_learned=tuple(float(variance) for variance in variances[1:]),
        question_tokens=question_tokens,
        context_tokens=sum(sizes.values()),
        read_tokens=read_tokens,
        room=room,
        learn_tokens=learn_tokens,
        max_new_tokens=answerer.max_new_tokens,
        latency_s=latency_s,
        seconds=seconds,
        n_questions=n_questions,
    )
