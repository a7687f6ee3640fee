"""Sixteen answers of a random model over a small store in memory, for `engine_answers.json`.

On the CPU in float32, one thread: the same texts come again on one machine. Another one rounds
otherwise, and could write another token where two are almost equally likely.
All that is imported from the library is imported here once, so that a rename is mended in one line.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from peft import LoraConfig

from sift_core import ChoiceOptions, InMemorySource, NearestNeighborSelector
from sift_core.answering import (
    AnswerEngine,
    FineTuningSettings,
    LanguageModel,
    LearningOptions,
    VariancePolicy,
)
from sift_core.testing import HashingEmbedder
from tests.random_model import save_random_model

TOPICS = {
    "table": "The {verb} function of a table goes through its rows in order and returns a list "
    "with one dictionary a row, at most {n} of them. An empty table gives an empty list.",
    "archive": "To {verb} an archive, open the file for reading and name a folder. At most {n} "
    "members are written there; a member with an absolute path is left out.",
    "kettle": "A kettle that should {verb} water needs {n} minutes. The lid stays closed, and "
    "whoever opens it early waits longer than the one who reads a book meanwhile.",
    "river": "The river begins to {verb} after {n} days of rain. Ships then wait in the harbour, "
    "and the mills on its banks stand still until the water has fallen.",
}
VERBS = {
    "table": ("read", "copy", "sort", "count"),
    "archive": ("unpack", "list", "test", "extract"),
    "kettle": ("boil", "warm", "cool", "keep"),
    "river": ("rise", "flood", "fall", "freeze"),
}
TEXTS = [
    f"{verb.title()} the {topic}. " + text.format(verb=verb, n=n + 2)
    for topic, text in TOPICS.items()
    for n, verb in enumerate(VERBS[topic])
]
TEXTS += [TEXTS[0], TEXTS[5]]  # a corpus repeats itself
LONG = [f"{text} " * 8 for text in TEXTS]  # all of them do not fit into the window

ROWS = "How do I read the rows of a table?"
CLOSE = "Does the read function of a table return a list with one dictionary a row, in order?"
WATER = "How many minutes does a kettle need to boil water?"
ELSEWHERE = "Who painted yellow sunflowers?"
HISTORY = (
    {"role": "user", "content": "What does the archive do?"},
    {"role": "assistant", "content": "It holds members."},
)


LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def _lora(**options):
    return LoraConfig(r=8, lora_alpha=16, **{"target_modules": "all-linear", **options})


def _settings(**settings):
    return FineTuningSettings(**{"lora": _lora(), "learning_rate": 5e-3, **settings})


def _case(question, mode, *, texts="short", ask=None, options=None, **learning):
    about = {"question": question, "mode": mode, "texts": texts, "ask": ask or {}}
    return {**about, "options": options or ChoiceOptions(), "learning": learning}


CASES = {
    "rows, base": _case(ROWS, "base"),
    "rows, context": _case(ROWS, "context"),
    "rows, fine_tune": _case(ROWS, "fine_tune"),
    "rows, both": _case(ROWS, "both"),
    "water, base": _case(WATER, "base", ask={"max_new_tokens": 5}),
    "water, context": _case(WATER, "context", options=ChoiceOptions(n_select=2)),
    "water, both": _case(
        WATER,
        "both",
        settings=_settings(lora=_lora(target_modules=LINEAR, layers_to_transform=[1, 2])),
    ),
    "close, auto": _case(CLOSE, "auto"),
    "elsewhere, auto": _case(ELSEWHERE, "auto"),
    "long, context": _case(ROWS, "context", texts="long"),
    "long, both": _case(WATER, "both", texts="long", n_steps=2),
    "long, auto": _case(CLOSE, "auto", texts="long"),
    "rows, head": _case(
        ROWS, "fine_tune", settings=_settings(lora=_lora(target_modules=["lm_head"]))
    ),
    "rows, nearest, stop": _case(
        ROWS,
        "context",
        options=ChoiceOptions(selector=NearestNeighborSelector()),
        ask={"stop": [" count"]},
    ),
    "water, history, filter": _case(
        WATER, "context", ask={"history": HISTORY, "filter": lambda row: row["topic"] != "kettle"}
    ),
    "rows, few candidates, no repetition": _case(
        ROWS, "both", ask={"repetition_penalty": 1.3}, options=ChoiceOptions(n_candidates=6)
    ),
}


@contextmanager
def one_thread():
    """Compute on one thread: sums come in one order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def record():
    """Return all lines of `engine_answers.json`."""
    with TemporaryDirectory() as folder:
        place = save_random_model(Path(folder))
        language_model = LanguageModel.from_pretrained(place, device="cpu", dtype="float32")
    with one_thread():
        return {name: _answered(language_model, case) for name, case in CASES.items()}


def _answered(language_model, case):
    texts = LONG if case["texts"] == "long" else TEXTS
    embedder = HashingEmbedder()
    source = InMemorySource(
        embedder.embed_documents(texts),
        texts,
        document_ids=[f"d{i}" for i in range(len(texts))],
        metadata=[{"topic": topic} for topic in _topics()],
        embedder_name=embedder.name,
    )
    learning = {"n_steps": 4, "settings": _settings(), "cache": None, **case["learning"]}
    engine = AnswerEngine(
        policy=VariancePolicy(on_off_topic="base"),  # what a model writes is recorded
        query_rewriting=None,  # and what the bare question finds
        language_model=language_model,
        source=source,
        embedder=embedder,
        learning=LearningOptions(**learning),
        generation={"max_new_tokens": 12},
        options=case["options"],
    )
    answer = engine.answer(case["question"], mode=case["mode"], **case["ask"])
    ids = [] if answer.chunks is None else list(answer.chunks.document_ids)
    learned = answer.fine_tuning
    return {
        "mode": answer.mode.value,
        "text": answer.text,
        "ids": ids,
        "n_read": answer.n_read,
        "tokens": [answer.n_prompt_tokens, answer.n_new_tokens],
        "finish_reason": answer.finish_reason,
        "deviation": [round(answer.standard_deviation, 9)] if ids else [],
        "losses": [] if learned is None else [round(loss, 5) for loss in learned.losses],
    }


def _topics():
    topics = [topic for topic in TOPICS for _ in VERBS[topic]]
    return [*topics, topics[0], topics[5]]
