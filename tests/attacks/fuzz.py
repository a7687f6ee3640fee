"""Odd selections and arguments, concurrent answers: the right result, or an error of ours."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields

import numpy as np
import torch

import sift_core
from sift_core import ChoiceOptions, ContextSelector, LinearKernel, RBFKernel, SIFTSelector, select
from sift_core.answering import AnswerEngine, FineTuningSettings, LanguageModel, VariancePolicy
from sift_core.documents import Chunker
from sift_core.errors import SiftError
from sift_core.selection.select import selector_from_settings
from sift_core.sources import InMemorySource
from sift_core.testing import HashingEmbedder
from sift_core.types import Query
from tests.answering.plain_peft import assert_same_state, state_of
from tests.answering.shapes import SHAPES, byte_tokenizer
from tests.answering.test_isolation import FAST, ask, ask_awaiting, outcome, pool_about
from tests.attacks.frame import Failed
from tests.selection.oracle import dense_greedy, under
from tests.selection.test_fuzz import NOT_ARRAYS, Fuzzer, outcome_of

ODD = [
    *(None, "x", "", b"x", object(), {}, [], (), {1}, [None], -1, 0, 2.5, 10**400, -(10**400)),
    *(float("nan"), float("inf"), -float("inf"), 1e-320, 1e308, 1j, True, np.float64(0), 2**63),
    *(np.array(2), np.array([1, 2]), np.array("x"), np.int8(-1), np.datetime64("2020-01-01")),
    *(torch.tensor(1.5, requires_grad=True), torch.tensor([1.0]), "\ud800", "a\0b", print, type),
]
TOPICS = ("dogs", "cows", "hens", "the cat", "</s> <s>")
MODES = ("base", "context", "fine_tune", "both", "auto")
ROWS = np.random.default_rng(0).standard_normal((9, 5))
TENSORS = [
    *(torch.tensor(ROWS, requires_grad=True), torch.tensor(ROWS).bfloat16()),
    *(torch.tensor(ROWS).half(), torch.tensor(ROWS).to_sparse(), torch.empty(9, 5, device="meta")),
]
SELECTORS = [
    getattr(sift_core, name)
    for name in sift_core.__all__
    if name.endswith("Selector") and name != "Selector"
]
MADE = [*SELECTORS, RBFKernel, FineTuningSettings, VariancePolicy, Chunker, HashingEmbedder]
SETTINGS = [(made, name) for made in MADE for name in inspect.signature(made).parameters]
SETTINGS = [one for one in SETTINGS if one[1] not in ("folder", "size", "kernel", "lora")]
ASKED = ("mode", "stop", "history", "num_beams", "temperature", "top_k", "top_p", "do_sample")
CHOICE = tuple(one.name for one in fields(ChoiceOptions))
ENGINE = ("n_steps", "max_new_tokens", "generation")
CALLS = {
    "select(…, it)": lambda it: select(ROWS[0], it, 3),
    "select(it, …)": lambda it: select(it, ROWS, 3),
    "n_select": lambda it: select(ROWS[0], ROWS, it),
    "noise_variance": lambda it: select(ROWS[0], ROWS, 3, noise_variance=it),
    "relevance": lambda it: ContextSelector().select(ROWS[0], ROWS, 3, relevance=it),
    "posterior_variances": lambda it: sift_core.posterior_variances(ROWS[0], it),
    "explain": lambda it: sift_core.explain(ROWS[0], ROWS, it),
    "length_scale": lambda it: selector_from_settings(length_scale=it),
    "kernel": lambda it: selector_from_settings(kernel=it),
    "embedding": lambda it: SOURCE.fetch(Query(text="?", embedding=it), 3),
    "fetch": lambda it: SOURCE.fetch(Query(text="?", embedding=ROWS[0]), it),
    "InMemorySource": lambda it: InMemorySource(it, ["a"] * 9),
    "split": lambda it: Chunker().split(it, format="text", document_id="a"),
}
SOURCE = InMemorySource(ROWS, [f"text {i}" for i in range(9)])
select(ROWS[0], ROWS, 2)  # compiled here once for all


def selections(rng, folder):
    """Odd pools and settings, of which most are sound but for one thing."""
    fuzzer = Fuzzer(rng.getrandbits(32))
    for _ in range(60):
        outcome_of(fuzzer)


def oracle(rng, folder):
    """Random pools against the paper's formulas, computed from scratch."""
    draw = np.random.default_rng(rng.getrandbits(32))
    for _ in range(6):
        n, d, n_select = (int(draw.integers(1, most)) for most in (25, 12, 12))
        query, candidates = draw.standard_normal(d), draw.standard_normal((n, d)) + 0.3
        candidates = candidates[draw.integers(0, n, n)] if draw.random() < 0.3 else candidates
        noise, repeats = float(10 ** draw.uniform(-3, 1)), bool(draw.random() < 0.5)
        kernel, backend = rng.choice([LinearKernel(), RBFKernel()]), rng.choice(["numpy", "numba"])
        selector = SIFTSelector(**under(noise, kernel, allow_repeats=repeats, backend=backend))
        chosen = selector.select(query, candidates, n_select)
        _, expected = dense_greedy(kernel, noise, query, candidates, n_select, repeats)
        # Ties may be chosen otherwise; the variances are the same.
        if not np.allclose(chosen.variances, expected[: len(chosen) + 1], rtol=1e-7, atol=1e-8):
            raise Failed(f"{selector}: {chosen.variances} instead of {expected}")


