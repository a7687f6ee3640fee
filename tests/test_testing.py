import os
import subprocess
import sys

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.testing import HashingEmbedder


def test_rows_have_unit_length_and_the_order_of_the_texts():
    embedder = HashingEmbedder(dimension=32)
    texts = ["One two", "three", "наука 漢字 🙂 x"]
    rows = embedder.embed_documents(texts)
    assert rows.shape == (3, 32)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_array_equal(row, embedder.embed_query(text))


def test_another_process_embeds_alike():
    program = (
        "from sift_core.testing import HashingEmbedder as E;"
        "print(E(8).embed_query('some words').tobytes().hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {HashingEmbedder(8).embed_query("some words").tobytes().hex()}


@pytest.mark.parametrize("text", ["", " \n", "?!"])
def test_refuses_a_text_without_words(text):
    with pytest.raises(InvalidInputError, match="at least one word"):
        HashingEmbedder().embed_query(text)


def test_refuses_one_text_for_many():
    with pytest.raises(InvalidInputError, match="got one text"):
        HashingEmbedder().embed_documents("one text")
