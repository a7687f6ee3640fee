"""One list of public names a package, each imported when it is first asked for (PEP 562).

The list is the stub `__init__.pyi` beside the package's `__init__.py`. It has a line
`from sift_core.module import Name as Name` for each name. Type checkers and editors read the stub,
and `lazy_names` reads it at run time. The model is `attach_stub` of the library lazy_loader.
"""

from __future__ import annotations

import sys
from _ast import ImportFrom, Module, PyCF_ONLY_AST  # of the module `ast`, which loads more
from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


def lazy_names(name: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for the package of this name.

    An attribute is a name of the stub, or a submodule in which the stub finds one. A name stays in
    the package once it is imported.
    """
    package = sys.modules[name]
    homes = _homes(package)
    submodules = {home.removeprefix(f"{name}.").partition(".")[0] for home in homes.values()}

    def __getattr__(attribute: str) -> Any:
        if attribute in homes:
            value = getattr(import_module(homes[attribute]), attribute)
            setattr(package, attribute, value)
            return value
        if attribute in submodules:
            return import_module(f"{name}.{attribute}")
        raise AttributeError(
            f"module {name!r} has no attribute {attribute!r}", name=attribute, obj=package
        )

    def __dir__() -> list[str]:
        return sorted({*vars(package), *homes})

    return __getattr__, __dir__, sorted(homes)


def _homes(package: ModuleType) -> dict[str, str]:
    """Return the module of each name in the package's stub, also where the package is in a ZIP."""
    path = f"{package.__path__[0]}/__init__.pyi"
    spec: Any = package.__spec__
    stub = compile(spec.loader.get_data(path), path, "exec", PyCF_ONLY_AST)
    assert isinstance(stub, Module)
    return {
        alias.name: line.module
        for line in stub.body
        if isinstance(line, ImportFrom) and line.module
        for alias in line.names
    }
