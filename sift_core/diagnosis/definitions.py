"""What the words of a report mean, for a reader who was not there."""

from __future__ import annotations

from sift_core.diagnosis.duplicates import NEAR_DUPLICATE_COSINE
from sift_core.diagnosis.pool_measures import N_SELECT, REDUNDANT_COSINE
from sift_core.diagnosis.questions import LONGEST_STAND_IN
from sift_core.diagnosis.verdict import FEW_CONTENTS, HIGH_MEAN_COSINE
from sift_core.evaluation.analysis.statistics import CONFIDENCE, N_RESAMPLES

DEFINITIONS = {
    "Cosine": "How alike two chunks are by their vectors in the store: 1 for the same vector, "
    "about 0 for nothing in common. How high it is for unrelated chunks depends on the embedding "
    "model.",
    "Candidates": "The chunks nearest to a question, from which ten are chosen.",
    "Repeat": f"A chosen chunk with a cosine of at least {REDUNDANT_COSINE} to one that "
    f"was chosen before it. The number was set by eye for the model all-MiniLM-L6-v2.",
    "Version, different text": "Going down the candidates by relevance, a chunk is a version of a "
    "more relevant one if it is no further from it than a radius that is read from the candidates "
    "themselves (decision 0006: the gap between distances of versions and of different chunks). "
    "Chunks that are no versions are the different texts. Unlike a fixed cosine this means the "
    "same for every model.",
    "Wasted place": f"One of {N_SELECT} whose chunk is a repeat; or a version, where any two "
    f"candidates have a cosine of {HIGH_MEAN_COSINE} or more on average, so that repeats would "
    f"mean little.",
    "Near-copy": f"A chunk whose nearest other chunk has a cosine of at least "
    f"{NEAR_DUPLICATE_COSINE} and another text. Chunks with the same text, but for whitespace, are "
    f"exact copies and counted apart.",
    "Effective number": "The Vendi score (Friedman and Dieng 2023): the exponential of the entropy "
    "of the eigenvalues of K / n, with the kernel that SIFT chooses by. n chunks without anything "
    "in common count about n, n copies of one count 1.",
    "Enough to choose from": f"{FEW_CONTENTS} different texts for {N_SELECT} choices, as measured "
    f"in decision 0008.",
    "σ² left": "The variance that is left at the question of a Gaussian process, given the chunks: "
    "the paper's setting, with a linear kernel and λ = 0.01. 1 is nothing known, lower is better. "
    "Nearest neighbours may have the lower one: SIFT's default minimises that of a region around "
    "the question and not of the question alone.",
    "σ² that no choice removes": "What would be left if every candidate were seen infinitely "
    "often: the irreducible variance.",
    "Stand-in": f"Where no questions are given: the heading and the first sentence of a random "
    f"chunk, at most {LONGEST_STAND_IN} characters; chunks of its own document do not count.",
    "Bits per byte": "The code length that a language model gives to a passage it has not seen, "
    "over the passage's bytes. The passage's document, near-copies and chunks that contain it are "
    "taken out of the candidates first.",
    "Interval": f"{CONFIDENCE:.0%} percentile bootstrap with {N_RESAMPLES:,} resamples of the "
    f"questions, chunks or passages; differences are paired.",
}
