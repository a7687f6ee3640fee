"""A sample of each attack, with a seed that stays; `python -m tests.attacks` tries more."""

import sys

import pytest

from tests.attacks.frame import KINDS, attacks, outcome


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits what a process may take")
@pytest.mark.parametrize("kind", KINDS)
def test_the_promises_hold_under_attack(kind):
    told = {name: outcome(attack, seed=1) for name, attack in attacks([kind]).items()}
    assert {name: what for name, what in told.items() if what} == {}
