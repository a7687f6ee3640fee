"""From the flags of a command to the engine that answers: model, calibration, adapters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sift_core.cli.models import load_language_model
from sift_core.cli.options import GENERATOR_KEY_VARIABLE, AnswerOptions
from sift_core.cli.output import Terminal
from sift_core.cli.store_addresses import DEFAULT_COLLECTION, StoreAddress
from sift_core.cli.stores import OpenedIndex
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions
from sift_core.service.settings import key_of
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, LanguageModel, OpenAIGenerator


def load_engine(
    model: str,
    opened: OpenedIndex | None,
    *,
    options: ChoiceOptions,
    answers: AnswerOptions,
    max_new_tokens: int,
    is_calibrated: bool = True,
    adapters: str | None = None,
    calibrated_adapters: str | None = None,
) -> AnswerEngine:
    """Load a language model, and return an engine that answers with it as the flags say.

    Args:
        model: Id or folder. Not loaded if the flags name a server that writes.
        opened: The index. None makes an engine without documents.
        options: What the choice of chunks for a prompt obeys.
        answers: How the model is loaded, learns and answers.
        max_new_tokens: Length of an answer at most.
        is_calibrated: Whether mode "auto" goes by the calibration of the index. Default: True.
        adapters: Folder of `sift learn`, for mode "learned". Default: none.
        calibrated_adapters: Folder that is used if the calibration has mode "learned". Default:
            none.

    Raises:
        InvalidInputError: If there is no such model, or something that was named cannot be used.
        GeneratorError: If the named server is gone or refuses.
    """
    generator = generator_of(answers)
    calibrated: dict[str, Any] = {}
    language_model = None
    if generator is None:
        language_model = load_language_model(model, answers.device, dtype=answers.dtype)
    elif adapters is not None:
        raise InvalidInputError(
            "what sift learn has made (--adapters, the mode learned) is for --model, and the "
            "server at --generator learns nothing; leave out --generator, or use the mode context "
            "or base"
        )
    from sift_core.answering import AnswerEngine, LearningOptions, PromptOptions, VariancePolicy

    if language_model is not None and opened is not None and is_calibrated:
        calibrated = _calibrated(
            opened.address, answers.calibration, calibrated_adapters, language_model
        )
    learned = calibrated.get("adapter")
    if adapters is not None and language_model is not None:
        from sift_core.answering.collection import load_learned

        learned = load_learned(adapters, language_model)
    policy = calibrated.get("policy") or VariancePolicy()
    rewriting = answers.query_rewriting
    without_torch: dict[str, Any] = {} if generator is None else {"cache": None}
    return AnswerEngine(
        language_model=cast("LanguageModel", language_model),  # None: the generator
        generator=generator,
        source=None if opened is None else opened.source,
        embedder=None if opened is None else opened.embedder,
        options=options,
        prompt=PromptOptions(cite=answers.cite),
        learning=LearningOptions(
            effort=answers.effort,
            n_steps=answers.steps,
            adapter=learned,
            **without_torch,
        ),
        generation={"max_new_tokens": max_new_tokens},
        policy=replace(policy, on_off_topic=answers.on_off_topic),
        query_rewriting=None if rewriting == "off" else rewriting,
    )


def generator_of(answers: AnswerOptions) -> OpenAIGenerator | None:
    """Return the server that writes the answers, asked once; None if the flags name none.

    Raises:
        InvalidInputError: If the address or the model's name is missing or cannot be used.
        GeneratorError: If the server is gone or refuses.
    """
    if answers.generator is None:
        if answers.generator_model is not None:
            raise InvalidInputError(
                "--generator-model needs --generator: the address of the server that has the model"
            )
        return None
    from sift_core.answering import OpenAIGenerator

    generator = OpenAIGenerator(
        answers.generator,
        answers.generator_model or "?",
        api_key=key_of(GENERATOR_KEY_VARIABLE),
        window=answers.generator_window,
    )
    names = generator.check()
    if answers.generator_model is None:
        listed = ", ".join(sorted(names)[:20]) or "none that the server lists"
        raise InvalidInputError(f"--generator needs --generator-model NAME; there are: {listed}")
    return generator


def calibration_path(address: StoreAddress) -> Path:
    """Return where an index's calibration is kept unless another place is named: beside it.

    That of a server is in the current folder.
    """
    end = "" if address.collection == DEFAULT_COLLECTION else f"-{address.collection}"
    beside = ".sift" if address.is_server else address.location.rstrip("/\\")
    return Path(f"{beside}-calibration{end}")


def _calibrated(
    address: StoreAddress, named: str | None, adapters: str | None, language_model: LanguageModel
) -> dict[str, Any]:
    """Return the "policy" of a calibration, and its "adapter"; nothing without a calibration.

    Args:
        address: The index.
        named: File of a calibration. Default: the one beside the index, if it can be used.
        adapters: Folder that is used if the calibration has mode "learned".
        language_model: Answers.

    Raises:
        InvalidInputError: If the named one cannot be used.
    """
    path = Path(named or calibration_path(address))
    if named is None and not path.is_file():
        return {}
    from sift_core.answering.calibration import Calibration
    from sift_core.answering.collection import load_learned

    try:
        calibration = Calibration.load(path, language_model)
        found: dict[str, Any] = {"policy": calibration.policy}
        has_learned = any(one.mode is AnswerMode.LEARNED for one in calibration.strategies)
        if has_learned and adapters is not None and Path(adapters).is_dir():
            found["adapter"] = load_learned(adapters, language_model)
        return found
    except InvalidInputError as error:
        if named is not None:
            raise
        Terminal(stderr=True).say(
            f"{error}. Mode auto reads what fits, as without one.", style="dim"
        )
        return {}
