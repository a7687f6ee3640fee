"""From files to documents: texts cut along their structure."""

from sift_core.chunking.chunker import FORMAT_OF_SUFFIX, Chunker
from sift_core.chunking.spans import TextFormat

__all__ = ["FORMAT_OF_SUFFIX", "Chunker", "TextFormat"]
