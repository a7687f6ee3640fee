"""Learning here, generating there: what a question's documents teach goes to a running vLLM.

    export VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
    vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --enable-lora --max-lora-rank 16
    VLLM_URL=http://127.0.0.1:8000 .venv/bin/python examples/vllm_generates.py

Without VLLM_URL it learns, and says what it would send. It needs no `make demo`.
"""

from __future__ import annotations

import os
import tempfile

import httpx
from peft import LoraConfig
from transformers.utils import logging as transformers_logging

from sift_core import InMemorySource
from sift_core.answering import AnswerEngine, FineTuningSettings, LearningOptions, VllmServer
from sift_core.testing import HashingEmbedder  # stands for your embedding model

MODEL = os.environ.get("SIFT_DEMO_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
QUESTIONS = ["When does the ferry to Nordholm leave?", "What does the ferry to Nordholm cost?"]
TEXTS = [
    "The ferry to Nordholm leaves the old harbour at 7:40 and at 16:15.",
    "A ticket for the ferry to Nordholm costs 12 crowns; children under six travel free.",
    "On Sundays the ferry to Nordholm sails at 9:30 alone.",
    "The lighthouse of Nordholm is open from May to September.",
]
RANK = 16  # vLLM's --max-lora-rank, unless it is told another


def main() -> None:
    transformers_logging.disable_progress_bar()
    embedder = HashingEmbedder()
    lora = LoraConfig(r=RANK, lora_alpha=16, target_modules="all-linear")
    engine = AnswerEngine.from_pretrained(
        MODEL,
        source=InMemorySource(embedder.embed_documents(TEXTS), TEXTS),
        embedder=embedder,
        learning=LearningOptions(n_steps=8, settings=FineTuningSettings(lora=lora)),
    )
    session = engine.session(QUESTIONS[0], mode="fine_tune")
    if session.tuned is None or session.report is None:
        raise SystemExit("nothing was learned")
    losses = session.report.losses
    print(f"learned in {len(losses)} steps: loss {losses[0]:.2f} before, {losses[-1]:.2f} at last")

    url = os.environ.get("VLLM_URL")
    with (
        tempfile.TemporaryDirectory(
            dir="/dev/shm" if os.path.isdir("/dev/shm") else None
        ) as folder,
        VllmServer(url or "http://127.0.0.1:8000", base_model=MODEL, folder=folder) as server,
    ):
        os.chmod(folder, 0o755)  # vLLM may be another user
        if url is None:
            name = server.name(session.tuned.adapter)
            print(f"with VLLM_URL set, vLLM would load it as model={name[:16]}…")
            return
        with server.serving(session.tuned.adapter) as name:
            print(f"vLLM has it as model={name[:16]}…")
            for question in QUESTIONS:
                print(f"{question}\n  before: {asked(url, MODEL, question)}")
                print(f"  after:  {asked(url, name, question)}")
    print("vLLM has forgotten it")


def asked(url: str, model: str, question: str) -> str:
    """Return the likeliest answer of one of vLLM's models, as any client of OpenAI's API has it."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 40,
    }
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status()
    return str(response.json()["choices"][0]["message"]["content"]).strip()


if __name__ == "__main__":
    main()
