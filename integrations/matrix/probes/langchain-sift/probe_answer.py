"""The chat model, without weights."""

from langchain_sift import ChatSIFT, SIFTAnswer
from sift_core.answering import AnswerEngine

assert ChatSIFT
assert SIFTAnswer
assert AnswerEngine
