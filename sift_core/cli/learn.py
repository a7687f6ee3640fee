"""`sift learn`: adapters of the index's clusters, for answers without learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sift_core.cli.learning import LearningProgress
from sift_core.cli.models import load_language_model
from sift_core.cli.output import counted, print_json, stderr_console, stdout_console, working
from sift_core.cli.settings import (
    DEFAULT_ADAPTERS,
    DEFAULT_MODEL,
    DEFAULT_STORE,
    AdaptersOption,
    DeviceOption,
    DtypeName,
    DtypeOption,
    EmbedderOption,
    JsonOption,
    ModelOption,
    StoreOption,
)
from sift_core.cli.stores import StoreAddress, open_store
from sift_core.errors import InvalidInputError

MOST_CHUNKS = 20_000  # guess: what is clustered at most, drawn at random


def learn(
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = DEFAULT_MODEL,
    embedder: EmbedderOption = None,
    adapters: AdaptersOption = DEFAULT_ADAPTERS,
    clusters: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many adapters at most; each takes memory and disk. With 1 all is one.",
        ),
    ] = 24,
    chunks: Annotated[
        int, typer.Option(min=1, help="How many chunks are learned from in all at most.")
    ] = 1000,
    device: DeviceOption = None,
    dtype: DtypeOption = DtypeName.AUTO,
    json: JsonOption = False,
) -> None:
    """Learn the index once, for `sift ask --mode merged`, which learns nothing at a question.

    Clusters the chunks and fine-tunes an adapter on each cluster. What was interrupted goes on by
    the same command.

    Examples:
    sift learn
    sift ask "How do I upload a file?" --mode merged
    """
    address = StoreAddress.parse(store)
    with open_store(address, embedder_name=embedder) as source:
        name = source.embedder_name or embedder
        if name is None:
            raise InvalidInputError(
                f"the store {address} does not say which model embedded its documents; pass it "
                f"with --embedder"
            )
        with working("Reading the store …"):
            sample = source.sample(MOST_CHUNKS, np.random.default_rng(0))
    with working("Loading the language model …") as status:
        from sift_core.answering import learn_clusters  # with torch

        language_model = load_language_model(
            model, device, dtype=dtype.value, console=status.console
        )
        status.update("Clustering …")
        progress: list[LearningProgress] = []

        def on_step(done: int, total: int, loss: float) -> None:
            if not progress:
                n_steps = total - done + 1
                console = stderr_console()
                progress.append(LearningProgress(status=status, console=console, n_steps=n_steps))
            progress[0].step(loss)

        found = learn_clusters(
            language_model,
            sample,
            adapters,
            embedder_name=name,
            n_clusters=clusters,
            n_chunks=chunks,
            on_step=on_step,
        )
    if json:
        print_json(
            {
                "adapters": adapters,
                "n_adapters": len(found.adapters),
                "bytes": found.n_bytes,
                "n_learned": min(chunks, len(sample.texts)),
                "n_stored": sample.n_stored,
                "store": str(address),
                "model": model,
                "embedder": name,
            }
        )
        return
    console = stdout_console()
    n_learned = min(chunks, len(sample.texts))
    of = f"{n_learned:,} of " if n_learned < sample.n_stored else ""
    console.say(
        f"{counted(len(found.adapters), 'adapter')} learned from "
        f"{of}{counted(sample.n_stored, 'chunk')} in {Path(adapters)}; in use they take "
        f"{found.n_bytes / 2**20:,.0f} MiB of memory."
    )
    where = "" if adapters == DEFAULT_ADAPTERS else f" --adapters {adapters}"
    console.say(f'Next: sift ask "…" --mode merged{where}')
