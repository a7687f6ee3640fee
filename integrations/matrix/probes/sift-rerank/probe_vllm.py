"""A generator of vLLM, whose server is not asked."""

from sift_core.answering import VllmGenerator, VllmServer

assert VllmGenerator
assert VllmServer
