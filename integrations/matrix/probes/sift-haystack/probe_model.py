"""A ranker that embeds by the packaged model."""

from haystack import Document

from haystack_integrations.components.rankers.sift import SIFTRanker

documents = [Document(content=text) for text in ("Tea must not boil.", "A boat floats.")]
ranker = SIFTRanker(top_k=1, model="all-MiniLM-L6-v2")
(chosen,) = ranker.run(documents, query="Must tea boil?")["documents"]
assert chosen.content == "Tea must not boil.", chosen
