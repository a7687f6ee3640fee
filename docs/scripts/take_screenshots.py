"""Take the pictures of docs/start/command-line.md: two commands in a terminal, and a figure.

    python docs/scripts/take_screenshots.py FOLDER

FOLDER has an index in .sift, as `record_transcript.py --keep FOLDER` leaves it. The commands run
there, in colour; Chromium draws what they print. The figure is the one that `sift diagnose` wrote.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops
from record_transcript import COLUMNS, QUESTION, ROOT
from rich.console import Console
from rich.text import Text

IMAGES = ROOT / "docs" / "images"
SCALE = 2  # device pixels a CSS pixel, for sharp letters
N_COLORS = 128  # of a picture: a few kilobytes instead of many

COMMANDS = {
    "search-compare.png": f'sift search "{QUESTION}" --compare',
    "ask.png": f'sift ask "{QUESTION}" --model {{model}} --mode fine_tune --max-new-tokens 40',
}
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: white; }}
pre {{ display: inline-block; margin: 0; padding: 18px 22px; border-radius: 8px;
  width: {columns}ch; white-space: pre-wrap;
  background: #1d2330; color: #dfe3ea; font: 14px/1.35 "DejaVu Sans Mono", monospace; }}
b {{ color: #8fd18f; }}
</style><pre><b>$</b> {command}
{output}</pre>
"""


def printed(command: str, folder: Path) -> str:
    """Return what a command writes to stdout, with the colours of a terminal, as HTML."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    words = shlex.split(command.format(model=ROOT / "examples" / "tiny_lm"))
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a line of progress that vanishes
        text=True,
        check=True,
    )
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, color_system="truecolor")
        console.print(Text.from_ansi(done.stdout.rstrip()), soft_wrap=True)
    return console.export_html(code_format="{code}", inline_styles=True)


def photograph(address: str, image: Path, size: tuple[int, int]) -> None:
    """Let Chromium draw a page into a file."""
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--force-device-scale-factor={SCALE}",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={image}",
            address,
        ],
        check=True,
        capture_output=True,
    )


def trimmed(picture: Image.Image) -> Image.Image:
    """Return a picture without its white margin at the right and below."""
    white = Image.new("RGB", picture.size, "white")
    box = ImageChops.difference(picture, white).getbbox() or (0, 0, *picture.size)
    return picture.crop((0, 0, box[2], box[3]))


def save(picture: Image.Image, image: Path) -> None:
    """Write a picture with few colours."""
    picture.quantize(N_COLORS, dither=Image.Dither.NONE).save(image, optimize=True)


def main() -> None:
    """Take all pictures."""
    folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        shot = Path(temporary) / "shot.png"
        page = Path(temporary) / "page.html"
        for name, command in COMMANDS.items():
            output = printed(command, folder)
            shown = command.format(model="examples/tiny_lm")
            screen = TERMINAL.format(command=shown, output=output, columns=COLUMNS + 2)  # … is wide
            page.write_text(screen, encoding="utf-8")
            photograph(page.as_uri(), shot, (1200, 1400))
            save(trimmed(Image.open(shot).convert("RGB")), IMAGES / name)
    save(Image.open(folder / "diagnosis.png").convert("RGB"), IMAGES / "diagnose.png")


if __name__ == "__main__":
    main()
