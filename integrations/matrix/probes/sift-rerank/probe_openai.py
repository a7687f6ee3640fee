"""A generator whose server is not asked."""

from sift_core.answering import OpenAIGenerator

assert OpenAIGenerator("http://127.0.0.1:9/v1", "model")
