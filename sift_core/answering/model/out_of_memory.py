"""Whether an exception says that memory ran out, of a GPU or of the machine."""

from __future__ import annotations

from sift_core.errors import MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

MEMORY_ERRORS = (RuntimeError, MemoryError)  # what running out of memory is raised as
_PHRASES = (
    "can't allocate memory",  # Linux and macOS
    "not enough memory",  # Windows
    "out of memory",  # CUDA, MPS
    "bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)
