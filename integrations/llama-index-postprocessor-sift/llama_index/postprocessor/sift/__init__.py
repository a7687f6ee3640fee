"""SIFT for LlamaIndex: a reranker that picks nodes which are informative together."""

from llama_index.postprocessor.sift.reranker import SIFTReranker

__all__ = ["SIFTReranker"]
