"""SIFT for Haystack: picks documents which are informative together."""

from haystack_integrations.components.rankers.sift.ranker import SIFTRanker

__all__ = ["SIFTRanker"]
