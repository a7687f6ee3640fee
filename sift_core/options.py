"""What a choice obeys: one object for `choose`, the engine, plugins, command line and service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from inspect import getdoc
from typing import Any, TypedDict

from sift_core.checks import as_count, as_number, check_flag, check_text, short_repr
from sift_core.dates import by_date
from sift_core.errors import InvalidInputError
from sift_core.protocols import Selector
from sift_core.selection.limits import takes
from sift_core.selection.preferences import Preferences
from sift_core.types import CandidatePool, FloatArray

# `ChoiceOptions` is public in `sift_core`.
__all__ = ["SAME_COUNTS", "ChoiceKeywords", "unknown_option"]

SAME_COUNTS = (
    ("n_select", "top_n", "top_k", "k"),
    ("n_candidates", "candidates", "fetch_k", "similarity_top_k"),
)
"""Names of the number of chosen chunks, and of candidates, here and in the frameworks."""

_BOUNDS = ("above", "minimum", "maximum")


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """What a choice obeys.

    Flags of the command line, fields of HTTP bodies and arguments of the plugins are made from
    these fields. Their help is the text below.

    Args:
        n_select: Choose at most this many chunks, >= 1. Default: 10.
        n_candidates: Fetch this many candidates to choose from, >= 1. Default: 200.
        words: How much words count beside embeddings in what makes chunks relevant, from 0 to 1.
            Words that are rare among the candidates count most. Relevance spreads along them. With
            0, embeddings alone decide. Default: 0.7.
        hops: How often more candidates are fetched for what the first choices lead to, 0 or 1.
            Needs `words` and a source that keeps words, else nothing more is fetched. Default: 1.
        max_tokens: Let the chosen chunks have at most this many tokens together, >= 1. No text is
            truncated: of the chunks that still fit, the one that adds most for its length is
            next. Default: no limit.
        max_per_document: Choose at most this many chunks of one document, >= 1. Default: no limit.
        newest: Metadata key of a date: ISO 8601 text, a year, or seconds since 1970. Of
            near-duplicates the newest is chosen, unless the question names another by its year,
            version or title. A chunk without a date counts as the oldest. Default: the most
            relevant is chosen.
        half_life_days: Let a chunk count half as much when it is this many days older than the
            newest candidate, > 0. Needs `newest`. Default: age matters among near-duplicates alone.
        merge_neighbors: Join chosen chunks of one document that are adjacent or one candidate
            apart. Needs start offsets in the metadata; limits count the chunk between.
            Default: off.
        document_key: Metadata key that names a chunk's document. A chunk without it is a document
            of its own. Default: the first of "source", "file_path", "path", "file_name" and "url".
        count_tokens: Function that counts the tokens of a text. Default: the tokens of the model
            that reads the chunks, if there is one, else an estimate near the most that any BPE
            tokenizer counts. Models with many languages count fewer outside English.
        selector: What chooses. Limits need `ContextSelector` or `SIFTSelector`, dates
            `ContextSelector`. Default: `ContextSelector()`.

    Raises:
        InvalidInputError: If a value is out of its range, or the selector cannot obey a rule.

    Example:
        >>> options = ChoiceOptions(n_select=2, max_tokens=30)
        >>> search(source, query, options).chunks.document_ids
        ('prices', 'timetable')
    """

    n_select: int = field(default=10, metadata={"minimum": 1})
    n_candidates: int = field(default=200, metadata={"minimum": 1})
    words: float = field(default=0.7, metadata={"minimum": 0, "maximum": 1})
    hops: int = field(default=1, metadata={"minimum": 0, "maximum": 1})
    max_tokens: int | None = field(default=None, metadata={"minimum": 1, "is_rule": True})
    max_per_document: int | None = field(default=None, metadata={"minimum": 1, "is_rule": True})
    newest: str | None = field(default=None, metadata={"is_rule": True})
    half_life_days: float | None = field(default=None, metadata={"above": 0, "is_rule": True})
    merge_neighbors: bool = field(default=False, metadata={"is_rule": True})
    document_key: str | None = None
    count_tokens: Callable[[str], int] | None = field(default=None, metadata={"is_live": True})
    selector: Selector | None = field(default=None, metadata={"is_live": True})

    def __post_init__(self) -> None:
        for one in fields(self):
            if (value := getattr(self, one.name)) is not None or one.default is not None:
                _check(one, value)
        if self.half_life_days is not None and self.newest is None:
            raise InvalidInputError(
                "`half_life_days` needs `newest`, the metadata key of a date; pass both"
            )
        if self.selector is None:
            return
        if self.max_tokens is not None or self.max_per_document is not None:
            able = "ContextSelector's and SIFTSelector's do"
            _check_takes(self.selector, "limits", "a limit on tokens or documents", able)
        if self.newest is not None:
            what = "the newest version, or recency,"
            _check_takes(self.selector, "preferences", what, "ContextSelector's does")

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the names of the rules that are in force, which some methods cannot obey."""
        return tuple(
            one.name
            for one in fields(self)
            if one.metadata.get("is_rule") and getattr(self, one.name) != one.default
        )

    def newness(self, pool: CandidatePool) -> FloatArray | None:
        """Return which candidates `OversamplingSource` should prefer, shape (n,).

        Seconds since 1970 where `newest` is given; None otherwise.
        """
        dated = self.dated(pool, n_known=len(pool))  # the choice will warn of them
        return None if dated is None else dated.prefer

    def dated(self, pool: CandidatePool, *, n_known: int = 0) -> Preferences | None:
        """Return the preferences by `newest` and `half_life_days`; None without `newest`.

        Args:
            pool: The candidates.
            n_known: As for `by_date`. Default: 0.
        """
        if self.newest is None:
            return None
        if not any(self.newest in one for one in pool.metadata) and any(pool.metadata):
            n_known = len(pool)  # `choose` warns of the key
        return by_date(
            [one.get(self.newest) for one in pool.metadata],
            half_life_days=self.half_life_days,
            n_known=n_known,
            document_ids=pool.document_ids,
        )


