"""`ChoiceOptions` as fields of Pydantic models: for bodies of HTTP requests and for plugins.

Needs Pydantic, which the extra `serve` and the frameworks of the plugins bring.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field as Option
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.options import ChoiceOptions, help_of, unknown_option
from sift_core.protocols import Selector

try:
    from pydantic import (
        BaseModel,
        ConfigDict,
        Field,
        WithJsonSchema,
        create_model,
        model_validator,
    )
except ImportError as error:
    raise MissingDependencyError("pydantic", extra="serve") from error

__all__ = ["ChoiceFields"]

M = TypeVar("M", bound="OptionsModel")
LONGEST_KEY = 200  # characters of a metadata key
_BOUNDS = {"minimum": "ge", "maximum": "le", "above": "gt"}  # as Pydantic calls them
LIVE = tuple(one.name for one in fields(ChoiceOptions) if one.metadata.get("is_live"))


class OptionsModel(BaseModel):
    """A model that has options of a choice among its fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    option_names: ClassVar[Mapping[str, str]] = {}
    """Name of an option → name of its field."""

    def choice_values(self) -> dict[str, Any]:
        """Return the options by name whose fields are not None."""
        values = {name: getattr(self, own) for name, own in self.option_names.items()}
        return {name: value for name, value in values.items() if value is not None}

    def choice_options(self, **changes: Any) -> ChoiceOptions:
        """Return the options that these fields hold. A field of None has the default.

        Args:
            **changes: Options by name, in place of the fields.

        Raises:
            InvalidInputError: If they do not go together.
        """
        return ChoiceOptions(**{**self.choice_values(), **changes})


def with_option_fields(
    *,
    leave_out: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    nullable: bool = False,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that adds the fields of `ChoiceOptions` to a model.

    Args:
        leave_out: Options that get no field.
        names: Option → name of its field, if that differs.
        nullable: Whether each field may be None, and is by default. Default: as in the options.
        changes: Option → further arguments of `pydantic.Field`, such as `le`.
    """

    def decorate(model: type[M]) -> type[M]:
        options = [one for one in fields(ChoiceOptions) if one.name not in leave_out]
        own = {one.name: (names or {}).get(one.name, one.name) for one in options}
        made: dict[str, Any] = {
            own[one.name]: _field(one, nullable, (changes or {}).get(one.name, {}))
            for one in options
        }
        found: type[M] = create_model(
            model.__name__, __base__=model, __module__=model.__module__, **made
        )
        found.__doc__, found.option_names = model.__doc__, own
        return found

    return decorate


def _field(option: Option[Any], nullable: bool, changes: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return type and field of an option, with its range and its help."""
    scope = {"Callable": Callable, "Selector": Selector}
    hint = get_type_hints(ChoiceOptions, localns=scope)[option.name]
    arguments: dict[str, Any] = {"description": help_of(option.name)}
    bounds = [key for key in _BOUNDS if key in option.metadata]
    arguments |= {_BOUNDS[key]: option.metadata[key] for key in bounds}
    if hint in (float, float | None):
        arguments["allow_inf_nan"] = False
    elif hint == str | None:
        arguments["max_length"] = LONGEST_KEY
    elif option.name in LIVE:  # it has no JSON
        arguments |= {"exclude": True, "repr": option.name == "selector"}
        hint = Annotated[hint, WithJsonSchema({"type": "null"})]
    default = None if nullable else option.default
    return hint | None if nullable else hint, Field(**{"default": default, **arguments, **changes})


if TYPE_CHECKING:  # what editors and type checkers see; the fields are made below

    class ChoiceFields(OptionsModel):
        """The options of a choice as fields, without how many are chosen and fetched.

        A subclass with `extra="forbid"` answers an unknown name with the one that is meant.
        """

        words: float = 0.7
        hops: int = 1
        max_tokens: int | None = None
        max_per_document: int | None = None
        newest: str | None = None
        half_life_days: float | None = None
        merge_neighbors: bool = False
        document_key: str | None = None
        count_tokens: Callable[[str], int] | None = None
        selector: Selector | None = None

else:

    @with_option_fields(leave_out=("n_select", "n_candidates"))
    class ChoiceFields(OptionsModel):
        """The options of a choice as fields, without how many are chosen and fetched.

        A subclass with `extra="forbid"` answers an unknown name with the one that is meant.

        Example:
            >>> class Settings(ChoiceFields, extra="forbid"):
            ...     top_k: int = 10
            ...
            >>> Settings(max_tokens=2000).max_tokens
            2000
        """

        @model_validator(mode="before")
        @classmethod
        def _refuse_unknown(cls, values: Any) -> Any:
            if isinstance(values, dict) and cls.model_config.get("extra") == "forbid":
                if unknown := values.keys() - cls.model_fields.keys():
                    message = unknown_option(cls.__name__, min(unknown), cls.model_fields)
                    raise InvalidInputError(message)
            return values
