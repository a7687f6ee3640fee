"""Sampling by a seed of one's own: distributed as a softmax, cut at top_p, and repeatable."""

import threading

import pytest
import torch

from sift_core import InvalidInputError
from sift_core.answering.model.generation_options import seeded

LOGITS = torch.tensor([[1.0, 0.0, 2.0, -1.0]])


def frequencies(n=4000, **options):
    """Return how often each token is drawn, by one processor called n times."""
    (processor,) = seeded(seed=0, **options)["logits_processor"]
    drawn = [int(processor(None, LOGITS).argmax()) for _ in range(n)]
    return torch.bincount(torch.tensor(drawn), minlength=4) / n


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_the_softmax_says(temperature):
    expected = torch.softmax(LOGITS[0] / temperature, dim=0)
    # four standard deviations of a share of 4,000 draws
    assert (frequencies(temperature=temperature) - expected).abs().max() < 4 * (0.25 / 4000) ** 0.5


@pytest.mark.parametrize("temperature", [1e-6, 1e-38, 1e-300, 5e-324])
def test_next_to_no_temperature_draws_the_likeliest(temperature):
    assert frequencies(n=20, temperature=temperature).tolist() == [0, 0, 1, 0]


def test_unlikely_tokens_are_cut():
    # the softmax is .24, .09, .64, .03: the two likeliest have .88
    assert (frequencies(top_p=0.8) > 0).tolist() == [True, False, True, False]


def test_the_same_seed_writes_the_same_text_beside_others(small_lm):
    def text(seed):
        return small_lm.generate("fold a", max_new_tokens=12, **seeded(seed=seed)).text

    alone = [text(seed) for seed in range(6)]
    beside = [""] * 6

    def write(seed):
        beside[seed] = text(seed)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == alone
    assert len(set(alone)) > 1


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"seed": -1}]
)
def test_numbers_must_be_in_their_range(options):
    with pytest.raises(InvalidInputError):
        seeded(**{"seed": 0, **options})
