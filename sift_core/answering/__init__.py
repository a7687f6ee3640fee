"""Answering from chosen documents: in the context, by fine-tuning, or by choice of both."""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names. The first use of one imports its module, and torch with most.
__getattr__, __dir__, __all__ = lazy_names(__name__)
