"""Griffe extension: shows the `Example:` of a docstring as code.

Google's style guide writes "Example:" for one; griffe knows "Examples:" alone and takes the other
for a note, whose `>>>` lines run together and whose brackets become links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

HEADING = re.compile(r"^Example:$", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Renames the section before docstrings are parsed."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:
        """Change one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub("Examples:", obj.docstring.value)
