"""The prompts of embedding models, and the names that remember how documents were embedded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_MARK = "; documents embedded "  # in a name, between the model and the manner


class Prompts(NamedTuple):
    """The texts that a model wants before a question and before a document."""

    query: str
    document: str
    default: str  # put before both by `encode`, which earlier versions of this library called

    @classmethod
    def of(cls, prompts: Mapping[str, str | None], default_name: str | None) -> Prompts:
        """Read them as `encode_query` and `encode_document` of sentence-transformers do.

        Args:
            prompts: As in `config_sentence_transformers.json`; None stands for no prompt.
            default_name: The `default_prompt_name` of the same file.

        Raises:
            KeyError: If there is no prompt of the name `default_name`.
        """
        texts = {"query": "", "document": ""}
        texts |= {name: text or "" for name, text in prompts.items()}
        default = "" if default_name is None else texts[default_name]
        return cls(texts["query"], texts["document"], default)

    def recorded_name(self, model: str, route: str | None = None) -> str:
        """Return the name that an index keeps: the model's, and how documents were embedded.

        Args:
            model: Name of the model as the user gave it.
            route: The route of documents in a routed model whose default is another. Default: None.
        """
        how = [f"with the prompt {self.document!r}"] if self.document or self.default else []
        how += [f"by the route {route!r}"] if route else []
        return f"{model}{_MARK}{' '.join(how)}" if how else model


def model_of(recorded_name: str) -> str:
    """Return the name of the model in a name that an index keeps."""
    return recorded_name.partition(_MARK)[0]
