"""From the name of a model to the model, loaded without a word of the libraries below.

What is wrong with a name is said at once and in one line. transformers and sentence-transformers
try for most of a minute before they say that there is no network.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import warnings
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from sift_core.answering.model.bundled import INSTALL, PACKAGE, SMOLLM2, packaged_place
from sift_core.cli.options import DEFAULT_EMBEDDER
from sift_core.cli.output import Terminal
from sift_core.errors import InvalidInputError, MissingDependencyError, SiftError
from sift_core.files import measured_once
from sift_core.processor import n_threads

if TYPE_CHECKING:
    from typing import TypeAlias

    from rich.console import Console

    from sift_core.answering import LanguageModel
    from sift_core.answering.model.loading import NumberType
    from sift_core.embedders import OnnxEmbedder, SentenceTransformerEmbedder
    from sift_core.embedders.precision import Precision

    LoadedEmbedder: TypeAlias = OnnxEmbedder | SentenceTransformerEmbedder

_logger = logging.getLogger(__name__)

_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[\w.-]+)?", re.ASCII)
HUB_TIMEOUT_S = 5.0  # a hub that is there answers in a fraction of one


def check_recorded_embedder(name: str, store: str) -> None:
    """Refuse an embedder that a store names and the user does not, unless it was used before.

    Whoever made the store chose the name. The default embedder is accepted, and so is a model that
    was downloaded to this machine before. The name of a folder is not.

    Raises:
        InvalidInputError: If the user has to name the embedder.
    """
    ids = [name] if "/" in name else [name, f"sentence-transformers/{name}"]
    if _HUB_NAME.fullmatch(name) and not any(map(os.path.lexists, ids)):
        if f"sentence-transformers/{DEFAULT_EMBEDDER}" in ids:
            return
        from huggingface_hub import try_to_load_from_cache

        files = ("config.json", "modules.json")
        if any(isinstance(try_to_load_from_cache(one, f), str) for one in ids for f in files):
            return
    raise InvalidInputError(
        f"the store {store} names the embedder {name!r}, which is a folder, or was not "
        f"downloaded to this machine before. A model of unknown origin can do harm; if you "
        f"trust it, say --embedder {shlex.quote(name)}"
    )


def load_embedder(name: str, *, precision: Precision = "float32") -> LoadedEmbedder:
    """Load a sentence-transformers model; by ONNX Runtime, which takes .3 s, where that can be.

    Args:
        name: Folder, or name on the hub.
        precision: Of ONNX Runtime, as in `OnnxEmbedder`.

    Raises:
        InvalidInputError: If there is no such model.
        MissingDependencyError: If sentence-transformers is not installed.
    """
    if (quick := _by_onnx_runtime(name, precision)) is not None:
        return quick
    from sift_core.embedders import SentenceTransformerEmbedder
    from sift_core.embedders.packaged import packaged_path

    _quieten_transformers()
    if packaged_path(name) is None:
        # Names without an owner are those of sentence-transformers.
        is_short = "/" not in name and not name.startswith((".", "~"))
        is_short = is_short and not Path(name).is_dir()
        model_place(f"sentence-transformers/{name}" if is_short else name, "sentence-transformers")
    return SentenceTransformerEmbedder(name)


def load_index_embedder(name: str) -> LoadedEmbedder:
    """Load a model that embeds many documents: in eight bits where that is much quicker.

    On a CPU with instructions for eight-bit numbers that is known. On any other both precisions
    are timed once for each model, in a second or two. Arguments and errors are those of
    `load_embedder`.
    """
    from importlib import metadata

    from sift_core.embedders.precision import (
        LEAST_SAVING,
        eight_bit_instructions,
        saving_of_eight_bits,
    )

    if eight_bit_instructions():
        return load_embedder(name, precision="int8")
    float32 = load_embedder(name)
    if not hasattr(float32, "precision"):  # of sentence-transformers, which has no eight bits
        return float32

    def saving() -> float:
        int8 = load_embedder(name, precision="int8")
        is_in_eight_bits = getattr(int8, "precision", "") == "int8"  # not every model can be
        return saving_of_eight_bits(float32, int8) if is_in_eight_bits else 0.0

    circumstances = [name, metadata.version("onnxruntime"), f"{n_threads()} threads"]
    if measured_once("eight-bits", circumstances, saving) < LEAST_SAVING:
        return float32
    return load_embedder(name, precision="int8")


def _by_onnx_runtime(name: str, precision: Precision) -> OnnxEmbedder | None:
    """Return a model that is installed or a folder, if ONNX Runtime can run it.

    In float32 where it cannot in eight bits.
    """
    try:
        from sift_core.embedders.onnx import OnnxEmbedder, exported_path, refusal
        from sift_core.embedders.packaged import packaged_path

        folder = Path(packaged_path(name) or name)
        if refusal(folder) is not None:
            return None
        if not exported_path(folder).is_file():
            message = f"Preparing the embedder {name} for ONNX Runtime: half a minute, this once."
            Terminal(stderr=True).print(message, soft_wrap=True)
            _quieten_transformers()
        return OnnxEmbedder(name, precision=precision)
    except MissingDependencyError:
        return None
    except (SiftError, RuntimeError) as error:  # of torch's exporter
        if precision != "float32":
            return _by_onnx_runtime(name, "float32")
        _logger.warning("%s; sentence-transformers embeds in its place", error)
        return None


def load_language_model(
    name: str,
    device: str | None = None,
    *,
    dtype: NumberType = "auto",
    console: Console | None = None,
) -> LanguageModel:
    """Load a causal language model of transformers.

    Args:
        name: Id on the hub, or a folder.
        device: As in torch; the fastest there is if None.
        dtype: As for `LanguageModel.from_pretrained`.
        console: Told where a model is made that was not there yet; stderr if None.

    Raises:
        InvalidInputError: If the model is not there or no causal one, or there is no such device.
        MissingDependencyError: If it is the bundled one, whose packages are not installed, and the
            hub does not give it.
    """
    from sift_core.answering import LanguageModel

    def tell(folder: Path) -> None:
        message = f"Converting the bundled model {name} to {folder}: half a minute, this once."
        (console or Terminal(stderr=True)).print(message, soft_wrap=True)

    _quieten_transformers()
    with warnings.catch_warnings():  # of what a reader of the answer can do nothing about
        warnings.simplefilter("ignore")
        is_default = name == SMOLLM2
        place = name
        if packaged_place(name, on_start=tell) == name:
            try:
                place = model_place(name, "transformers")
            except InvalidInputError as error:
                if is_default:
                    raise MissingDependencyError(PACKAGE, install=INSTALL) from error
                raise
        return LanguageModel.from_pretrained(place, device=device, dtype=dtype)


def model_place(name: str, library: str) -> str:
    """Return where to load a model from: its folder, its copy in the hub's cache, or its id.

    The hub is asked once and at most for some seconds.

    Args:
        name: Folder, or id on the hub.
        library: Whose model it is, for messages.

    Raises:
        InvalidInputError: If there is no such folder, the hub does not give such a model, or it
            cannot be reached and the model was not downloaded before.
    """
    if os.path.isdir(path := os.path.expanduser(name)):  # a ~ that means nobody's stays
        return path
    if name.startswith((".", "/", "~", "\\")) or name.count("/") > 1:
        raise InvalidInputError(
            f"there is no model folder {name!r}; pass a folder with a model of {library}, or an "
            f"id on the hub"
        )
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        model_info(name, timeout=HUB_TIMEOUT_S)
    except (HFValidationError, RepositoryNotFoundError) as error:  # gated ones are of the latter
        raise InvalidInputError(
            f"{name!r} is no folder, and the hub has no such model, or shows it only to those who "
            f"accepted its terms and set HF_TOKEN; check the spelling, or pass a folder with a "
            f"model of {library}"
        ) from error
    except Exception as error:  # of the client's HTTP library, which differs between its versions
        try:
            return snapshot_download(name, local_files_only=True)
        except LocalEntryNotFoundError:
            reason = shorten(str(error), 120, placeholder=" …")
            raise InvalidInputError(
                f"the model {name!r} is no folder here and was not downloaded before, and the hub "
                f"cannot be asked for it ({reason}); check spelling and network, or pass a folder "
                f"with a model of {library}"
            ) from error
    return name


def _quieten_transformers() -> None:
    """Have transformers and the hub print errors alone: stdout and stderr belong to the command."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the hub's, too
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # "Retrying in 4s"
