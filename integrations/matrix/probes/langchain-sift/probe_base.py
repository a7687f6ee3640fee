"""A compressor of documents that embeds them by itself."""

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_sift import SIFTCompressor
from sift_core.testing import HashingEmbedder


class Hashing(HashingEmbedder, Embeddings):
    """An embedding model of LangChain."""

    def embed_documents(self, texts):
        return super().embed_documents(texts).tolist()

    def embed_query(self, text):
        return super().embed_query(text).tolist()


documents = [Document(page_content=text) for text in ("tea", "tea", "boats")]
chosen = SIFTCompressor(embeddings=Hashing(), top_n=2).compress_documents(documents, "tea or boats")
assert {document.page_content for document in chosen} == {"tea", "boats"}, chosen
