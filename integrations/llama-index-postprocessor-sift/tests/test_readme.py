"""The README's example, run as printed."""

import re
from pathlib import Path

import pytest
from llama_index.core import Document

README = Path(__file__).parents[1] / "README.md"


# QdrantVectorStore asks for an index on doc_id, which the local mode does not have.
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
def test_the_example_runs_as_printed(embed_model, llm, nodes, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    documents = [Document(text=node.text) for node in nodes]
    names = {"documents": documents, "embed_model": embed_model, "llm": llm}
    exec(compile(example, str(README), "exec"), names)
    assert len(names["response"].source_nodes) == 10
    assert len(capsys.readouterr().out.splitlines()) == 10
