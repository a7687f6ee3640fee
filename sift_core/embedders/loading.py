"""From the name of an embedding model to the model, by the fastest runtime that can run it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from sift_core.embedders.packaged import packaged_path
from sift_core.errors import MissingDependencyError, SiftError
from sift_core.files import measured_once
from sift_core.hub import model_place, quieten_transformers
from sift_core.processor import n_threads

if TYPE_CHECKING:
    from typing import TypeAlias

    from sift_core.embedders.onnx import OnnxEmbedder
    from sift_core.embedders.precision import Precision
    from sift_core.embedders.sentence_transformer import SentenceTransformerEmbedder

    LoadedEmbedder: TypeAlias = OnnxEmbedder | SentenceTransformerEmbedder
    Notify: TypeAlias = Callable[[str], object]

_logger = logging.getLogger(__name__)


def load_embedder(
    name: str, *, precision: Precision = "float32", notify: Notify | None = None
) -> LoadedEmbedder:
    """Load a sentence-transformers model, by ONNX Runtime where that can run it.

    ONNX Runtime starts in 0.3 s, torch in several. transformers prints nothing but errors from
    then on.

    Args:
        name: Folder, or name on the hub.
        precision: Number type of ONNX Runtime, "float32" or "int8". Where the model does not keep
            its vectors in eight bits, it is loaded in float32. Default: "float32".
        notify: Is called with a sentence when a model is converted, which takes half a minute, the
            first time. Default: nothing is called.

    Raises:
        InvalidInputError: If there is no such model.
        MissingDependencyError: If sentence-transformers is not installed.
    """
    if (quick := _by_onnx_runtime(name, precision, notify)) is not None:
        return quick
    from sift_core.embedders.sentence_transformer import SentenceTransformerEmbedder

    quieten_transformers()
    if packaged_path(name) is None:
        # Names without an owner are those of sentence-transformers.
        is_short = "/" not in name and not name.startswith((".", "~"))
        is_short = is_short and not Path(name).is_dir()
        model_place(f"sentence-transformers/{name}" if is_short else name, "sentence-transformers")
    return SentenceTransformerEmbedder(name)


def load_index_embedder(name: str, *, notify: Notify | None = None) -> LoadedEmbedder:
    """Load a model that embeds many documents: in eight bits where that is much quicker.

    On a CPU with instructions for eight-bit numbers that is known. On any other both precisions
    are timed once for each model, in a second or two. Arguments and errors are those of
    `load_embedder`.
    """
    from sift_core.embedders.precision import (
        LEAST_SAVING,
        eight_bit_instructions,
        saving_of_eight_bits,
    )

    if eight_bit_instructions():
        return load_embedder(name, precision="int8", notify=notify)
    float32 = load_embedder(name, notify=notify)
    if not hasattr(float32, "precision"):  # of sentence-transformers, which has no eight bits
        return float32

    def saving() -> float:
        int8 = load_embedder(name, precision="int8", notify=notify)
        is_in_eight_bits = getattr(int8, "precision", "") == "int8"  # not every model can be
        return saving_of_eight_bits(float32, int8) if is_in_eight_bits else 0.0

    circumstances = [name, metadata.version("onnxruntime"), f"{n_threads()} threads"]
    if measured_once("eight-bits", circumstances, saving) < LEAST_SAVING:
        return float32
    return load_embedder(name, precision="int8", notify=notify)


def _by_onnx_runtime(name: str, precision: Precision, notify: Notify | None) -> OnnxEmbedder | None:
    """Return a model that is installed or a folder, if ONNX Runtime can run it.

    In float32 where it cannot in eight bits.
    """
    try:
        from sift_core.embedders.onnx import OnnxEmbedder, exported_path, refusal

        folder = Path(packaged_path(name) or name)
        if refusal(folder) is not None:
            return None
        if not exported_path(folder).is_file():
            if notify is not None:
                notify(f"Preparing the embedder {name} for ONNX Runtime: half a minute, this once.")
            quieten_transformers()
        return OnnxEmbedder(name, precision=precision)
    except MissingDependencyError:
        return None
    except (SiftError, RuntimeError) as error:  # of torch's exporter
        if precision != "float32":
            return _by_onnx_runtime(name, "float32", notify)
        _logger.warning("%s; sentence-transformers embeds in its place", error)
        return None
