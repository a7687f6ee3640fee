"""An adapter that has learned a sample of a collection, for answers that fetch and learn nothing.

After Bertolissi et al. (2025), "Local Mixtures of Experts: Essentially Free Test-Time Training via
Model Merging", arXiv 2505.14136, with one adapter in place of one for each cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from sift_core.answering.fine_tuning import fine_tune
from sift_core.answering.model.adapters import CONFIG_NAME, MERGE, WEIGHTS_NAME, Adapter
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.weights_fingerprint import digest_of
from sift_core.answering.settings import FineTuningSettings
from sift_core.checks import as_count, check_text
from sift_core.errors import InvalidInputError
from sift_core.files import DAMAGE, file_checksum, seal, unseal, write_whole
from sift_core.types import DocumentSample

MANIFEST = "collection.json"
_FILES = (CONFIG_NAME, WEIGHTS_NAME)
FORMAT = 3  # of the folder, and of what is learned: raise it when either changes
RANK, ALPHA, LEARNING_RATE = 16, 16, 1e-3  # decision 0028

OnSample = Callable[[int, int, float], object]


def learn_collection(
    language_model: LanguageModel,
    sample: DocumentSample,
    folder: str | Path,
    *,
    n_chunks: int = 1000,
    settings: FineTuningSettings | None = None,
    on_step: OnSample | None = None,
) -> Adapter:
    """Return an adapter that has learned a collection, learned once and kept in a folder.

    Each chunk is one step of `fine_tune`, in random order. The same call returns what is in the
    folder already. If the collection has changed since, the adapter there goes on with those of the
    drawn chunks that it has not learned. Chunks that are gone stay learned; delete the folder to
    forget them. The model stays as it is.

    Args:
        language_model: The model to learn with.
        sample: The collection, or a part of it (`SamplableSource.sample`), in any order.
        folder: Made where it is missing. It holds the adapter in PEFT's format and a manifest
            with the checksums of its files.
        n_chunks: How many chunks are learned at most, drawn at random, >= 1. A chunk that is in
            the collection twice is learned once. Default: 1,000.
        settings: How to learn. Default: rank 16, alpha 16 and a rate of 1e-3.
        on_step: Called after each step with the number of steps taken, the number of all, and the
            loss before it in nats a token. What it raises ends the learning.

    Raises:
        AnswerError: If the model fails.
        InvalidInputError: If `n_chunks` is < 1, the folder has an adapter of another model, with
            other settings or of another collection, it cannot be written, or the model cannot
            learn so.
    """
    settings = settings or usual_settings()
    texts = _drawn(sample, as_count("n_chunks", n_chunks, minimum=1))
    place = Path(folder)
    how: dict[str, Any] = {
        "format": FORMAT,
        "model": language_model.name,
        "fingerprint": language_model.fingerprint,
        "settings": settings.as_record(),
    }
    earlier = _read_manifest(place)
    known = [] if earlier is None else earlier["learned"]
    new = [text for text in texts if _digest(text) not in set(known)]
    if earlier is not None:
        is_other = len(new) == len(texts) > 0
        if is_other or any(earlier[name] != value for name, value in how.items()):
            raise InvalidInputError(
                f"the adapter at {str(folder)!r} has learned none of these chunks, or by another "
                f"model or with other settings; delete that folder, or pass another"
            )
    if new or earlier is None:
        _write(place, lambda: place.mkdir(parents=True, exist_ok=True))  # before the work
        steps = count(1)
        tuned = fine_tune(
            language_model,
            new,
            settings,
            on_step=lambda loss: on_step and on_step(next(steps), len(new), loss),
            start_from=None if earlier is None else load_learned(place, language_model),
        )
        learned = [*known, *map(_digest, new)]
        manifest = {**how, "learned": learned}
        # All that was learned, in order, so that no other adapter has this name.
        before = "" if earlier is None else earlier["identity"]
        manifest["identity"] = digest_of([json.dumps(manifest, sort_keys=True), before])
        _write(place, lambda: _save(tuned.adapter, place, manifest))
    return load_learned(place, language_model)


def load_learned(folder: str | Path, language_model: LanguageModel) -> Adapter:
    """Return the adapter that `learn_collection` has written to a folder.

    Raises:
        InvalidInputError: If there is none, a file is damaged, or it was made for another model.
    """
    place = Path(folder)
    manifest = _read_manifest(place)
    if manifest is None:
        raise InvalidInputError(
            f"nothing was learned at {str(folder)!r}; make it: sift learn, or `learn_collection`"
            + (f"; of an adapter of PEFT, {MERGE}" if (place / CONFIG_NAME).is_file() else "")
        )
    if manifest["fingerprint"] != language_model.fingerprint:
        raise InvalidInputError(
            f"the adapter at {str(folder)!r} was learned by {manifest['model']!r}, or other "
            f"weights of that name, not by {language_model.name!r}; use that model, or learn again"
        )
    try:
        for name, checksum in manifest["files"].items():
            if file_checksum(place / name) != checksum:
                raise ValueError(f"{name} is not the file that was written")
    except (OSError, ValueError) as error:
        raise _useless(place, error) from error
    return Adapter.load(place, key=manifest["identity"])


def usual_settings() -> FineTuningSettings:
    """Return how a collection is learned by default: a LoRA of rank 16, a rate of 1e-3."""
    from peft import LoraConfig  # takes seconds

    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear")
    return FineTuningSettings(lora=lora, learning_rate=LEARNING_RATE)


def _save(adapter: Adapter, place: Path, manifest: Mapping[str, Any]) -> None:
    """Write an adapter, and last the manifest: where that is, all is whole."""
    adapter.save(place)
    files = {name: file_checksum(place / name) for name in _FILES}
    write_whole(place / MANIFEST, seal({**manifest, "files": files}, MANIFEST))


def _write(place: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise InvalidInputError(
            f"what is learned cannot be kept in {str(place)!r}: {error}; make room, or pass "
            f"another folder"
        ) from error


def _drawn(sample: DocumentSample, n_chunks: int) -> list[str]:
    """Return the texts to learn, in order; the same whatever the order of the sample.

    They come by their hashes, so that few others are drawn when few of the collection change.
    """
    return sorted(set(sample.texts), key=_digest)[:n_chunks]


def _digest(text: str) -> str:
    """Return how a manifest names a text: 16 hexadecimal digits."""
    return digest_of([text])[:16]


def _read_manifest(place: Path) -> dict[str, Any] | None:
    """Return what a folder's manifest says; None where there is none.

    Raises:
        InvalidInputError: If it is damaged, or of another format.
    """
    try:
        manifest: dict[str, Any] = unseal((place / MANIFEST).read_bytes(), MANIFEST)
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']}, not {FORMAT}")
        if manifest["files"].keys() != set(_FILES):
            raise ValueError(f"it names other files than {' and '.join(_FILES)}")
        for name in ("model", "fingerprint", "identity"):
            check_text(name, manifest[name])
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as error:
        raise _useless(place, error) from error
    return manifest


def _useless(place: Path, why: object) -> InvalidInputError:
    return InvalidInputError(
        f"the folder {str(place)!r} is of no use: {why}; delete it and run `sift learn` again"
    )
