"""A picture of matplotlib."""

import io

import matplotlib.figure

import sift_core.evaluation.figure

matplotlib.figure.Figure().savefig(io.BytesIO())
assert sift_core.evaluation.figure