def arguments(rng, folder):
    """One odd argument to what is public, fifty times."""
    for _ in range(50):
        odd, (made, name) = rng.choice([*ODD, *NOT_ARRAYS, *TENSORS]), rng.choice(SETTINGS)
        what, call = rng.choice([*CALLS.items(), *[(f"{made.__name__}({name})", made)] * 15])
        refused(what, odd, lambda: chosen_by(call(**{name: odd}) if call is made else call(odd)))  # noqa: B023


def chosen_by(thing):
    """Choose by a selector or a kernel that could be made."""
    thing = SIFTSelector(kernel=thing) if hasattr(thing, "diagonal") else thing
    if type(thing) in SELECTORS:
        thing.select(ROWS[0], ROWS, 3)


def answers(rng, folder):
    """One odd argument to an engine, or to its answer."""
    model, odd = LanguageModel(SHAPES["llama, tied head"](), byte_tokenizer()), rng.choice(ODD)
    of_engine = {"language_model": model, "n_steps": 1, "max_new_tokens": 2}
    of_choice = {"n_select": 1}
    asked, name = {"mode": "both"}, rng.choice((*ENGINE, *CHOICE, *ASKED))
    kept = of_choice if name in CHOICE else of_engine if name in ENGINE else asked
    kept[name] = odd

    def answer():
        engine = AnswerEngine(options=ChoiceOptions(**of_choice), **of_engine)
        engine.answer_from(engine.choose_from(*pool_about("dogs"), **asked))

    refused(name, odd, answer)


def refused(what, odd, call):
    """Call, and raise unless it works or raises an error of ours."""
    try:
        call()
    except SiftError:
        pass
    except Exception as error:
        shown = f"{type(odd).__name__} {str(odd)[:40]!r}"
        raise Failed(f"{what} = {shown}: {type(error).__name__}: {error}") from error


class Stop(Exception):
    """What a caller's own code raises."""


def concurrent(rng, folder):
    """Threads, tasks and streams at once, failed and cancelled ones among them."""
    shape = rng.choice(sorted(SHAPES))
    engine = AnswerEngine(
        language_model=LanguageModel(SHAPES[shape](), byte_tokenizer()),
        **{
            "options": ChoiceOptions(n_select=1),
            "n_steps": rng.randint(1, 4),
            "max_new_tokens": rng.randint(1, 6),
        },
        **{"settings": FAST, "adapter_cache": None},
    )
    before = state_of(engine.language_model)
    jobs = [(rng.choice(TOPICS), rng.choice(MODES)) for _ in range(rng.randint(2, 8))]
    alone = [ask(engine, job) for job in jobs]
    ways = [rng.choice(list(WAYS)) for _ in jobs]
    moments = [rng.randint(1, 3) for _ in jobs]
    with ThreadPoolExecutor(len(jobs)) as threads:
        together = threads.map(lambda way, *given: WAYS[way](engine, *given), ways, jobs, moments)
        for job, way, found, expected in zip(jobs, ways, together, alone, strict=True):
            if found is not None and found != expected:
                raise Failed(f"{shape}, {way} {job}: {found} instead of {expected}")
    if [ask(engine, job) for job in jobs] != alone:
        raise Failed(f"{shape}: answers differ afterwards")
    assert_same_state(engine.language_model, before)


def failing(engine, job, moment):
    def fail(_):
        nonlocal moment
        moment -= 1
        if moment == 0:
            raise Stop

    choice = engine.choose_from(*pool_about(job[0]), mode=job[1])
    with suppress(Stop):
        engine.answer_from(choice, on_step=fail, on_text=fail)


def cancelled(engine, job, moment):
    async def cancel():
        task = asyncio.ensure_future(ask_awaiting(engine, job))
        await asyncio.sleep(moment * 0.003)
        task.cancel()
        with suppress(asyncio.CancelledError):
            return await task

    return asyncio.run(cancel())


def streamed(engine, job, moment):
    with engine.stream_from(engine.choose_from(*pool_about(job[0]), mode=job[1])) as stream:
        for _ in stream:
            if moment == 1:
                return None
        return outcome(stream.answer())


WAYS = {
    "call": lambda engine, job, _: ask(engine, job),
    "await": lambda engine, job, _: asyncio.run(ask_awaiting(engine, job)),
    "fail": failing,
    "cancel": cancelled,
    "stream": streamed,
}
ATTACKS = (selections, oracle, arguments, answers, concurrent)
