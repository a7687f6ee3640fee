"""Bits per byte of test prompts under arms: what the paper's tables are made of.

    base model ─┐                                        ┌─ base
    data space ─┼─ K nearest ─ selector ─ N chunks ──────┼─ context: read what fits
    prompt ─────┘                                        ├─ fine_tune: one step a chunk
                                                         └─ both

Paper: section 5. `PreparedExperiment` reads, cuts and embeds; its tasks hold all that a worker
needs but the model, so that workers may be elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peft import LoraConfig

from benchmarks.language_modeling.arms import BASE, Arm
from benchmarks.language_modeling.documents import (
    NEAR_COPY,
    Document,
    chunks,
    cut,
    others,
    read_documents,
    read_near_copies,
    sample,
    token_spans,
)
from benchmarks.language_modeling.measuring import ChosenArm, Measurer, PromptTask
from benchmarks.language_modeling.running import ResultsFile, run_tasks
from benchmarks.records import environment
from benchmarks.text_variants import versions
from sift_core.answering import FineTuningSettings, LanguageModel
from sift_core.answering.model.loading import NumberType
from sift_core.errors import InvalidInputError
from sift_core.evaluation.embedding_cache import MINILM, EmbeddingCache
from sift_core.evaluation.search import nearest, unit_rows
from sift_core.types import CandidatePool

PACKAGES = ("numpy", "torch", "transformers", "sentence-transformers", "sift-rerank")
OF_THE_RUN = (  # which prompts are measured and where, not what each is measured on
    "prompts_per_domain",
    "skipped_per_domain",
    "near_duplicates",
    "near_copies",
)
CHUNK_TOKENS, CHUNKS_PER_DOCUMENT = 256, 2  # of the data space, from the beginning of a document
PROMPT_TOKENS = 384
SCORE_AFTER = (0, 1, 2, 5, 10, 20, 30, 40, 50)  # chunks, and always after the last
RANK, ALPHA, SEED = 64, 16.0, 0  # of the LoRA


@dataclass(frozen=True, kw_only=True)
class LanguageModelingExperiment:
    """What is measured on, and with which models.

    Args:
        data_space: Documents to choose from, see `read_documents`.
        prompts: Documents to be scored, of sources that the data space does not have.
        base_model: Folder, or name on the hub.
        documents_per_domain: How many documents of the data space of each domain, see `sample`;
            None for all. The nearest documents that `near_duplicates` names for near copies are
            there in any case.
        versions: How often each chunk is in the data space: once, or also in textual variants as
            mirrors of a page have them.
        prompts_per_domain: How many prompts of each domain; None for all. More may be added to
            the same results later.
        skipped_per_domain: How many prompts of each domain are left out before those: tune
            settings on other prompts than they are judged on.
        near_duplicates: Where the share of each prompt that the data space has is written, see
            `read_near_copies`; None where nobody knows.
        near_copies: Whether only prompts are measured of which the data space has a near copy, a
            share of at least `NEAR_COPY`.
        dtype: As in `LanguageModel.from_pretrained`.
    """

    data_space: Path
    prompts: Path
    base_model: str
    documents_per_domain: int | None = None
    versions: int = 1
    prompts_per_domain: int | None = 10
    skipped_per_domain: int = 0
    near_duplicates: Path | None = None
    near_copies: bool = False
    dtype: NumberType = "auto"

    def load_model(self) -> LanguageModel:
        """Return the base model."""
        return LanguageModel.from_pretrained(self.base_model, dtype=self.dtype)

    def load_measurer(self) -> Measurer:
        """Return a worker, the model loaded."""
        lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear")
        settings = FineTuningSettings(lora=lora, seed=SEED)
        return Measurer(self.load_model(), after=SCORE_AFTER, settings=settings)


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Rows of the data space in order of choice, σ² at the prompt, and the time it took."""

    rows: Any
    variances: list[float]
    seconds: float


