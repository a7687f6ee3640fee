"""What a choice must keep: so many tokens, so many chunks of one document, the newest version."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sift_core.checks import as_count, as_number, check_flag, check_text
from sift_core.dates import by_date
from sift_core.errors import InvalidInputError
from sift_core.passages import Passage, Place, passages_of, place_of, with_passages
from sift_core.protocols import Selector
from sift_core.selection.limits import LARGEST_BUDGET, check_takes_limits
from sift_core.selection.preference import check_takes_preference
from sift_core.types import CandidatePool, FloatArray, Metadata, Selection

# Where metadata names the document that a chunk is of: as `sift index` writes it, then as others.
DOCUMENT_KEYS = ("source", "file_path", "path", "file_name", "url")
CHARACTERS_A_TOKEN = 4  # about what tokenizers take of text that they know


@dataclass(frozen=True, kw_only=True)
class ChoiceRules:
    """What engine, service, command line and plugins are told of a choice, and pass on.

    Args:
        max_tokens: How many tokens the choices may have together, >= 1; None for any number.
        max_per_document: How many chunks of one document, >= 1; None for any number.
        newest: The metadata key of a date, as `by_date` reads them: of near-duplicates the newest
            is chosen. None for the most relevant.
        half_life_days: With `newest`, > 0: a candidate so many days older than the newest one
            counts half as much. None: age counts among near-duplicates alone.
        merge_neighbors: Whether chosen chunks of one document that touch, or have one other
            candidate between them, become one passage in reading order, where their metadata says
            at which character they start. `max_tokens` and `max_per_document` count the chunk
            between. None for no.

    Raises:
        InvalidInputError: If a number is out of its range, `newest` is no text, or
            `merge_neighbors` neither True nor False.
    """

    max_tokens: int | None = None
    max_per_document: int | None = None
    newest: str | None = None
    half_life_days: float | None = None
    merge_neighbors: bool | None = None

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_per_document"):
            if getattr(self, name) is not None:
                as_count(name, getattr(self, name), minimum=1)
        if self.half_life_days is not None:
            as_number("half_life_days", self.half_life_days, above=0)
        if self.newest is not None:
            check_text("newest", self.newest)
        if self.merge_neighbors is not None:
            check_flag("merge_neighbors", self.merge_neighbors)

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return any(getattr(self, one.name) not in (None, False) for one in fields(self))

    def check(self, selector: Selector | None) -> None:
        """Refuse rules that say nothing, and a selector that cannot keep them.

        Args:
            selector: What chooses; None for `ContextSelector`.

        Raises:
            InvalidInputError: If there is a half-life and no `newest`, or the selector's `select`
                lacks an argument.
        """
        if self.half_life_days is not None and self.newest is None:
            raise InvalidInputError(
                "`half_life_days` needs `newest`, the metadata key of a date; pass both"
            )
        if selector is None:
            return
        if self.max_tokens is not None or self.max_per_document is not None:
            check_takes_limits(selector)
        if self.newest is not None:
            check_takes_preference(selector)

    def on(
        self,
        texts: Iterable[str],
        metadata: Iterable[Metadata],
        *,
        count_tokens: Callable[[str], int],
        documents: Iterable[Hashable] | None = None,
    ) -> dict[str, Any]:
        """Return what a selector's `select` takes of these rules for n chunks; empty without any.

        Args:
            texts: n chunks as a model reads them; looked at for `max_tokens` alone.
            metadata: n mappings; looked at for dates, and for documents where these are not told.
            count_tokens: Counts those of a text; a text without any counts as one.
            documents: The file or page of each, by name; None for a chunk that is a document of
                its own. Looked at for `max_per_document` alone. What `document_of` says of the
                metadata if left out.
        """
        rules: dict[str, Any] = {}
        metadata = list(metadata) if self.newest or documents is None else ()
        if self.max_tokens is not None:
            rules["costs"] = [max(1, count_tokens(text)) for text in texts]
            rules["budget"] = min(self.max_tokens, LARGEST_BUDGET)
        if self.max_per_document is not None:
            names = map(document_of, metadata) if documents is None else documents
            rules["groups"] = [
                (row, None) if name is None else name  # a pair is nobody's name
                for row, name in enumerate(names)
            ]
            rules["max_per_group"] = self.max_per_document
        if self.newest is not None:
            rules |= by_date(self._dates(metadata), half_life_days=self.half_life_days)
        return rules

    def merged(
        self,
        pool: CandidatePool,
        selection: Selection,
        *,
        size: Callable[[int, str], int],
        places: Sequence[Place | None] | None = None,
        room: int | None = None,
        metadata_of: Callable[[Passage], Metadata] | None = None,
    ) -> tuple[CandidatePool, Selection]:
        """Return a choice with its neighbours merged; the same pool and choice without the rule.

        Args:
            pool: What was chosen from.
            selection: The choice.
            size: Tokens of a text in the place of a row's; asked only where there is a limit.
            places: Where the rows stand; what their metadata says if None.
            room: How many tokens there are if `max_tokens` does not say less; None for any number.
            metadata_of: As for `with_passages`.
        """
        if not self.merge_neighbors:
            return pool, selection
        if places is None:
            places = [place_of(document_of(one), one) for one in pool.metadata]
        limits = [limit for limit in (self.max_tokens, room) if limit is not None]
        passages = passages_of(
            pool.texts,
            places,
            selection.positions.tolist(),
            size=size,
            max_tokens=min(limits, default=math.inf),
            max_per_document=self.max_per_document or math.inf,
        )
        return with_passages(pool, selection, passages, metadata_of=metadata_of)

    def newness(self, metadata: Iterable[Metadata]) -> FloatArray | None:
        """Return what is to be preferred where a pool is thinned, shape (n,); None without it."""
        if self.newest is None:
            return None
        return by_date(self._dates(metadata), warns=False)["prefer"]

    def _dates(self, metadata: Iterable[Metadata]) -> list[object]:
        return [one.get(str(self.newest)) for one in metadata]


def document_of(metadata: Metadata) -> str | None:
    """Return which document a chunk is of: its file, page or address.

    None where its metadata has none of `DOCUMENT_KEYS`: it is a document of its own.
    """
    for key in DOCUMENT_KEYS:
        if isinstance(name := metadata.get(key), str) and name:
            return name
    return None


def token_counter(embedder: object) -> Callable[[str], int]:
    """Return what counts a text's tokens where no language model reads it.

    The embedder's own `count_tokens`, less the marks that it puts around any text; where it has
    none, a token for every four characters.
    """
    count = getattr(embedder, "count_tokens", None)
    if count is None:
        return estimated_tokens
    n_marks = count("")
    return lambda text: count(text) - n_marks


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for every four characters."""
    return math.ceil(len(text) / CHARACTERS_A_TOKEN)
