"""GET /collections: what can be asked, and under which path."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastapi import APIRouter

from sift_core.errors import InvalidInputError
from sift_core.service.http import JsonAnswer, JsonRoute

_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)


def collections_router(names: Sequence[str]) -> APIRouter:
    """Return the route.

    Args:
        names: Of all collections, first the one whose routes have no prefix.

    Raises:
        InvalidInputError: If a name cannot stand in a path, or comes twice.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"the name of a collection must begin with a letter, digit or underscore, and have "
                f"at most 100 ASCII letters, digits, dots, hyphens and underscores, got "
                f"{name[:120]!r}"
            )
    if len(set(names)) < len(names):
        raise InvalidInputError(
            f"each collection needs a name of its own, got {', '.join(names)}; rename one"
        )
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["status"])
    first, *others = names
    paths = {first: "", **{name: f"collections/{name}/" for name in others}}

    @router.get("/collections", operation_id="list_collections")
    async def collections() -> dict[str, object]:
        """List the collections. Routes such as search stand behind the path of each."""
        return {"data": [{"name": name, "path": path} for name, path in paths.items()]}

    return router