class PreparedExperiment:
    """An experiment whose documents are read, cut and embedded.

    Args:
        experiment: What is measured on.
        cache_folder: Where embeddings are kept from run to run.

    Raises:
        InvalidInputError: If data or models are not as they should be.
    """

    def __init__(self, experiment: LanguageModelingExperiment, *, cache_folder: Path) -> None:
        self.experiment = experiment
        language_model = experiment.load_model()
        tokens_of = partial(token_spans, language_model)
        path = experiment.near_duplicates
        near = read_near_copies(path) if path else {}
        self._shares = {name: one.share for name, one in near.items()}
        space = read_documents(experiment.data_space)
        if experiment.documents_per_domain is not None:
            copied = {one.nearest for one in near.values() if one.share >= NEAR_COPY}
            kept = {one.document_id for one in sample(space, experiment.documents_per_domain)}
            space = [one for one in space if one.document_id in kept | copied]
        whole = chunks(space, tokens_of, CHUNK_TOKENS, per_document=CHUNKS_PER_DOCUMENT)
        self.chunks = _in_versions(whole, experiment.versions)
        prompts = cut(read_documents(experiment.prompts), tokens_of, PROMPT_TOKENS)
        self._refuse_shared_sources(prompts)
        self._other = others(prompts)
        wanted = prompts
        if experiment.near_copies:
            wanted = [one for one in prompts if self._shares.get(one.document_id, 0) >= NEAR_COPY]
        self.prompts = sample(
            wanted, experiment.prompts_per_domain, skipped=experiment.skipped_per_domain
        )
        self._n_tokens = {one.document_id: language_model.n_tokens(one.text) for one in prompts}
        self._embed(prompts, cache_folder)
        self.identity = self._identity(language_model)
        self.digest = _digest(self.identity)[:16]

    def record(self) -> dict[str, Any]:
        """Return the row that tells what the results of this experiment were measured on."""
        return {
            "kind": "experiment",
            "experiment": self.digest,
            "configuration": self.identity,
            **environment(PACKAGES, folder=Path(__file__).parent),
        }

    def key(self, arm: Arm, prompt: Document) -> str:
        """Return the key of one result."""
        return _digest([self.digest, arm.as_record(), prompt.document_id])

    def tasks(self, arms: Sequence[Arm], done: Collection[str]) -> list[PromptTask]:
        """Return a task for every prompt of which something is missing; the base is added.

        Takes some milliseconds a prompt and way of choosing: this is where chunks are chosen.

        Args:
            arms: What is measured, without repeats.
            done: Keys of results that are there.
        """
        wanted = list(dict.fromkeys([BASE, *arms]))
        tasks = []
        for prompt in self.prompts:
            missing = [arm for arm in wanted if self.key(arm, prompt) not in done]
            if missing:
                tasks.append(self._task(prompt, missing))
        return tasks

    def worker(self) -> LanguageModelingExperiment:
        """Return the experiment for a worker: on a machine with a GPU, with this dtype too."""
        return replace(self.experiment, dtype=self.identity["dtype"].removeprefix("torch."))

    def _task(self, prompt: Document, arms: Sequence[Arm]) -> PromptTask:
        choices: dict[Arm, Choice] = {}
        chosen = []
        for arm in arms:
            alike = arm.what_chooses
            if alike not in choices:
                choices[alike] = self._choose(alike, prompt)
            chosen.append((arm, choices[alike]))
        rows = sorted({int(row) for _, one in chosen for row in one.rows})
        place = {row: position for position, row in enumerate(rows)}
        query = self._queries[prompt.document_id]
        return PromptTask(
            prompt={
                "id": prompt.document_id,
                "domain": prompt.domain,
                "n_bytes": len(prompt.text.encode()),
                "n_tokens": self._n_tokens[prompt.document_id],
                "near_duplicate": self._shares.get(prompt.document_id),
            },
            text=prompt.text,
            experiment=self.digest,
            pool=CandidatePool(
                document_ids=[self.chunks[row].document_id for row in rows],
                texts=[self.chunks[row].text for row in rows],
                embeddings=self._vectors[rows],
                similarities=np.clip(self._vectors[rows] @ query, -1, 1),
            ),
            arms=[
                ChosenArm(
                    arm=arm,
                    key=self.key(arm, prompt),
                    positions=[place[int(row)] for row in one.rows],
                    variances=one.variances,
                    select_s=one.seconds,
                )
                for arm, one in chosen
            ],
        )

    def _choose(self, arm: Arm, prompt: Document) -> Choice:
        """Return what an arm chooses for a prompt, or for another one where it is the control."""
        if arm.selector is None:
            return Choice(rows=np.empty(0, dtype=np.intp), variances=[], seconds=0.0)
        is_control = arm.selector == "other prompt"
        asked = self._other[prompt.document_id] if is_control else prompt
        query = self._queries[asked.document_id]
        begin = time.perf_counter()
        candidates = nearest(self._vectors @ query, arm.n_candidates)
        positions = arm.choose(query, self._vectors[candidates])
        seconds = time.perf_counter() - begin
        rows = candidates[positions]
        variances = arm.variances(self._queries[prompt.document_id], self._vectors[rows])
        return Choice(rows=rows, variances=(variances / variances[0]).tolist(), seconds=seconds)

    def _embed(self, prompts: Sequence[Document], folder: Path) -> None:
        cache = EmbeddingCache(folder)
        of_chunks = cache.embed([one.text for one in self.chunks], "the data space")
        of_prompts = cache.embed([one.text for one in prompts], "the prompts")
        ids = [one.document_id for one in prompts]
        self._vectors = unit_rows(of_chunks, "chunks")  # (n, d), float32
        self._queries = dict(zip(ids, unit_rows(of_prompts, "prompts"), strict=True))

    def _refuse_shared_sources(self, prompts: Sequence[Document]) -> None:
        shared = {one.source for one in prompts} & {one.source for one in self.chunks}
        if shared:
            raise InvalidInputError(
                f"{len(shared)} sources are in both the data space and the prompts, "
                f"{sorted(shared)[0]!r} the first: a prompt that can be looked up measures "
                f'nothing; split them by source ("doc", or "id" where a row has no "doc")'
            )

    def _identity(self, language_model: LanguageModel) -> dict[str, Any]:
        """Return all that a result depends on beside its arm and prompt."""
        experiment = self.experiment
        settings = asdict(experiment)
        for name in OF_THE_RUN:
            del settings[name]
        if experiment.documents_per_domain is None:
            del settings["documents_per_domain"]
        return {
            **settings,
            "chunk_tokens": CHUNK_TOKENS,
            "chunks_per_document": CHUNKS_PER_DOCUMENT,
            "prompt_tokens": PROMPT_TOKENS,
            "score_after": SCORE_AFTER,
            "lora": [RANK, ALPHA, SEED],
            "embedder": MINILM,
            "data_space": _file_record(experiment.data_space, len(self.chunks), "chunks"),
            "prompts": _file_record(experiment.prompts, len(self._n_tokens), "prompts"),
            "base_model": {
                "name": Path(experiment.base_model).name,
                "weights": language_model.fingerprint,
                "n_parameters": sum(one.numel() for one in language_model.model.parameters()),
            },
            "dtype": str(language_model.model.dtype),
        }


