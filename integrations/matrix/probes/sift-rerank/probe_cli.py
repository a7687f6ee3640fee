"""The command, which is the file beside the interpreter."""

import subprocess
import sys
from pathlib import Path

sift = Path(sys.executable).with_name("sift")
for arguments in (["--version"], ["search", "--help"], ["doctor"]):
    subprocess.run([sift, *arguments], check=True, stdout=subprocess.PIPE)
