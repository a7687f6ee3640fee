"""What `sift calibrate` found for an index, for the commands that answer from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sift_core.cli.output import stderr_console
from sift_core.cli.stores import DEFAULT_COLLECTION, StoreAddress
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering import LanguageModel


def place_of(address: StoreAddress) -> Path:
    """Return where an index's calibration is kept unless another place is named: beside it.

    That of a server is in the current folder.
    """
    end = "" if address.collection == DEFAULT_COLLECTION else f"-{address.collection}"
    beside = ".sift" if address.is_server else address.location.rstrip("/\\")
    return Path(f"{beside}-calibration{end}")


def engine_options(
    address: StoreAddress, named: str | None, adapters: str | None, language_model: LanguageModel
) -> dict[str, Any]:
    """Return an engine's `policy`, `cost_model` and `adapters`, as calibrated; none if nothing was.

    Args:
        address: The index.
        named: File of a calibration; one beside the index is used if None, where it can be.
        adapters: Where adapters may be; looked for where the calibration has mode "merged".
        language_model: Answers.

    Raises:
        InvalidInputError: If the named one cannot be used.
    """
    place = place_of(address) if named is None else Path(named)
    if named is None and not place.is_file():
        return {}
    from sift_core.answering import Calibration, ClusterAdapters

    try:
        found = Calibration.load(place, language_model)
        options: dict[str, Any] = {"policy": found.policy, "cost_model": found.cost_model}
        has_merged = any(way.mode is AnswerMode.MERGED for way in found.ways)
        if has_merged and adapters is not None and Path(adapters).is_dir():
            options["adapters"] = ClusterAdapters.load(adapters, language_model)
        return options
    except InvalidInputError as error:
        if named is not None:
            raise
        stderr_console().say(f"{error}. Mode auto reads what fits, as without one.", style="dim")
        return {}
