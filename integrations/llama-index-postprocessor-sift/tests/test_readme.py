"""The README's examples, run as printed, one after another."""

import re
from pathlib import Path

import pytest
from llama_index.core import Document

README = Path(__file__).parents[1] / "README.md"


# QdrantVectorStore asks for an index on doc_id, which the local mode does not have.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant:UserWarning")
def test_the_examples_run_as_printed(embed_model, llm, nodes, capsys, request):
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    documents = [Document(text=node.text, metadata={"language": "en"}) for node in nodes]
    names = {"documents": documents, "embed_model": embed_model, "llm": llm}
    for example in examples[:2]:
        exec(compile(example, str(README), "exec"), names)
        assert len(names["response"].source_nodes) == 10
        assert len(capsys.readouterr().out.splitlines()) == 10
    pytest.importorskip("torch", reason="SIFTSynthesizer needs the extra answer")
    names["model"] = request.getfixturevalue("random_model")
    exec(compile(examples[2], str(README), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[1] == "fine_tune ['it was asked for']"
