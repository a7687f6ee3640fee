"""Where a model of a hub is: asked once and briefly, so that a wrong name is said at once.

transformers and sentence-transformers try for most of a minute before they say that there is no
network.
"""

from __future__ import annotations

import logging
import os
from textwrap import shorten

from sift_core.errors import InvalidInputError

HUB_TIMEOUT_S = 5.0  # a hub that is there answers in a fraction of one


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


def quieten_transformers() -> None:
    """Have transformers and the hub print errors alone, in the whole process."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the hub's, too
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # "Retrying in 4s"
