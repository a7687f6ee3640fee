"""SIFT for LangChain. Importing this loads no vector store."""

from langchain_sift.retriever import SIFTRetriever

__all__ = ["SIFTRetriever"]
