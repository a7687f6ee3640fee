"""From a folder to a store: files read, texts cut along their structure, documents written."""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names. The first use of one imports its module and what that needs.
__getattr__, __dir__, __all__ = lazy_names(__name__)
