"""What do the integrations cost, alone and under load?

    python -m benchmarks.integrations [--quick] [--only overhead load] [--json FILE]

One thread. integrations_overhead.py: `SIFTReranker` in a LlamaIndex query engine over Faiss,
against the same engine without it and against a cross-encoder; every time is a median of one
run in which both alternate. integrations_load.py: 100 async queries at once through LlamaIndex
and LangChain against Qdrant's REST. bars.toml has what must be reached; a test has the memory.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and Faiss load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

from benchmarks import integrations_load, integrations_overhead
from benchmarks.options import options
from benchmarks.report import Report
from sift_core import load_compiled

PACKAGES = [
    "numpy",
    "numba",
    "faiss-cpu",
    "langchain-core",
    "langchain-qdrant",
    "langchain-sift",
    "llama-index-core",
    "llama-index-postprocessor-sift",
    "llama-index-vector-stores-faiss",
    "llama-index-vector-stores-qdrant",
    "qdrant-client",
    "sentence-transformers",
    "sift-rerank",
    "torch",
    "transformers",
]
PARTS = {"overhead": integrations_overhead.measure, "load": integrations_load.measure}


def main() -> None:
    parser = options(__doc__, quick="fewer documents, fewer rounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    arguments = parser.parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(section="integrations")
    for part in arguments.only:
        PARTS[part](report, quick=arguments.quick)
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
