"""The arguments of the tools: their schemas, and faults in words that an agent can act on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError
from sift_core.service.http import MAX_QUERIES, Many
from sift_core.service.metadata import Filter as Filter
from sift_core.service.metadata import Plain

MAX_KEYS = 20
CHOICES, TOKENS = (1, 50), (300, 20_000)  # from and to, of an answer. Guesses.

# Characters that nobody sees: controls, marks that turn the direction, and tags, which spell
# letters for a model alone.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)

Text = Annotated[str, Field(min_length=1, max_length=4000)]
Question = Annotated[Text, Field(description="What to look for, in a whole sentence.")]
Questions = Annotated[
    Many[Text], Field(max_length=MAX_QUERIES, description="Its parts, or rewrites of it.")
]
Count = Annotated[int, Field(ge=1, le=CHOICES[1], description="How many passages at most.")]
Length = Annotated[
    int, Field(ge=TOKENS[0], le=TOKENS[1], description="Tokens of the answer at most.")
]
Key = Annotated[
    str, Field(max_length=200, description="Metadata key of a date: of versions, the newest.")
]
Id = Annotated[Text, Field(description="An id or a source from `search`.")]
Around = Annotated[int, Field(ge=0, le=50, description="Passages before and after a passage.")]
First = Annotated[int, Field(ge=1, description="Number of a document's passage to begin with.")]
Note = Annotated[str, Field(max_length=20_000, description="One fact, in a whole sentence.")]
Keys = Annotated[
    dict[str, Plain | float | Many[Plain]],
    Field(max_length=MAX_KEYS, description="Keys and values to filter by later."),
]
NO_KEYS: dict[str, Any] = {}
NO_TEXTS: list[str] = []
Date = Annotated[str, Field(max_length=40, description="Since when it holds. Default: now.")]


def clean(value: Any) -> Any:
    """Return JSON without characters that nobody sees, and with U+FFFD for half a surrogate."""
    if isinstance(value, Mapping):
        return {clean(key): clean(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(clean, value))
    if isinstance(value, str):
        return _HIDDEN.sub("", value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def arguments_of(
    tool: str, call: Callable[..., Any], fixed: Collection[str], names: tuple[str, ...]
) -> type[BaseModel]:
    """Return the model of a tool's arguments.

    Args:
        tool: Its name.
        call: Its types and defaults are those of the arguments.
        fixed: Names of the arguments that the operator decides, which are left out.
        names: The collections. With one alone the argument `collection` is left out.
    """
    found: dict[str, Any] = {
        one.name: (one.annotation, ... if one.default is Parameter.empty else one.default)
        for one in signature(call, eval_str=True).parameters.values()
        if one.name not in fixed
    }
    if found.pop("collection", None) and len(names) > 1:
        found["collection"] = (Literal[names], ...)
    model: type[BaseModel] = create_model(tool, __config__=ConfigDict(extra="forbid"), **found)
    return model


def read_arguments(model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent sent, checked. None stands for an argument that is left out.

    Raises:
        InvalidInputError: With the first faults, and the names of all arguments.
    """
    arguments = {name: one for name, one in arguments.items() if one is not None}
    takes = f"`{model.__name__}` takes {', '.join(model.model_fields) or 'no arguments'}"
    if unknown := next((name for name in arguments if name not in model.model_fields), None):
        raise InvalidInputError(f"there is no argument {short_repr(unknown)}; {takes}")
    try:
        return dict(model.model_validate(arguments))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)[:3]
        places = [".".join(str(part)[:40] for part in one["loc"][:3]) for one in faults]
        named = (f"`{at}`: {one['msg'][:200]}" for at, one in zip(places, faults, strict=True))
        raise InvalidInputError(f"{'; '.join(named)}; {takes}") from error
