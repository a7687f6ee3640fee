import re
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_qdrant import QdrantVectorStore

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_importing_loads_no_store_and_no_torch():
    heavy = {"faiss", "langchain_community", "langchain_qdrant", "qdrant_client", "torch"}
    probe = "import sys, langchain_sift; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "langchain_sift.retriever" in loaded
    assert not heavy & loaded


@pytest.mark.parametrize("name", ["SIFTCompressor", "SIFTRetriever"])
def test_the_readme_runs_as_printed(name, documents, embeddings, capsys):
    (block,) = (each for each in BLOCKS if f"langchain_sift import {name}\n" in each)
    assert len(block.strip().splitlines()) <= 10
    if "langchain_classic" in block:
        pytest.importorskip("langchain_classic", reason="LangChain before 1.0 has no such package")
    store = QdrantVectorStore.from_documents(
        documents, embeddings, location=":memory:", collection_name="docs"
    )
    names = {"documents": documents, "embeddings": embeddings, "store": store}
    exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert "plants make sugar" in printed[0]


@pytest.mark.slow
def test_the_readme_answers_as_printed(random_model, documents, embeddings, capsys):
    pytest.importorskip("torch", reason="SIFTAnswer needs the extra answer")
    (block,) = (each for each in BLOCKS if "langchain_sift import SIFTAnswer\n" in each)
    assert len(block.strip().splitlines()) <= 10
    names = {"documents": documents, "embeddings": embeddings, "model": random_model}
    exec(compile(block, "README.md", "exec"), names)
    assert names["result"]["mode"] == "context"
    assert len(names["result"]["context"]) == 3
    assert capsys.readouterr().out.startswith("context because it was asked for\n")
