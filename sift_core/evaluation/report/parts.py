"""What stands in a report of language modelling: tables, figures, and how to read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sift_core.evaluation.analysis.ablation_tables import (
    batch_table,
    candidates_table,
    learning_rate_table,
    normalized_table,
    order_table,
    scope_table,
    steps_table,
    unique_table,
)
from sift_core.evaluation.analysis.adaptive import adaptive_table, stop_table
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.table import Table
from sift_core.evaluation.analysis.tables import context_table, main_table, noise_variance_table
from sift_core.evaluation.analysis.uncertainty import correlation_table, reliability_table
from sift_core.evaluation.figures.ablations import (
    learning_rate_curve,
    n_candidates_curve,
    noise_variance_curve,
    scope_dots,
    setting_dots,
)
from sift_core.evaluation.figures.adaptive import adaptive_curve
from sift_core.evaluation.figures.language_modeling import (
    domain_dots,
    learning_curves,
    mode_dots,
)
from sift_core.evaluation.figures.style import CaptionedFigure
from sift_core.evaluation.figures.uncertainty import reliability_diagram, uncertainty_scatter
from sift_core.evaluation.figures.unique import unique_picks

MakeTable: TypeAlias = Callable[[Results], Table]
MakeFigure: TypeAlias = Callable[[Results], CaptionedFigure]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One question of the report.

    Args:
        anchor: Identifier in the document.
        title: Heading.
        reading: How to read it, in a sentence.
        measured_by: The parts of `sift eval language-modeling` that measure it.
        tables: Each raises `InvalidInputError` where its rows are missing.
        figures: Likewise.
    """

    anchor: str
    title: str
    reading: str
    measured_by: str = "main"
    tables: tuple[MakeTable, ...] = ()
    figures: tuple[MakeFigure, ...] = ()

    @property
    def command(self) -> str:
        """What measures this part."""
        return f"sift eval language-modeling --parts {self.measured_by}"


PARTS = (
    Part(
        anchor="main",
        title="Which selector's chunks help most",
        reading="Each line is a domain; numbers are bits per byte after fine-tuning in % of the "
        "base model's, so that 100 is no gain and lower is better.",
        tables=(main_table,),
        figures=(domain_dots,),
    ),
    Part(
        anchor="near-duplicates",
        title="Prompts with and without near-duplicates in the data space",
        reading="The same as above, once for the prompts of which the data space has no near copy "
        "and once for the others; what is left without copies is what was learned from similar "
        "text.",
        tables=(
            partial(main_table, near_duplicates="without"),
            partial(main_table, near_duplicates="only"),
        ),
    ),
    Part(
        anchor="steps",
        title="How the gain grows with the number of chunks",
        reading="Each line is a selector; where it falls below the level line, fine-tuning is "
        "better than the same chunks in the context.",
        tables=(steps_table,),
        figures=(learning_curves,),
    ),
    Part(
        anchor="context",
        title="Context against fine-tuning",
        reading="The same chunks are put into the context, learned, or both; lower is better.",
        measured_by="context",
        tables=(context_table,),
        figures=(mode_dots,),
    ),
    Part(
        anchor="noise-variance",
        title="The noise variance λ of SIFT",
        reading="A small λ asks for chunks that differ from each other, a large one for the "
        "nearest chunk again and again; a flat curve means that the choice matters little.",
        measured_by="noise_variance",
        tables=(noise_variance_table,),
        figures=(noise_variance_curve,),
    ),
    Part(
        anchor="candidates",
        title="The number of candidates K",
        reading="A selector chooses from the K nearest chunks; the curve shows from which K on "
        "more do not help.",
        measured_by="candidates",
        tables=(candidates_table,),
        figures=(n_candidates_curve,),
    ),
    Part(
        anchor="learning-rate",
        title="The learning rate",
        reading="Too small a rate learns little in the given steps, too large a one spoils the "
        "model (above 100).",
        measured_by="learning_rate",
        tables=(learning_rate_table,),
        figures=(learning_rate_curve,),
    ),
    Part(
        anchor="scope",
        title="What is trained",
        reading="Each scope stands at the best of its learning rates, since one rate does not fit "
        "all.",
        measured_by="scope",
        tables=(scope_table,),
        figures=(scope_dots,),
    ),
    Part(
        anchor="settings",
        title="Order, batch and normalised embeddings",
        reading="Two marks of one colour that stand below each other mean that the setting does "
        "not matter.",
        measured_by="order,batch,normalized",
        tables=(order_table, batch_table, normalized_table),
        figures=(setting_dots,),
    ),
    Part(
        anchor="unique",
        title="How many different chunks SIFT chooses",
        reading="SIFT may choose a chunk again; below 100 it is better than the baseline on the "
        "prompts where it chose that many different ones.",
        tables=(unique_table,),
        figures=(unique_picks,),
    ),
    Part(
        anchor="uncertainty",
        title="Does the uncertainty predict bits per byte",
        reading="A coefficient of 1 would be a perfect prediction, 0 is none; σ_n is known before "
        "the model is run, σ̂_n is not.",
        tables=(correlation_table,),
        figures=(uncertainty_scatter,),
    ),
    Part(
        anchor="reliability",
        title="Reliability of the uncertainty",
        reading="Points on a rising line mean that prompts with more uncertainty do have more "
        "bits per byte.",
        tables=(reliability_table,),
        figures=(reliability_diagram,),
    ),
    Part(
        anchor="adaptive",
        title="Adaptive SIFT: stopping where the uncertainty no longer falls",
        reading="Each line is an α; Δ below 0 means that stopping early where it is worth little "
        "is better than as many steps for every prompt.",
        tables=(adaptive_table, stop_table),
        figures=(adaptive_curve,),
    ),
)
