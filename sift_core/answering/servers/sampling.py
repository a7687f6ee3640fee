"""Options of `generate` as fields of a request to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sift_core.checks import as_number, check_flag, short_repr
from sift_core.errors import InvalidInputError

SAMPLING = ("temperature", "top_p", "top_k", "min_p")


def sampling_fields(options: Mapping[str, Any], called: str) -> dict[str, Any]:
    """Return the fields of a request for options of `LanguageModel.generate`.

    Raises:
        InvalidInputError: If an option has no counterpart there, or is out of its range.
    """
    rest = dict(options)
    penalty, is_sampled = rest.pop("repetition_penalty", None), rest.pop("do_sample", False)
    check_flag("do_sample", is_sampled)
    settings = {name: rest.pop(name, None) for name in (*SAMPLING, "seed")}
    for name, value in settings.items():
        if value is not None:
            as_number(name, value, minimum=-1 if name == "top_k" else 0)
    if penalty is not None:
        as_number("repetition_penalty", penalty, above=0)
    processors = [*(rest.pop("logits_processor", None) or [])]
    if rest or not all(hasattr(one, "seed") for one in processors):
        names = ", ".join(sorted(rest)) or "logits_processor"
        raise InvalidInputError(
            f"{called} is not asked for {short_repr(names)} from here; there are do_sample, "
            f"{', '.join(SAMPLING)}, seed, repetition_penalty and what `seeded` returns"
        )
    if processors:
        noise = processors[0]
        settings = {"temperature": noise.temperature, "top_p": noise.top_p, "seed": noise.seed}
    elif not is_sampled:
        if named := [name for name in SAMPLING if settings[name] not in (None, 0, 1)]:
            raise InvalidInputError(
                f"{named} are for sampling; pass `do_sample=True` too, or leave them out"
            )
        settings = {"temperature": 0.0}
    settings["repetition_penalty"] = penalty
    return {name: value for name, value in settings.items() if value is not None}