class ChoiceKeywords(TypedDict, total=False):
    """`ChoiceOptions` by name, for editors and type checkers: what a callable takes as `**options`.

    How many chunks are chosen and fetched is missing, since frameworks have their own words for it.

    Example:
        >>> from typing_extensions import Unpack
        >>> def ranked(top_k: int, **options: Unpack[ChoiceKeywords]) -> ChoiceOptions:
        ...     return ChoiceOptions(n_select=top_k, **options)
        ...
        >>> ranked(5, max_tokens=2000).max_tokens
        2000
    """

    words: float
    hops: int
    max_tokens: int | None
    max_per_document: int | None
    newest: str | None
    half_life_days: float | None
    merge_neighbors: bool
    document_key: str | None
    count_tokens: Callable[[str], int] | None
    selector: Selector | None


def _check(option: Field[Any], value: object) -> None:
    """Refuse a value that is of another kind than the option's, or out of its range.

    Raises:
        InvalidInputError: If so.
    """
    name, kind = option.name, str(option.type)
    if kind.startswith("bool"):
        check_flag(name, value)
    elif kind.startswith("str"):
        check_text(name, value)
    elif kind.startswith("int"):
        as_count(name, value, **_bounds_of(option))
    elif kind.startswith("float"):
        as_number(name, value, **_bounds_of(option))
    elif name == "selector" and not isinstance(value, Selector):
        raise InvalidInputError(f"`selector` must have a method `select`, got {short_repr(value)}")
    elif name == "count_tokens" and not callable(value):
        raise InvalidInputError(f"`count_tokens` must be a function, got {short_repr(value)}")


def _check_takes(selector: Selector, name: str, what: str, able: str) -> None:
    if not takes(selector, name):
        raise InvalidInputError(
            f"{what} needs a selector whose `select` takes `{name}`, as {able}; got "
            f"{type(selector).__name__}"
        )


def _bounds_of(option: Field[Any]) -> dict[str, Any]:
    return {key: option.metadata[key] for key in _BOUNDS if key in option.metadata}


def unknown_option(owner: str, name: str, known: Iterable[str]) -> str:
    """Return a message that there is no such option, with the one that is probably meant.

    Args:
        owner: Class whose options they are.
        name: The option that there is none of.
        known: Names of its options.

    Example:
        >>> unknown_option("SIFTReranker", "top_k", ["newest", "top_n"])
        "SIFTReranker has no option 'top_k'; do you mean `top_n`?"
    """
    there = sorted(known)
    alike = [one for same in SAME_COUNTS if name in same for one in there if one in same]
    alike = alike or get_close_matches(name, there, n=1, cutoff=0.7)
    advice = f"do you mean `{alike[0]}`?" if alike else f"there are {', '.join(there)}"
    return f"{owner} has no option {name!r:.80}; {advice}"


@cache
def help_of(name: str) -> str:
    """Return the help of one option: its entry in the docstring of `ChoiceOptions`, in one line.

    Empty where Python runs without docstrings (-OO).
    """
    arguments = (getdoc(ChoiceOptions) or "").partition("Args:\n")[2].partition("\nRaises:")[0]
    entry = re.search(rf"^    {name}: ((?:.+\n?)(?: {{8}}.+\n?)*)", arguments, re.MULTILINE)
    return " ".join(entry[1].split()) if entry else ""
