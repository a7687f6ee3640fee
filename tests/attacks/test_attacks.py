"""A sample of each attack, with a seed that stays; `python -m tests.attacks` tries more."""

import sys

import pytest

from tests.attacks.frame import KINDS, attacks, outcome


def test_every_kind_has_attacks_that_say_what_they_do():
    found = attacks()
    assert {name.partition(".")[0] for name in found} == set(KINDS)
    assert all(attack.__doc__ for attack in found.values())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits what a process may take")
@pytest.mark.parametrize("kind", KINDS)
def test_the_promises_hold_under_attack(kind):
    told = {name: outcome(attack, seed=1) for name, attack in attacks([kind]).items()}
    assert {name: what for name, what in told.items() if what} == {}
