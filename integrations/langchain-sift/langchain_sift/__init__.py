"""SIFT for LangChain. Importing this loads no vector store and no torch."""

from langchain_sift.answer import SIFTAnswer
from langchain_sift.chat import ChatSIFT
from langchain_sift.compressor import SIFTCompressor
from langchain_sift.embedder import LangChainEmbedder
from langchain_sift.retriever import SIFTRetriever
from langchain_sift.sources import VectorStoreSource

__all__ = [
    "ChatSIFT",
    "LangChainEmbedder",
    "SIFTAnswer",
    "SIFTCompressor",
    "SIFTRetriever",
    "VectorStoreSource",
]
