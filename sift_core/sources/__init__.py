"""Where candidates come from: one folder a store, each importing its vendor itself."""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names. The first use of a source imports it and its vendor.
__getattr__, __dir__, __all__ = lazy_names(__name__)
