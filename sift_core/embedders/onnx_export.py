"""From the folder of a BERT to a file that ONNX Runtime reads."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sift_core.embedders.onnx_file import CHECKSUM_FIELD, holds_graph
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.files import make_once

try:
    import onnx
    import onnxscript  # noqa: F401  # the exporter needs it
    import torch
    from transformers import AutoModel
except ImportError as error:
    raise MissingDependencyError(
        "torch, transformers, onnx and onnxscript", extra="demo"
    ) from error

LONGEST = 512  # tokens: BERT's


def export(folder: Path, path: Path, *, pooling: str, is_sound: Callable[[Path], bool]) -> None:
    """Write a model's graph, from tokens to vectors of unit length; whole or not at all.

    Takes some twenty seconds and 90 MB for MiniLM. Whoever wants it meanwhile waits.

    Args:
        folder: The model, of BERT's kind, its weights as safetensors.
        path: The file; its folder is made where missing.
        pooling: "mean" of the tokens' states, or "cls", the first of them.
        is_sound: Tells whether the graph in a file gives the model's vectors; of one that does
            not an empty one is kept, so that nobody tries again.

    Raises:
        InvalidInputError: If the file cannot be written.
    """
    _keep(path, lambda draft: _write(_Embedding(folder, pooling), draft), is_sound)


def quantize(graph: Path, path: Path, *, is_sound: Callable[[Path], bool]) -> None:
    """Write a graph with weights of eight bits; whole or not at all. Takes three seconds.

    Weights have a scale for each channel, and seven of the eight bits: products of all eight
    overflow on processors without VNNI, and vectors would depend on the processor. Activations
    get their scale as they come.

    Args:
        graph: As `export` made it.
        path: The file; its folder is made where missing.
        is_sound: As for `export`.

    Raises:
        InvalidInputError: As `export`.
    """

    def write(draft: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        settings = {"weight_type": QuantType.QInt8, "per_channel": True, "reduce_range": True}
        try:
            with _quiet("root"):  # it is told there that the graph could be prepared
                quantize_dynamic(onnx.load_model(graph), draft, **settings)
        except Exception as error:  # it has no error of its own for a graph that it cannot change
            raise InvalidInputError(
                f"the embedder cannot be made of eight bits: {error}"
            ) from error

    _keep(path, write, is_sound)


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Let a library log nothing but errors."""
    talkative = logging.getLogger(logger)
    level = talkative.level
    talkative.setLevel(logging.ERROR)
    try:
        yield
    finally:
        talkative.setLevel(level)


def _keep(path: Path, write: Callable[[Path], None], is_sound: Callable[[Path], bool]) -> None:
    """Write a graph with its checksum, or an empty one if it is not sound."""

    def make(draft: Path) -> None:
        write(draft)
        graph = draft.read_bytes() if is_sound(draft) else b""
        draft.write_bytes(graph + CHECKSUM_FIELD + hashlib.sha256(graph).digest())

    try:
        make_once(path, make, is_made=lambda path: holds_graph(path) is not None)
    except OSError as error:
        raise InvalidInputError(
            f"the exported embedder cannot be written to {str(path)!r}: {error}; free 100 MB "
            f"there, or set XDG_CACHE_HOME to another folder"
        ) from error


class _Embedding(torch.nn.Module):
    """Token ids and their mask, shape (n, length), to vectors (n, d)."""

    def __init__(self, folder: Path, pooling: str) -> None:
        super().__init__()
        self.model: Any = AutoModel.from_pretrained(
            folder, attn_implementation="eager", use_safetensors=True, trust_remote_code=False
        )
        self.pooling = pooling

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = states[:, 0]
        if self.pooling == "mean":
            weights = mask[:, :, None].to(states.dtype)
            vectors = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return torch.nn.functional.normalize(vectors, dim=1)


def _write(model: torch.nn.Module, path: Path) -> None:
    ids = torch.arange(1, 15).view(2, 7)  # two rows of unequal length: no number of it stays
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    n, length = torch.export.Dim("n"), torch.export.Dim("length", max=LONGEST)
    # The logger tells of operators of torchvision, which nobody has asked for.
    with (
        _quiet("torch.onnx"),
        warnings.catch_warnings(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.eval(),
            (ids, mask),
            dynamo=True,
            dynamic_shapes=({0: n, 1: length}, {0: n, 1: length}),
            input_names=["ids", "mask"],
            output_names=["vectors"],
            verbose=False,
        )
        assert program is not None  # it is None without dynamo
        program.save(path)
