"""The language model of `sift ask`: what can be wrong with its name or device is said at once."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sift_core.errors import InvalidInputError

if TYPE_CHECKING:
    from sift_core.answering import LanguageModel

NO_MODEL = (
    "no model was named; pass --model, set SIFT_MODEL, or write `model` into sift.toml: an id on "
    "the hub, such as Qwen/Qwen2.5-0.5B-Instruct, or a folder with a causal model of transformers. "
    "(examples/tiny_lm of the repository runs everywhere, but is a toy that writes nonsense.)"
)


def load_language_model(name: str | None, device: str | None) -> LanguageModel:
    """Return a model, without a word of the libraries below on stdout or stderr.

    Args:
        name: Id on the hub, or a folder.
        device: As in torch; the fastest there is if None.

    Raises:
        InvalidInputError: If no model is named, it is not there or no causal one, or there is no
            such device.
    """
    if not name:
        raise InvalidInputError(NO_MODEL)
    from sift_core.answering import LanguageModel
    from sift_core.cli.model_places import model_place
    from sift_core.cli.stores import quieten_transformers

    quieten_transformers()
    if device is not None:
        check_device(device)
    place = model_place(name, "transformers")
    with warnings.catch_warnings():  # of what a reader of the answer can do nothing about
        warnings.simplefilter("ignore")
        return LanguageModel.from_pretrained(place, device=device)


def check_device(device: str) -> None:
    """Refuse a device that torch does not know or this machine does not have.

    Raises:
        InvalidInputError: If so; the message says which there are.
    """
    import torch

    there = {"cpu": 1, "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0}
    there["mps"] = int(torch.backends.mps.is_available())
    names = ", ".join(name for name, n in there.items() if n)
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise InvalidInputError(f"--device must be one of {names}, got {device!r}") from error
    if (wanted.index or 0) < there.get(wanted.type, 0):
        return
    build = ""
    if wanted.type == "cuda" and torch.version.cuda is None:
        build = f" (torch {torch.__version__} was built without CUDA)"
    raise InvalidInputError(
        f"there is no device {device!r} here{build}, only {names}; leave --device out to take the "
        f"fastest that there is"
    )
