"""The synthesizer, without weights."""

from llama_index.postprocessor.sift import SIFTSynthesizer
from sift_core.answering import AnswerEngine

assert SIFTSynthesizer
assert AnswerEngine
