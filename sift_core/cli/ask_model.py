"""The language model of `sift ask`: what can be wrong with its name or device is said at once."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from sift_core.errors import InvalidInputError

if TYPE_CHECKING:
    from sift_core.answering import LanguageModel

HUB_TIMEOUT_S = 5.0  # a hub that is there answers in a fraction of one

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
    from sift_core.cli.stores import quieten_transformers

    quieten_transformers()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if device is not None:
        check_device(device)
    place = model_place(name)
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


def model_place(name: str) -> str:
    """Return where to load a model from: its folder, its copy in the hub's cache, or its id.

    The hub is asked once and at most for some seconds: transformers itself tries for most of a
    minute before it says that there is no network.

    Raises:
        InvalidInputError: If there is no such folder, the hub knows no such model, or it
            cannot be reached and the model was not downloaded before.
    """
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser())
    if name.startswith((".", "/", "~", "\\")) or name.count("/") > 1:
        raise InvalidInputError(
            f"there is no model folder {name!r}; pass a folder with config.json and weights in "
            f"safetensors, or an id on the hub"
        )
    return _place_on_hub(name)


def _place_on_hub(name: str) -> str:
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    advice = "check the spelling, or pass a folder with a model of transformers"
    try:
        model_info(name, timeout=HUB_TIMEOUT_S)
    except HFValidationError as error:
        raise InvalidInputError(
            f"{name!r} is neither a folder nor an id that the hub could know; {advice}"
        ) from error
    except GatedRepoError as error:
        raise InvalidInputError(
            f"the hub shows the model {name!r} only to those who accepted its terms; accept them "
            f"on its page, and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise InvalidInputError(
            f"the hub has no model {name!r}, or shows it to others only; {advice}"
        ) from error
    except Exception as error:  # of the client's HTTP library, which differs between its versions
        try:
            return snapshot_download(name, local_files_only=True)
        except LocalEntryNotFoundError:
            raise InvalidInputError(
                f"the model {name!r} is no folder here and was not downloaded before, and the hub "
                f"cannot be asked for it ({' '.join(str(error).split())[:120]}); check spelling "
                f"and network, or pass a folder with a model of transformers"
            ) from error
    return name
