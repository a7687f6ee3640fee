"""Where a model is that was named: in a folder, in the hub's cache, or on the hub.

What is wrong with a name is said at once and in one line. transformers and sentence-transformers
try for most of a minute before they say that there is no network.
"""

from __future__ import annotations

from pathlib import Path

from sift_core.errors import InvalidInputError

HUB_TIMEOUT_S = 5.0  # a hub that is there answers in a fraction of one


def model_place(name: str, library: str) -> str:
    """Return where to load a model from: its folder, its copy in the hub's cache, or its id.

    The hub is asked once and at most for some seconds.

    Args:
        name: Folder, or id on the hub.
        library: Whose model it is, for messages.

    Raises:
        InvalidInputError: If there is no such folder, the hub knows no such model, or it
            cannot be reached and the model was not downloaded before.
    """
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser())
    if name.startswith((".", "/", "~", "\\")) or name.count("/") > 1:
        raise InvalidInputError(
            f"there is no model folder {name!r}; pass a folder with a model of {library}, or an "
            f"id on the hub"
        )
    return _place_on_hub(name, library)


def _place_on_hub(name: str, library: str) -> str:
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    advice = f"check the spelling, or pass a folder with a model of {library}"
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
                f"and network, or pass a folder with a model of {library}"
            ) from error
    return name
