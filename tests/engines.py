"""Engines over texts in memory, whose options are given by name, whatever part they belong to."""

from dataclasses import fields, replace

from sift_core import InMemorySource
from sift_core.answering import AnswerEngine, LearningOptions, PromptOptions, VariancePolicy
from sift_core.testing import HashingEmbedder

PARTS = {"learning": LearningOptions, "prompt": PromptOptions, "policy": VariancePolicy}


def engine_of(language_model, texts=None, *, metadata=(), **options):
    """Return an engine over texts, or over no source."""
    if texts is not None:
        embedder = HashingEmbedder()
        embeddings = embedder.embed_documents(texts)
        source = InMemorySource(embeddings, texts, metadata=metadata, embedder_name=embedder.name)
        options = {"source": source, "embedder": embedder, **options}
    return changed(AnswerEngine(language_model=language_model), **options)


def changed(engine, **options):
    """Return an engine with other options; `max_new_tokens` joins its generation."""
    for part, kind in PARTS.items():
        names = {one.name for one in fields(kind)} & options.keys()
        own = {name: options.pop(name) for name in names}
        if own:
            options[part] = replace(options.get(part, getattr(engine, part)), **own)
    if "max_new_tokens" in options:
        length = {"max_new_tokens": options.pop("max_new_tokens")}
        options["generation"] = {**engine.generation, **options.get("generation", {}), **length}
    return replace(engine, **options)
