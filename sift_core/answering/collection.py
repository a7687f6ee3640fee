"""An adapter that has learned a sample of a collection, for answers that fetch and learn nothing.

After Bertolissi et al. (2025), "Local Mixtures of Experts: Essentially Free Test-Time Training via
Model Merging", arXiv 2505.14136, with one adapter in place of one for each cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from sift_core.answering.distillation import Passage, steps_of, taught_windows
from sift_core.answering.fine_tuning import OnStep, fine_tune, fine_tune_windows
from sift_core.answering.model.adapters import CONFIG_NAME, MERGE, WEIGHTS_NAME, Adapter
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.taught_window import TaughtWindow
from sift_core.answering.model.weights_fingerprint import digest_of
from sift_core.answering.settings import FineTuningSettings
from sift_core.checks import as_count, check_text, short_repr
from sift_core.errors import InvalidInputError
from sift_core.files import DAMAGE, file_checksum, seal, unseal, write_whole
from sift_core.types import DocumentSample

MANIFEST = "collection.json"
_FILES = (CONFIG_NAME, WEIGHTS_NAME)
FORMAT = 3  # of the folder, and of what is learned: raise it when either changes
RANK, ALPHA, LEARNING_RATE = 16, 16, 1e-3  # decision 0028

OnSample = Callable[[int, int, float], object]
OnChunk = Callable[[int, int], object]
Objective: TypeAlias = Literal["next-token", "distill"]


def learn_collection(
    language_model: LanguageModel,
    sample: DocumentSample,
    folder: str | Path,
    *,
    n_chunks: int = 1000,
    objective: Objective = "next-token",
    settings: FineTuningSettings | None = None,
    on_step: OnSample | None = None,
    on_chunk: OnChunk | None = None,
) -> Adapter:
    """Return an adapter that has learned a collection, learned once and kept in a folder.

    The same call returns what is in the folder already. If the collection has changed since, the
    adapter there goes on with those of the drawn chunks that it has not learned. Chunks that are
    gone stay learned; delete the folder to forget them. The model stays as it is. If learning ends
    early, by `max_seconds` or a loss that is not finite, the same call goes on with what is left.

    Args:
        language_model: The model to learn with.
        sample: The collection, or a part of it (`SamplableSource.sample`), in any order.
        folder: Made where it is missing. It holds the adapter in PEFT's format and a manifest
            with the checksums of its files.
        n_chunks: How many chunks are learned at most, drawn at random, >= 1. A chunk that is in
            the collection twice is learned once. Default: 1,000.
        objective: "next-token" learns each chunk as a text, in one step of `fine_tune`. "distill"
            learns what the model that reads a chunk answers to questions about it, see
            `sift_core.answering.distillation`. That takes some twenty times as long. Default:
            "next-token".
        settings: How to learn. Default: rank 16, alpha 16 and a rate of 1e-3.
        on_step: Called after each step with the number of steps taken, the number of all, and the
            loss before it in nats a token. What it raises ends the learning.
        on_chunk: Called with "distill", before the first step, after each chunk that was asked
            about, with the number of those and of all. What it raises ends the learning.

    Raises:
        AnswerError: If the model fails.
        InvalidInputError: If `n_chunks` is < 1, `objective` is none of these, no chunk can be asked
            about, the folder has an adapter of another model, with other settings, by another
            objective or of another collection, it cannot be written, or the model cannot learn so.

    Example:
        >>> sample = source.sample(4, np.random.default_rng(0))
        >>> adapter = learn_collection(language_model, sample, folder / "learned")
        >>> adapter.base_name == language_model.name
        True
    """
    settings = settings or usual_settings()
    if objective not in get_args(Objective):
        raise InvalidInputError(
            f'`objective` must be "next-token" or "distill", got {short_repr(objective)}'
        )
    passages = _drawn(sample, as_count("n_chunks", n_chunks, minimum=1))
    place = Path(folder)
    how: dict[str, Any] = {
        "format": FORMAT,
        "model": language_model.name,
        "fingerprint": language_model.fingerprint,
        "settings": settings.as_record(),
    }
    if objective == "distill":
        how["objective"] = objective
    earlier = _read_manifest(place)
    known = [] if earlier is None else earlier["learned"]
    names = set(known)
    new = [passage for passage in passages if _digest(passage.text) not in names]
    if earlier is not None:
        is_other = len(new) == len(passages) > 0
        if is_other or any(earlier.get(name) != how.get(name) for name in {*how, "objective"}):
            raise InvalidInputError(
                f"the adapter at {str(folder)!r} has learned none of these chunks, or by another "
                f"model or objective or with other settings; delete that folder, or pass another"
            )
    if new or earlier is None:
        _write(place, lambda: place.mkdir(parents=True, exist_ok=True))  # before the work
        start = None if earlier is None else load_learned(place, language_model)
        adapter, taken = _learn(language_model, new, objective, settings, on_step, on_chunk, start)
        manifest = {**how, "learned": [*known, *(_digest(passage.text) for passage in taken)]}
        # All that was learned, in order, so that no other adapter has this name.
        before = "" if earlier is None else earlier["identity"]
        manifest["identity"] = digest_of([json.dumps(manifest, sort_keys=True), before])
        _write(place, lambda: _save(adapter, place, manifest))
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


def count_learned(folder: str | Path, sample: DocumentSample) -> int:
    """Return how many different texts of a sample the adapter in a folder has learned.

    Raises:
        InvalidInputError: If the manifest in the folder is damaged.
    """
    manifest = _read_manifest(Path(folder))
    known = set() if manifest is None else set(manifest["learned"])
    return sum(_digest(text) in known for text in set(sample.texts))


def usual_settings() -> FineTuningSettings:
    """Return how a collection is learned by default: a LoRA of rank 16, a rate of 1e-3."""
    from peft import LoraConfig  # takes seconds

    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear")
    return FineTuningSettings(lora=lora, learning_rate=LEARNING_RATE)


def _learn(
    language_model: LanguageModel,
    passages: Sequence[Passage],
    objective: Objective,
    settings: FineTuningSettings,
    on_step: OnSample | None,
    on_chunk: OnChunk | None,
    start_from: Adapter | None,
) -> tuple[Adapter, Sequence[Passage]]:
    """Return what is learned from passages, in order, and which of them no later call learns.

    `learn_collection` has the arguments.
    """

    def counted(n_steps: int) -> OnStep:
        done = count(1)
        return lambda loss: on_step and on_step(next(done), n_steps, loss)

    if objective == "next-token":
        texts = [passage.text for passage in passages]
        on_each = counted(len(texts))
        tuned = fine_tune(language_model, texts, settings, on_step=on_each, start_from=start_from)
        is_whole, positions = tuned.report.stop_reason == "done", tuned.report.learned
        return tuned.adapter, passages if is_whole else passages[: max(positions, default=-1) + 1]
    lessons = _lessons(language_model, passages, on_chunk)
    windows = list(chain.from_iterable(lessons))
    if not windows and start_from is not None:
        return start_from, passages
    if not windows:
        raise InvalidInputError(
            "no chunk has a sentence, name or number to ask about beside which the model's window "
            'has room; pass shorter chunks, or learn with the objective "next-token"'
        )
    steps = steps_of(windows)
    tuned = fine_tune_windows(
        language_model, steps, settings, on_step=counted(len(steps)), start_from=start_from
    )
    if tuned.report.stop_reason == "done":
        return tuned.adapter, passages
    seen = {id(window) for step in tuned.report.learned for window, _ in steps[step]}
    pairs = zip(passages, lessons, strict=True)
    return tuned.adapter, [one for one, own in pairs if not own or seen & set(map(id, own))]


def _lessons(
    language_model: LanguageModel, passages: Sequence[Passage], on_chunk: OnChunk | None
) -> list[list[TaughtWindow]]:
    """Return what the model that reads each passage teaches about it."""
    lessons = []
    for n, passage in enumerate(passages, start=1):
        lessons.append(taught_windows(language_model, passage))
        if on_chunk is not None:
            on_chunk(n, len(passages))
    return lessons


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


def _drawn(sample: DocumentSample, n_chunks: int) -> list[Passage]:
    """Return the chunks to learn, in order; the same whatever the order of the sample.

    They come by their hashes, so that few others are drawn when few of the collection change.
    """
    rows = zip(sample.document_ids, sample.texts, sample.metadata, strict=True)
    in_order = sorted(rows, key=lambda row: row[0], reverse=True)  # of a text, the first id counts
    passages = {text: Passage.of(text, metadata) for _, text, metadata in in_order}
    return sorted(passages.values(), key=lambda passage: _digest(passage.text))[:n_chunks]


def _digest(text: str) -> str:
    """Return the name of a chunk in a manifest, made from its text: 16 hexadecimal digits."""
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
        names = [manifest[name] for name in ("model", "fingerprint", "identity")]
        for name in [*names, *list(manifest["learned"])]:
            check_text("a name", name)
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as error:
        raise _useless(place, error) from error
    return manifest


def _useless(place: Path, why: object) -> InvalidInputError:
    return InvalidInputError(
        f"the folder {str(place)!r} is of no use: {why}; delete it and run `sift learn` again"
    )
