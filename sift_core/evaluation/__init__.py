"""How good choices are on your data: retrieval measured, and whether a collection needs SIFT."""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names. The first use of one imports its module and what that needs.
__getattr__, __dir__, __all__ = lazy_names(__name__)
