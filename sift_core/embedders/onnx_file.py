"""The file of an exported graph, which ends with its SHA-256."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

# What comes before the SHA-256 at a file's end: together they are a field of 32 bytes that ONNX
# has no name for and skips, so that ONNX Runtime opens the file itself. Read here, it took longer.
CHECKSUM_FIELD = b"\xc2\x3e\x20"
N_READ = 2**20  # bytes at a time

_logger = logging.getLogger(__name__)


def holds_graph(path: Path) -> bool | None:
    """Return whether a file is a graph to use; None where there is none, or none that is whole.

    It is the graph and its SHA-256, since a graph with changed weights opens and gives nonsense.
    An empty graph stands for one that is of no use.
    """
    checksum = hashlib.sha256()
    try:
        with path.open("rb") as file:
            n_end = len(CHECKSUM_FIELD) + checksum.digest_size
            size = left = max(os.fstat(file.fileno()).st_size - n_end, 0)
            while left and (part := file.read(min(left, N_READ))):
                checksum.update(part)
                left -= len(part)
            end = file.read()
    except FileNotFoundError:
        return None
    if end == CHECKSUM_FIELD + checksum.digest():
        return size > 0
    _logger.warning("the embedder in %s is damaged and made again", path)
    return None
