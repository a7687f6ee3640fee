"""Embedders for those who have none yet.

Any object with `name`, `embed_query` and `embed_documents` will do: `sift_core.Embedder`.
"""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names. The first use of one imports its module and what that needs.
__getattr__, __dir__, __all__ = lazy_names(__name__)
