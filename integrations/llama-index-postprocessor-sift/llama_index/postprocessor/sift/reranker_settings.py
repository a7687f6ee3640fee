"""What a reranker can be told, and how that is checked, copied and saved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import (
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index.postprocessor.sift.node_choosing import NodeChooser
from sift_core import InvalidInputError

_NotInSchema = WithJsonSchema({"type": "null"})  # live objects have no JSON


class RerankerSettings(BaseNodePostprocessor):
    """The fields of `SIFTReranker`. Live objects among them are shared by copies, never saved."""

    model_config = ConfigDict(extra="forbid")

    top_n: int = Field(default=10, ge=1, description="How many nodes to keep at most.")
    candidates: int | None = Field(
        default=None,
        ge=1,
        description="Of how many arriving nodes to choose at most, best scores first; None: all.",
    )
    kernel: Literal["auto", "rbf", "linear"] = Field(
        default="auto",
        description="How one text informs about another: auto reads its scales from the nodes, "
        "with the neighbourhood of the query as the target; linear is the paper's.",
    )
    use_scores: bool | None = Field(
        default=None,
        description="Take the order of the nodes' scores for their relevance, as after a "
        "cross-encoder or a hybrid search; auto only. None: where they say more than cosines.",
    )
    length_scale: float | None = Field(
        default=None,
        gt=0,
        description="Distance over which texts inform about each other; rbf only.",
    )
    noise_variance: float | None = Field(
        default=None,
        gt=0,
        description="Larger values choose closer to the query and allow more overlap.",
    )
    alpha: float | None = Field(
        default=None, gt=0, description="Stop early; larger values stop earlier."
    )
    keep_embeddings: bool = Field(
        default=False, description="Put the vectors used on the returned nodes."
    )
    index: Annotated[VectorStoreIndex | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Where the vectors are, if not in the index that was just searched.",
    )
    embed_model: Annotated[BaseEmbedding | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Embeds what has no vector, if not the index's own model.",
    )

    @model_validator(mode="after")
    def _settings_fit_together(self) -> RerankerSettings:
        self._chooser()
        if self.candidates is not None and self.candidates < self.top_n:
            raise InvalidInputError(
                f"`candidates` must be >= `top_n`, got {self.candidates} and {self.top_n}; leave "
                f"it out to choose from all nodes that arrive"
            )
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; an index or a model is not sent along."""
        settings = self.model_copy(update={"index": None, "embed_model": None})
        return super(RerankerSettings, settings).__getstate__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> RerankerSettings:
        """Return a copy that shares the index and the model."""
        memo = {} if memo is None else memo
        memo |= {id(live): live for live in (self.index, self.embed_model) if live is not None}
        return super().__deepcopy__(memo)

    def _chooser(self) -> NodeChooser:
        return NodeChooser.from_settings(
            top_n=self.top_n,
            kernel=self.kernel,
            length_scale=self.length_scale,
            noise_variance=self.noise_variance,
            alpha=self.alpha,
            use_scores=self.use_scores,
            keep_embeddings=self.keep_embeddings,
        )
