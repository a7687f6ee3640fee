"""A filter from conditions, for stores that hold metadata of any kind."""

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.sources.metadata_filters import filter_for


@pytest.mark.parametrize(
    "metadata",
    [{"year": np.array([2024, 2025])}, {"year": np.int64(2025)}, {"years": 1, "year": [2025]}],
    ids=["array", "number of NumPy", "list"],
)
def test_values_of_numpy_are_compared_as_plain_ones(metadata):
    assert filter_for(None, {"year": 2025})(metadata)
    assert not filter_for(None, {"year": 2023})(metadata)


@pytest.mark.parametrize("value", [1.5, None, [2025, 1.5], {"gte": 2025}], ids=str)
def test_a_value_of_another_kind_is_refused(value):
    with pytest.raises(InvalidInputError, match=r"must have texts, whole numbers .* for 'year'"):
        filter_for(None, {"year": value})
