"""Record today's choices and answers anew: python -m tests.golden.record [NAME ...].

Names: selections, choices, answers, responses, outputs; all if none is given.

Run it only when a change of choices or answers is meant, look at the lines that changed, and say
so under "Numerics" in the changelog. Never run it to make a refactoring pass: names may change
there, numbers may not. Cases may be added at any time, if the recorded lines stay as they are.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SELECTIONS = FOLDER / "selections.json"
CHOICES = FOLDER / "choices.json"
ANSWERS = FOLDER / "engine_answers.json"
RESPONSES = FOLDER / "responses.json"
OUTPUTS = FOLDER / "outputs.json"


def read(path):
    """Return the recorded lines by key."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path, lines):
    """Write a line of JSON for each key."""
    rows = (
        f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'), ensure_ascii=False)}"
        for key, value in lines.items()
    )
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[1]))  # also where this file is run by its path
    wanted = sys.argv[1:] or ["selections", "choices", "answers", "responses", "outputs"]
    if "selections" in wanted:
        from tests.golden import selections

        write(SELECTIONS, selections.record())
    if "choices" in wanted:
        from tests.golden import choices

        write(CHOICES, choices.record())
    if "answers" in wanted:
        from tests.golden import engine_answers

        write(ANSWERS, engine_answers.record())
    if "responses" in wanted:
        from tests.golden import responses

        write(RESPONSES, responses.record())
    if "outputs" in wanted:
        from tests.golden import outputs

        write(OUTPUTS, outputs.record())
