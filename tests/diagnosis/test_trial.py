from pathlib import Path

import numpy as np
import pytest

from sift_core.answering import AnswerEngine
from sift_core.diagnosis.html_page import html_report
from sift_core.diagnosis.measuring import diagnose
from sift_core.diagnosis.recommendation import recommend
from sift_core.diagnosis.trial import Passage, Trial, is_shown, try_model
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode
from tests.diagnosis.collections import RowEmbedder, noisy, orthogonal, sampled

MODEL = Path(__file__).parents[2] / "examples/tiny_lm"


@pytest.fixture(scope="module")
def engine():
    return AnswerEngine.from_pretrained(str(MODEL), adapter_cache=None, n_steps=2)


def passages(n):
    return [
        f"Chunk {i} says something of its own. " + f"Subject {i} is long. " * 20 for i in range(n)
    ]


def made(fine_tuned):
    """A trial in which fine-tuning gained these bits per byte over base and context."""
    seconds = dict.fromkeys((AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE), 1.0)
    found = [
        Passage(
            document_id=str(i),
            n_bytes=400,
            bits_per_byte={
                AnswerMode.BASE: 2.0,
                AnswerMode.CONTEXT: 2.0,
                AnswerMode.FINE_TUNE: 2.0 - gain,
            },
            seconds=seconds,
        )
        for i, gain in enumerate(fine_tuned)
    ]
    return Trial(passages=tuple(found), n_steps=50, n_tried=len(found))


def test_the_tiny_model_is_tried_on_passages_without_their_copies(engine):
    rows = orthogonal(30)
    rows = np.concatenate([rows, noisy(rows[:5], 0.97)])  # copies of the first five
    texts = passages(30)
    texts += [text.replace("long", "wide") for text in texts[:5]]
    source, sample = sampled(rows, texts)
    seen = []
    fetched = AnswerEngine.choose_from

    class Watching(AnswerEngine):
        def choose_from(self, query, pool, **options):
            seen.append(pool)
            return fetched(self, query, pool, **options)

    watching = Watching(language_model=engine.language_model, adapter_cache=None, n_steps=2)
    diagnosis = diagnose(
        source, RowEmbedder(rows), sample=sample, n_questions=5, engine=watching, n_passages=2
    )
    trial = diagnosis.trial
    assert [passage.document_id for passage in trial.passages] == ["0", "1"]
    for pool in seen[:3]:
        assert not {"0", "30"} & set(pool.document_ids)
        assert "31" in pool.document_ids
    for passage in trial.passages:
        assert all(0 < bits < 16 for bits in passage.bits_per_byte.values())
        assert len(set(passage.bits_per_byte.values())) == 3
    page = html_report(diagnosis, recommend(diagnosis), {}, title="<b>")
    assert page.count("<img ") == 4
    assert "<b>" not in page


def test_short_chunks_cannot_be_held_back(engine):
    rows = orthogonal(30)
    source, sample = sampled(rows)
    with pytest.raises(InvalidInputError, match="300 bytes"):
        try_model(engine, source, RowEmbedder(rows), sample)


@pytest.mark.parametrize(
    ("gains", "shown"),
    [([0.1, 0.2, 0.15, 0.1], True), ([-0.1, 0.2, -0.15, 0.1], False), ([0.3], False)],
    ids=["all better", "mixed", "one passage"],
)
def test_a_difference_is_shown_where_its_interval_leaves_out_zero(gains, shown):
    difference = made(gains).difference(AnswerMode.FINE_TUNE, AnswerMode.CONTEXT)
    assert difference.value == pytest.approx(-np.mean(gains))
    assert is_shown(difference) is shown
