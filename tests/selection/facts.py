"""Made-up facts about a query, told once or in many versions."""

import numpy as np

from tests.selection.oracle import unit

D = 96


def a_direction(seed=0):
    return unit(np.random.default_rng([seed, 7]).standard_normal(D))


def facts_about(query, n, seed=0):
    """Return n unit vectors at cosines of .7 down to .5 with the query, otherwise unlike."""
    rest = np.random.default_rng([seed, n]).standard_normal((n, D))
    rest -= np.outer(rest @ query, query)
    cosines = np.linspace(0.7, 0.5, n)[:, None]
    return cosines * query + (1 - cosines**2) ** 0.5 * unit(rest)


def copies_of(facts, n_copies, *, noise=0.15, seed=0):
    """Return every fact with some noise `n_copies` times, and the fact of each row."""
    fact = np.repeat(np.arange(len(facts)), n_copies)
    generator = np.random.default_rng([seed, n_copies])
    return unit(facts[fact] + noise * unit(generator.standard_normal((len(fact), D)))), fact
