"""The selection alone, by NumPy."""

import numpy as np

from sift_core import select

fact, second, third = np.eye(3)
candidates = np.array([fact, fact, second, third])
chosen = select(np.array([1.2, 1.1, 1.0]), candidates, n_select=3)
assert list(chosen.positions) == [0, 2, 3], chosen
