"""Odd selections and arguments: a right choice, or an error of ours."""

import inspect

import numpy as np
import torch

from sift_core import selection as library
from sift_core.answering import (
    AdapterCache,
    AnswerEngine,
    FineTuningSettings,
    LanguageModel,
    VariancePolicy,
)
from sift_core.documents import Chunker
from sift_core.errors import InvalidInputError, NumericalError, SiftError
from sift_core.selection import ContextSelector, LinearKernel, RBFKernel, SIFTSelector, select
from sift_core.sources import InMemorySource
from sift_core.sources.oversampling import OversamplingSource
from sift_core.testing import HashingEmbedder
from sift_core.types import Query
from tests.answering.shapes import SHAPES, byte_tokenizer
from tests.answering.test_isolation import pool_about
from tests.attacks.frame import Failed
from tests.selection.oracle import dense_greedy, under
from tests.selection.test_fuzz import NOT_ARRAYS, Fuzzer, assert_valid

ODD = [
    *(None, "x", "", b"x", object(), {}, [], (), {1}, [None], -1, 0, 2.5, 10**400, -(10**400)),
    *(float("nan"), float("inf"), -float("inf"), 1e-320, 1e308, 1j, True, np.float64(0), 2**63),
    *(np.array(2), np.array([1, 2]), np.array("x"), np.int8(-1), np.datetime64("2020-01-01")),
    *(torch.tensor(1.5, requires_grad=True), torch.tensor([1.0]), "\ud800", "a\0b", print, type),
]
ROWS = np.random.default_rng(0).standard_normal((9, 5))
TENSORS = [
    *(torch.tensor(ROWS, requires_grad=True), torch.tensor(ROWS).bfloat16()),
    *(torch.tensor(ROWS).half(), torch.tensor(ROWS).to_sparse(), torch.empty(9, 5, device="meta")),
]
SELECTORS = [getattr(library, name) for name in library.__all__ if name.endswith("Selector")]
SELECTORS = [made for made in SELECTORS if hasattr(made, "select") and inspect.isclass(made)]
MADE = [*SELECTORS, RBFKernel, LinearKernel, FineTuningSettings, VariancePolicy, Chunker]
MADE += [AdapterCache, HashingEmbedder]
SETTINGS = [(made, name) for made in MADE for name in inspect.signature(made).parameters]
GENERATION = ("num_beams", "temperature", "top_k", "top_p", "repetition_penalty", "do_sample")
ASKED = ("mode", "max_new_tokens", "stop", "history", "n_context", "n_steps", *GENERATION)
CALLS = {
    "select(…, it)": lambda it: select(ROWS[0], it, 3),
    "select(it, …)": lambda it: select(it, ROWS, 3),
    "n_select": lambda it: select(ROWS[0], ROWS, it),
    "noise_variance": lambda it: select(ROWS[0], ROWS, 3, noise_variance=it),
    "relevance": lambda it: ContextSelector().select(ROWS[0], ROWS, 3, relevance=it),
    "posterior_variances": lambda it: library.posterior_variances(ROWS[0], it),
    "explain": lambda it: library.explain(ROWS[0], ROWS, it),
    "irreducible_variance": lambda it: library.irreducible_variance(ROWS[0], it),
    "length_scale": lambda it: library.selector_from_settings(length_scale=it),
    "kernel": lambda it: library.selector_from_settings(kernel=it),
    "embedding": lambda it: SOURCE.fetch(Query(text="?", embedding=it), 3),
    "fetch": lambda it: SOURCE.fetch(Query(text="?", embedding=ROWS[0]), it),
    "InMemorySource": lambda it: InMemorySource(it, ["a"] * 9),
    "OversamplingSource": lambda it: OversamplingSource(SOURCE, n_select=it),
    "split": lambda it: Chunker().split(it, format="text", document_id="a"),
}
SOURCE = InMemorySource(ROWS, [f"text {i}" for i in range(9)])


def selections(rng, folder):
    """Odd pools and settings, of which most are sound but for one thing."""
    fuzzer = Fuzzer(rng.getrandbits(32))
    for _ in range(60):
        kind = fuzzer.one_of(["paper", "context", "select"])
        query, candidates, dimension = fuzzer.pool(kind)
        settings = fuzzer.settings(kind)
        may_repeat = settings.get("allow_repeats", False)
        n_select, options = fuzzer.n_select(may_repeat), fuzzer.options(kind, candidates, dimension)
        try:
            if kind == "select":
                chosen = select(query, candidates, n_select, **settings)
            else:
                selector = (SIFTSelector if kind == "paper" else ContextSelector)(**settings)
                chosen = selector.select(query, candidates, n_select, **options)
            assert_valid(chosen, len(candidates), int(n_select), may_repeat)
        except (InvalidInputError, NumericalError):
            pass


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
        odd = rng.choice([*ODD, *NOT_ARRAYS, *TENSORS])
        if rng.random() < 0.5:
            (made, name) = rng.choice(SETTINGS)
            what, call = (
                f"{made.__name__}({name})",
                lambda it, made=made, name=name: made(**{name: it}),
            )
        else:
            what, call = rng.choice(list(CALLS.items()))
        refusal(what, odd, lambda it, call=call: chosen_by(call(it)))


def chosen_by(thing):
    """Choose by a selector or a kernel that could be made."""
    thing = SIFTSelector(kernel=thing) if hasattr(thing, "diagonal") else thing
    if type(thing) in SELECTORS:
        thing.select(ROWS[0], ROWS, 3)


def answers(rng, folder):
    """One odd argument to an engine, or to its answer."""
    model = LanguageModel(SHAPES["llama, tied head"](), byte_tokenizer())
    engine = {"language_model": model, "n_context": 1, "n_steps": 1, "max_new_tokens": 2}
    names = [
        name for name in inspect.signature(AnswerEngine).parameters if name != "language_model"
    ]
    name, is_engine = rng.choice(names), rng.random() < 0.3
    name = name if is_engine else rng.choice(ASKED)

    def answer(odd):
        made = AnswerEngine(**{**engine, **({name: odd} if is_engine else {})})
        asked = {"mode": "both", **({} if is_engine else {name: odd})}
        made.answer_from(made.choose_from(*pool_about("dogs"), **asked))

    refusal(name, rng.choice(ODD), answer)


def refusal(what, odd, call):
    try:
        call(odd)
    except SiftError:
        pass
    except Exception as error:
        shown = f"{type(odd).__name__} {str(odd)[:40]!r}"
        raise Failed(f"{what} = {shown}: {type(error).__name__}: {error}") from error


ATTACKS = {one.__name__: one for one in (selections, oracle, arguments, answers)}
