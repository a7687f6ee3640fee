"""The questions of `sift ask`: chosen, learned, answered one by one, and stopped when asked to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sift_core.answering import AnswerEngine, AnswerStream, Choice, Session
from sift_core.checks import check_question
from sift_core.types import Answer, Message

HISTORY_SHARE = 0.5  # of the window that history may take at most, so that chunks have room


@dataclass(kw_only=True, eq=False)
class Asking:
    """Answers questions as the options of the command say.

    Args:
        engine: Answers; its model is used by one question at a time.
        mode: As for `AnswerEngine.answer`.
        latency_s: As for `AnswerEngine.answer`.
        keeps_documents: Whether the documents of the first question serve all.
        history: What was said before, oldest first; grows by each answer that is kept.
    """

    engine: AnswerEngine
    mode: str
    latency_s: float | None = None
    keeps_documents: bool = False
    history: list[Message] = field(default_factory=list)
    _session: Session | None = None

    def stream(
        self,
        question: str,
        *,
        on_choice: Callable[[Choice], object],
        on_loss: Callable[[float], object],
    ) -> AnswerStream:
        """Return the answer while it is written; closing the stream ends learning and writing.

        Everything is computed in another thread, choosing included: Ctrl-C reaches the caller's
        alone, and an interrupt inside compiled code would be no KeyboardInterrupt any more.

        Args:
            question: In words, not empty.
            on_choice: Called in that thread when mode and documents are settled.
            on_loss: Called in that thread after each training step with the loss before it.
        """

        def produce(on_text: Callable[[str], object], go_on: Callable[[float], object]) -> Answer:
            choice = self._choose(question)
            go_on(0.0)  # leaves by an exception where the stream is closed
            on_choice(choice)

            def on_step(loss: float) -> None:
                go_on(loss)
                on_loss(loss)

            def criterion(*_: Any, **__: Any) -> bool:
                go_on(0.0)  # tokens that make no text yet, too
                return False

            options: dict[str, Any] = {"on_text": on_text, "stopping_criteria": [criterion]}
            if not self.keeps_documents:
                return self.engine.answer_from(choice, on_step=on_step, **options)
            is_first = self._session is None
            session = self._session or self.engine.session_from(choice, on_step=on_step)
            self._session = session
            answer = session.answer(choice.query.text, history=choice.query.history, **options)
            spent = session.timings if is_first else {}
            return replace(answer, timings={**spent, **answer.timings})

        return AnswerStream(produce, self.engine.language_model.submit)

    def _choose(self, question: str) -> Choice:
        """Return the mode and the documents for a question: new ones, or those that are kept."""
        if self._session is not None:
            check_question(question)
            kept = self._session.choice
            query = replace(kept.query, text=question, history=self.history)
            return replace(kept, query=query, timings={})
        return self.engine.choose(
            question, mode=self.mode, history=self.history, latency_s=self.latency_s
        )

    def remember(self, question: str, answer: Answer) -> int:
        """Add a question and its answer to the history; return how many old turns had to go.

        A turn goes where the history takes more than half of the model's window.
        """
        self.history += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.text},
        ]
        model = self.engine.language_model
        n_gone = 0
        while self.history and len(model.prompt_ids(self.history)) > HISTORY_SHARE * model.window:
            del self.history[:2]
            n_gone += 1
        return n_gone

    def forget(self) -> None:
        """Begin anew: without history, and with documents for the next question."""
        self.history.clear()
        if self._session is not None:
            self._session.close()
            self._session = None
