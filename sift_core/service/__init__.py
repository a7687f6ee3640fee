"""One HTTP service that clients of OpenAI's, Cohere's, Jina's and TEI's APIs already speak."""

from sift_core._lazy import lazy_names

# `__init__.pyi` is the list of names. The first use of `create_app` imports FastAPI.
__getattr__, __dir__, __all__ = lazy_names(__name__)
