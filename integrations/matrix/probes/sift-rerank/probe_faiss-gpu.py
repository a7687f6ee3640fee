"""The same as with the extra `faiss`: the build for GPUs has its interface."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("probe_faiss.py")))
