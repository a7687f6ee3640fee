"""The same as with the extra `demo`."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("probe_demo.py")))
