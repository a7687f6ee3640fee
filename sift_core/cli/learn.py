"""`sift learn`: an adapter that has learned the index, for answers without learning."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from sift_core.cli import options as flags
from sift_core.cli.models import load_language_model
from sift_core.cli.output import Terminal, Working, counted, print_json
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_store

LONG_S = 5.0  # a fine-tuning that takes longer says how long
EVERY_S = 10.0  # in a pipe, where no line can be written over
MOST_CHUNKS = 20_000  # guess: what is read at most to draw chunks from


@flags.with_flags()
def learn(
    store: flags.StoreOption = flags.DEFAULT_STORE,
    model: flags.ModelOption = flags.DEFAULT_MODEL,
    adapters: flags.AdaptersOption = flags.DEFAULT_ADAPTERS,
    chunks: Annotated[int, typer.Option(min=1, help="How many chunks are learned at most.")] = 1000,
    objective: Annotated[
        Literal["next-token", "distill"],
        typer.Option(
            help='How: "next-token" learns the chunks as texts; "distill" learns what the model '
            "answers about each chunk when it reads it, which takes some twenty times as long."
        ),
    ] = "next-token",
    device: flags.DeviceOption = None,
    dtype: flags.DtypeOption = "auto",
    *,
    layout: flags.StoreLayout,
    json: flags.JsonOption = False,
) -> None:
    """Learn the index once, for `sift ask --mode learned`, which learns nothing at a question.

    Fine-tunes one adapter on chunks that are drawn at random, once. Called again after `sift
    index`, it learns what is new among the chunks that it draws. Chunks that are gone stay
    learned: delete the folder of --adapters to forget them.

    Examples:
    sift learn
    sift learn --objective distill --chunks 100
    sift ask "How do I upload a file?" --mode learned
    """
    address = StoreAddress.parse(store)
    with open_store(address, layout=layout) as source, Working("Reading the store …"):
        sample = source.sample(MOST_CHUNKS, np.random.default_rng(0))
    language_model = load_language_model(model, device, dtype=dtype)
    from sift_core.answering.collection import count_learned, learn_collection

    with Working("Fine-tuning …") as status:
        progress: list[LearningProgress] = []

        def on_step(done: int, total: int, loss: float) -> None:
            if not progress:
                progress.append(LearningProgress(status=status, n_steps=total - done + 1))
            progress[0].step(loss)

        n_distilled = 0

        def on_chunk(done: int, total: int) -> None:
            nonlocal n_distilled
            n_distilled = total
            status.update(f"Asking about the chunks: {done} of {total} …")

        found = learn_collection(
            language_model,
            sample,
            adapters,
            n_chunks=chunks,
            objective=objective,
            on_step=on_step,
            on_chunk=on_chunk,
        )
    record = {
        "adapters": adapters,
        "objective": objective,
        "bytes": found.n_bytes,
        "n_learned": count_learned(adapters, sample),
        "n_new": n_distilled or (progress[0].n_taken if progress else 0),
        "n_stored": sample.n_stored,
        "store": str(address),
        "model": model,
    }
    if json:
        print_json(record)
    else:
        _say(record)


def _say(record: Mapping[str, Any]) -> None:
    """Write what was learned, and the next command, as text."""
    n_learned, n_new, n_stored = (record[name] for name in ("n_learned", "n_new", "n_stored"))
    adapters = record["adapters"]
    console = Terminal()
    of = f"{n_learned:,} of " if n_learned < n_stored else ""
    known = "" if n_new == n_learned else f", {n_new:,} of them now"
    console.say(
        f"Learned {of}{counted(n_stored, 'chunk')} into {Path(adapters)}{known}; in use that "
        f"takes {record['bytes'] / 2**20:,.0f} MiB of memory."
    )
    where = "" if adapters == flags.DEFAULT_ADAPTERS else f" --adapters {adapters}"
    console.say(f'Next: sift ask "…" --mode learned{where}')


@dataclass(kw_only=True)
class LearningProgress:
    """Tells of each training step: the line of a terminal, and in a pipe a line now and then.

    Args:
        status: The line; where it is none of a terminal, its console gets whole lines.
        n_steps: How many steps there will be, unless time is over before.
        clock: Seconds.
    """

    status: Working
    n_steps: int
    clock: Callable[[], float] = time.monotonic
    _n: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._started = self._said_at = self.clock()

    @property
    def n_taken(self) -> int:
        """Steps that were taken."""
        return self._n

    def step(self, loss: float) -> None:
        """Note a step that was taken, with the loss before it in nats a token."""
        self._n += 1
        now = self.clock()
        left = (now - self._started) / self._n * (self.n_steps - self._n)
        self.status.update(
            f"Fine-tuning: step {self._n} of {self.n_steps}, about {left:.0f} s left, loss "
            f"{loss:.2f} nats a token …"
        )
        if self.status.notes.is_terminal:
            return
        if self._n == 1 and left > LONG_S:
            self.status.notes.say(f"Fine-tuning in {self.n_steps} steps: about {left:.0f} s.")
        elif self._n > 1 and now - self._said_at >= EVERY_S:
            self._said_at = now
            self.status.notes.say(f"  step {self._n} of {self.n_steps}, about {left:.0f} s left")
