"""From the name of a model to the model, loaded without a word of the libraries below."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from sift_core.answering.model.bundled import INSTALL, PACKAGE, SMOLLM2, packaged_place
from sift_core.cli.options import DEFAULT_EMBEDDER
from sift_core.cli.output import Terminal, Working
from sift_core.embedders import loading
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.hub import model_place, quieten_transformers

if TYPE_CHECKING:
    from sift_core.answering import LanguageModel
    from sift_core.answering.model.loading import NumberType
    from sift_core.embedders.loading import LoadedEmbedder

_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[\w.-]+)?", re.ASCII)


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


def load_embedder(name: str) -> LoadedEmbedder:
    """Load an embedder as `loading.load_embedder`, and say so where it is converted first."""
    return loading.load_embedder(name, notify=_tell)


def load_index_embedder(name: str) -> LoadedEmbedder:
    """Load an embedder as `loading.load_index_embedder`, and say so where it is converted first."""
    return loading.load_index_embedder(name, notify=_tell)


def load_language_model(
    name: str, device: str | None = None, *, dtype: NumberType = "auto"
) -> LanguageModel:
    """Load a causal language model of transformers, and say so meanwhile.

    Args:
        name: Id on the hub, or a folder.
        device: As in torch. Default: the fastest there is.
        dtype: As for `LanguageModel.from_pretrained`.

    Raises:
        InvalidInputError: If the model is not there or no causal one, or there is no such device.
        MissingDependencyError: If it is the bundled one, whose packages are not installed, and the
            hub does not give it.
    """
    with Working("Loading the language model …") as status, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a reader of the answer can do nothing about them
        from sift_core.answering import LanguageModel  # with torch

        def tell(folder: Path) -> None:
            message = f"Converting the bundled model {name} to {folder}: half a minute, this once."
            status.notes.print(message, soft_wrap=True)

        quieten_transformers()
        place = name
        if packaged_place(name, on_start=tell) == name:
            try:
                place = model_place(name, "transformers")
            except InvalidInputError as error:
                if name == SMOLLM2:
                    raise MissingDependencyError(PACKAGE, install=INSTALL) from error
                raise
        return LanguageModel.from_pretrained(place, device=device, dtype=dtype)


def _tell(message: str) -> None:
    Terminal(stderr=True).print(message, soft_wrap=True)
