"""Lines about a fine-tuning: how long it takes, on a terminal and in a pipe."""

import io

import pytest

from sift_core.cli.learn import LearningProgress
from sift_core.cli.output import Working


@pytest.fixture
def told(monkeypatch):
    """Return what a fine-tuning of so many steps, of so many seconds each, tells in a pipe."""

    def told(n_steps, seconds):
        written = io.StringIO()
        monkeypatch.setattr("sys.stderr", written)
        now = [0.0]
        with Working("Fine-tuning …") as status:
            progress = LearningProgress(status=status, n_steps=n_steps, clock=lambda: now[0])
            for _ in range(n_steps):
                now[0] += seconds
                progress.step(2.5)
            line = status.status.plain
        return written.getvalue().splitlines(), line

    return told


def test_a_long_one_says_so_and_then_every_ten_seconds(told):
    lines, last = told(20, 1.5)
    assert lines[0] == "Fine-tuning on 20 chunks: about 28 s."
    assert lines[1:] == [
        "  step 7 of 20, about 20 s left",
        "  step 14 of 20, about 9 s left",
    ]
    assert last == "Fine-tuning: step 20 of 20, about 0 s left, loss 2.50 nats a token …"


def test_a_short_one_says_nothing_in_a_pipe(told):
    assert told(50, 0.1)[0] == []
