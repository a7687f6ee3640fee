"""The command `sift mcp`, up to where it opens a store."""

import subprocess
import sys
from pathlib import Path

import sift_core.mcp.server

assert sift_core.mcp.server
sift = Path(sys.executable).with_name("sift")
subprocess.run([sift, "mcp", "--help"], check=True, stdout=subprocess.PIPE)
