"""Griffe extension: takes the names in a stub `__init__.pyi` for `__all__` of its package.

`sift_core._lazy` makes `__all__` of the stub at run time, which griffe does not see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe


class StubExports(griffe.Extension):
    """Sets what a package exports, so that its page shows all public names."""

    def on_package(self, *, pkg: griffe.Module, **_kwargs: Any) -> None:
        """Change a package and those in it once they are merged with their stubs."""
        for module in _modules(pkg):
            if module.is_init_module and module.filepath.with_suffix(".pyi").exists():
                module.exports = sorted(set(module.imports) - {"lazy_names"})


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for one in module.members.values():
        if not one.is_alias and one.is_module:  # in this order: an alias may have no target yet
            yield from _modules(one)