def run_language_modeling(
    experiment: LanguageModelingExperiment,
    arms: Sequence[Arm],
    *,
    path: Path,
    cache_folder: Path,
    workers: int = 1,
    ray_address: str | None = None,
) -> list[dict[str, Any]]:
    """Measure what is missing in a results file, and return the rows of this experiment.

    An interrupted run is continued by the same call: what is in the file is not measured again.
    """
    with ResultsFile(path) as file:  # before it embeds for an hour
        prepared = PreparedExperiment(experiment, cache_folder=cache_folder)
        file.append(prepared.record())
        tasks = prepared.tasks(arms, file.keys)
        run_tasks(prepared.worker(), tasks, file, workers=workers, ray_address=ray_address)
        return [row for row in file.rows if row["experiment"] == prepared.digest]


def _in_versions(documents: Sequence[Document], n_versions: int) -> list[Document]:
    """Return the chunks, then the first variant of each, then the second, and so on."""
    texts = [versions(one.text, one.document_id, n_versions, SEED) for one in documents]
    return [
        replace(one, document_id=f"{one.document_id}~{i}", text=own[i]) if i else one
        for i in range(n_versions)
        for one, own in zip(documents, texts, strict=True)
    ]


def _file_record(path: Path, n: int, what: str) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": path.name, "sha256": digest, what: n}


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
