"""SIFT: retrieval that picks what is informative.

A name is imported when it is first asked for, so that importing the package costs next to nothing.
The names need NumPy alone.
"""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names.
__getattr__, __dir__, __all__ = lazy_names(__name__)
