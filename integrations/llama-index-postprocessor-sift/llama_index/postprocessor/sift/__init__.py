"""SIFT for LlamaIndex: picks nodes which are informative together. Loads no torch."""

from llama_index.postprocessor.sift.engine_llm import EngineLLM
from llama_index.postprocessor.sift.reranker import SIFTReranker
from llama_index.postprocessor.sift.retriever import SIFTRetriever
from llama_index.postprocessor.sift.synthesizer import SIFTQueryBundle, SIFTSynthesizer

__all__ = ["EngineLLM", "SIFTQueryBundle", "SIFTReranker", "SIFTRetriever", "SIFTSynthesizer"]
