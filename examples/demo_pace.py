"""How long a stage of the demo will take on this machine, from some measured passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from sift_core.answering import LanguageModel, fine_tune
from sift_core.answering.calibration import machine_of

N_READ, N_WRITTEN = 256, 8  # tokens of the passes that are timed
READINGS_A_STEP = 3.0  # forwards, and backwards through inputs and adapter
STEPS = (1, 4, 2, 5)  # sentences; the first step prepares what all use
SENTENCE = "The harbour has seven cranes, and two of them are older than the quay. "


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of the model's work.

    Args:
        read_s: A token that is read.
        write_s: A token that is written.
        step_s: What a training step takes beside its tokens.
        setup_s: What learning takes beside its steps.
    """

    read_s: float
    write_s: float
    step_s: float
    setup_s: float

    @classmethod
    def measure(cls, language_model: LanguageModel) -> Pace:
        """Return the pace of a model, in two seconds on a fast machine."""
        ids = language_model.token_ids(SENTENCE * (1 + N_READ // 8))[:N_READ]
        prompt = language_model.tokenizer.decode(ids)
        seconds = []
        for text, n_new in ((SENTENCE, 1), (prompt, 1), (prompt, 1 + N_WRITTEN)):  # warm up first
            started = perf_counter()
            language_model.generate(text, max_new_tokens=n_new, min_new_tokens=n_new)
            seconds.append(perf_counter() - started)
        _, reading, both = seconds
        read_s = reading / len(language_model.prompt_ids(prompt))
        moments = [perf_counter()]
        # Of unequal length, as chunks are: a first product of each shape takes longer.
        texts = [SENTENCE * n for n in STEPS]
        fine_tune(language_model, texts, on_step=lambda _: moments.append(perf_counter()))
        first, *others = (after - before for before, after in pairwise(moments))
        n_learned = sum(map(language_model.n_tokens, texts[1:]))
        beside_s = sum(others) - READINGS_A_STEP * read_s * n_learned
        return cls(
            read_s=read_s,
            write_s=max(both - reading, 0.0) / N_WRITTEN,
            step_s=max(beside_s / len(others), 0.0),
            setup_s=max(first - max(others), 0.0),
        )

    @classmethod
    def kept(cls, path: Path, language_model: LanguageModel) -> Pace:
        """Return the pace in a file; measure it first if it is of another machine or model.

        So a second run takes as many steps as the first one, and finds what that has learned.
        """
        key = [language_model.name, machine_of(language_model)]
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            if written["key"] == key:
                return cls(**written["pace"])
        except (OSError, ValueError, LookupError, TypeError):  # none yet, or damaged
            pass
        pace = cls.measure(language_model)
        path.write_text(json.dumps({"key": key, "pace": asdict(pace)}), encoding="utf-8")
        return pace

    def answering_s(self, *, read: int, written: int) -> float:
        """Return the seconds of reading and writing these numbers of tokens."""
        return self.read_s * read + self.write_s * written

    def learning_s(self, *, tokens: int, steps: int) -> float:
        """Return the seconds of learning tokens in a number of steps."""
        learned = READINGS_A_STEP * self.read_s * tokens
        return self.setup_s + steps * self.step_s + learned


def count_that_fits(most: int, seconds: Callable[[int], float], limit_s: float) -> int:
    """Return how many chunks or steps fit into the limit: `most`, a half of it, a quarter, >= 1."""
    n = most
    while n > 1 and seconds(n) > limit_s:
        n //= 2
    return n
