"""The calls by curl that the guide shows, made by curl."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs/guides/serving.md"
SHOWN = re.findall(r"^```bash\n(.*?)^```$", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
CALLS = re.findall(r"^curl .*", "".join(SHOWN).replace("\\\n", " "), re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_answered(url, call):
    call = call.replace("http://127.0.0.1:8123", url).replace("curl -s", "curl -s --fail", 1)
    done = subprocess.run(call, shell=True, capture_output=True, text=True, timeout=300, check=True)
    if url + "/metrics" not in call:
        assert json.loads(done.stdout)


def test_the_guide_shows_a_call_of_each_kind():
    shown = " ".join(CALLS)
    for path in ("/v2/rerank", "/search", "/ready", "/metrics"):
        assert f"8123{path}" in shown
