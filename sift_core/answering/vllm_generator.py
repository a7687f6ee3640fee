"""Texts that a vLLM writes, after the same tokens as here and with what was learned here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sift_core.answering.model.generation import Generation
from sift_core.answering.model.generation_options import check_stop
from sift_core.answering.model.hooks import active
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.prefix import Prefix
from sift_core.answering.model.prompt_tokens import Prompt
from sift_core.answering.model.sampling import GumbelNoise
from sift_core.answering.vllm_server import VllmServer
from sift_core.checks import shown
from sift_core.errors import InvalidInputError, SiftError

logger = logging.getLogger(__name__)

_SAMPLING = ("temperature", "top_p", "top_k", "min_p")


class VllmGenerator:
    """Writes the texts of an `AnswerEngine` in a vLLM; choosing and learning stay here.

    The prompt is made here and sent as tokens. What is learned is loaded for each text and unloaded
    behind it, also after an error, or kept for the next one of a session (`VllmServer(n_kept=…)`);
    where nothing is learned the base model writes. Threads may
    share it. Closing a stream of the engine's ends the writing there with its next piece.

    Sampling with a seed (`seeded`) becomes the server's: the same seed gives the same text there,
    and another than here. A text that goes in circles is not ended.

    Args:
        server: Where the same model runs.
        language_model: The engine's.
    """

    def __init__(self, server: VllmServer, language_model: LanguageModel) -> None:
        self._server, self._language_model = server, language_model

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 64,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        prefix: Prefix | None = None,
        **options: Any,
    ) -> Generation:
        """Return the server's continuation of `prompt`, greedy unless `options` say otherwise.

        Args:
            prompt: As for `LanguageModel.generate`, like the next three.
            max_new_tokens: Length of the continuation at most.
            stop: Texts that end the continuation.
            on_text: Called with each piece of the text. What it raises ends the text.
            prefix: Not used; the server remembers what it has read.
            **options: `do_sample`, `temperature`, `top_p`, `top_k`, `min_p`,
                `repetition_penalty`, what `seeded` returns, and `stopping_criteria`, which are
                called with None for tokens and scores before the text and after each piece.

        Raises:
            InvalidInputError: If prompt and continuation do not fit into the window, an option
                cannot be sent, or what was learned is no LoRA that the server takes.
            AdapterServerError: If the server is gone, late or refuses; nothing stays loaded.
        """
        check_stop(stop)
        ids = self._language_model.check_prompt(prompt, max_new_tokens)
        criteria = [*(options.pop("stopping_criteria", None) or [])]
        request = {
            "prompt": ids,
            "max_tokens": max_new_tokens,
            "stop": [*stop],
            **_sampling(options),
        }

        def is_over() -> bool:
            return any(criterion(None, None) for criterion in criteria)

        texts: list[str] = []
        n_new, reason = None, None
        with self._named() as model:
            if is_over():
                return _generation(ids, texts, n_new, reason)
            with closing(self._server.written({"model": model, **request})) as pieces:
                for piece in pieces:
                    n_new = n_new if piece.n_new_tokens is None else piece.n_new_tokens
                    reason = reason or piece.finish_reason
                    if piece.text:
                        texts.append(piece.text)
                        if on_text is not None:
                            on_text(piece.text)
                    if is_over():
                        break
        return _generation(ids, texts, n_new, reason)

    @contextmanager
    def _named(self) -> Iterator[str]:
        """Yield what the server is to write with: what is active here, loaded meanwhile."""
        learned: Any = active(self._language_model.model)
        if learned is None:
            yield self._server.base_model
            return
        name = self._server.load(learned)
        try:
            yield name
        finally:
            try:
                self._server.unload(name)
            except SiftError as error:  # the text is none the worse; it is tried again
                logger.warning("%s", error)


def _generation(
    ids: Sequence[int], texts: Sequence[str], n_new: int | None, reason: str | None
) -> Generation:
    return Generation(
        text="".join(texts),
        n_prompt_tokens=len(ids),
        n_new_tokens=len(texts) if n_new is None else n_new,  # a piece has a token at least
        finish_reason="length" if reason == "length" else "stop",
    )


def _sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the body of /v1/completions says of sampling.

    Raises:
        InvalidInputError: If an option has no counterpart there.
    """
    rest = dict(options)
    penalty = rest.pop("repetition_penalty", None)
    told = {} if penalty is None else {"repetition_penalty": penalty}
    is_sampled = rest.pop("do_sample", False)
    settings = {name: rest.pop(name, None) for name in _SAMPLING}
    processors = [*(rest.pop("logits_processor", None) or [])]
    if rest or not all(isinstance(one, GumbelNoise) for one in processors):
        names = ", ".join(sorted(rest)) or "logits_processor"
        raise InvalidInputError(
            f"vLLM is not asked for {shown(names)} from here; there are do_sample, "
            f"{', '.join(_SAMPLING)}, repetition_penalty and what `seeded` returns"
        )
    if processors:
        noise = processors[0]
        # -1 and 0: no limit, whatever the model's own settings there say.
        told |= {"temperature": noise.temperature, "top_p": noise.top_p, "seed": noise.seed}
        return {**told, "top_k": -1, "min_p": 0.0}
    if not is_sampled:
        return {**told, "temperature": 0.0}
    return {**told, **{name: value for name, value in settings.items() if value is not None}}
