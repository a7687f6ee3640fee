import re
import subprocess
import sys
from pathlib import Path

import langchain_sift

README = Path(__file__).parent.parent / "README.md"


def test_all_is_sorted_and_resolves():
    assert langchain_sift.__all__ == sorted(langchain_sift.__all__)
    assert all(getattr(langchain_sift, name).__doc__ for name in langchain_sift.__all__)


def test_importing_loads_no_store_and_no_torch():
    heavy = {"faiss", "langchain_community", "langchain_qdrant", "qdrant_client", "torch"}
    probe = "import sys, langchain_sift; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert "langchain_sift" in run.stdout.split()
    assert heavy & set(run.stdout.split()) == set()


def test_the_readme_runs_as_printed(documents, embeddings, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(block.strip().splitlines()) <= 10
    exec(compile(block, "README.md", "exec"), {"documents": documents, "embeddings": embeddings})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert "plants make sugar" in printed[0]
