"""What one call of the retriever asks for: settings, `search_kwargs` and the call's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sift_core import InvalidInputError

SHARED = ("k", "fetch_k", "filter")  # settings that `search_kwargs` may hold as well


@dataclass(frozen=True, kw_only=True, eq=False)
class CallSettings:
    """What one call asks for.

    Args:
        k: How many documents to choose at most, >= 1.
        fetch_k: How many candidates to fetch first, >= k.
        max_fetch_k: How many to fetch at most, >= fetch_k; None never fetches more.
        filter: The store's own kind of filter; None for no restriction.
        options: Further arguments in the store's own words.
    """

    k: int
    fetch_k: int
    max_fetch_k: int | None
    filter: Any
    options: Mapping[str, Any]

    def oversampling(self) -> dict[str, Any]:
        """Return the arguments of `sift_core.fetch_distinct` but source and query."""
        return {
            "n_candidates": self.fetch_k,
            "n_select": self.k,
            "filter": self.filter,
            "max_candidates": self.max_fetch_k,
        }


def call_settings(values: Mapping[str, Any]) -> CallSettings:
    """Return what `values` say, checked.

    Raises:
        InvalidInputError: If a number is out of its range.
    """
    options = dict(values)
    options.pop("verbose", None)  # meant for the callbacks; `invoke` does not take it out
    k, fetch_k = (_count(name, options.pop(name)) for name in ("k", "fetch_k"))
    if fetch_k < k:
        raise InvalidInputError(
            f"`fetch_k` must be >= `k`, got fetch_k={fetch_k} and k={k}; raise `fetch_k`, the "
            f"number of candidates to choose from"
        )
    most = options.pop("max_fetch_k")
    if most is not None and _count("max_fetch_k", most) < fetch_k:
        raise InvalidInputError(
            f"`max_fetch_k` must be >= `fetch_k`, got max_fetch_k={most} and fetch_k={fetch_k}; "
            f"it limits the first fetch too"
        )
    return CallSettings(
        k=k,
        fetch_k=fetch_k,
        max_fetch_k=None if most is None else int(most),
        filter=options.pop("filter"),
        options=options,
    )


def moved_search_kwargs(values: Any, defaults: Mapping[str, Any]) -> Any:
    """Return constructor arguments with what `search_kwargs` shares with them moved out of it.

    Anything else, such as a retriever that a model has as its field, is returned as it is.

    Args:
        values: What a constructor was given.
        defaults: Of the settings. One that is given at its default counts as left out:
            `configurable_fields` constructs anew with every field.

    Raises:
        InvalidInputError: If a setting is given in both places with different values.
    """
    search_kwargs = values.get("search_kwargs") if isinstance(values, dict) else None
    if not isinstance(search_kwargs, Mapping):
        return values
    shared = {name: search_kwargs[name] for name in SHARED if name in search_kwargs}
    for name, value in shared.items():
        given = values.get(name, defaults[name])
        if given is not value and given != defaults[name] and given != value:
            raise InvalidInputError(
                f"`{name}` is {given!r} and {value!r} in `search_kwargs`; pass it once"
            )
    rest = {name: value for name, value in search_kwargs.items() if name not in shared}
    return {**values, **shared, "search_kwargs": rest}


def _count(name: str, value: object) -> int:
    if not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(f"`{name}` must be an integer >= 1, got {value!r}")
    return int(value)
