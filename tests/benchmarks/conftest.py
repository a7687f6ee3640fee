import gzip
import json
from importlib.util import find_spec

import pytest

from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.testing import HashingEmbedder

if find_spec("torch") is None or find_spec("pandas") is None:
    collect_ignore = ["test_language_modeling.py"]

WORDS = "ant bee cat dog elk fox gnu hen ibis jay kite lark mole newt owl pig ray seal toad".split()


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache", "hashing-64", HashingEmbedder)


@pytest.fixture
def data(tmp_path):
    """A data folder with one set, "animals", of 19 passages and questions."""
    corpus = [{"id": word, "title": word, "text": f"One {word}. And a pet."} for word in WORDS]
    queries = [{"question": f"Where is the {word}?", "gold": [word]} for word in WORDS]
    for path, rows in (
        (tmp_path / "corpus/animals/corpus.jsonl.gz", corpus),
        (tmp_path / "dev/animals/queries.jsonl.gz", queries),
    ):
        path.parent.mkdir(parents=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path
