import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, EmptyEntryWarning, InvalidInputError
from sift_core.evaluation.diagnosis import diagnose
from sift_core.evaluation.figure import save_figure
from sift_core.evaluation.questions import Question, QuestionSet
from sift_core.evaluation.verdict import RULES, Verdict, as_record, recommend
from sift_core.sources import CombinedSource, InMemorySource
from sift_core.types import DocumentSample
from tests.evaluation.collections import RowEmbedder, noisy, orthogonal, sampled


def diagnosed(rows, embedder_rows=None, **options):
    source, sample = sampled(rows)
    embedder = RowEmbedder(rows if embedder_rows is None else embedder_rows)
    return diagnose(source, embedder, sample=sample, **{"n_questions": 15, **options})


def related(n, seed=0):
    """Rows with a cosine of about .4 to one another, as chunks of one collection have."""
    rows = orthogonal(n + 1, seed)
    return (0.63 * rows[:1] + 0.777 * rows[1:]).astype(np.float32)


def copied(rows, n_copies, cosine):
    copies = [noisy(rows, cosine, seed) for seed in range(1, n_copies + 1)]
    return np.concatenate([rows, *copies])


def one_direction(rows):
    """Rows with a high cosine to one another, as some embedding models give them."""
    rows = (rows + 3 * rows[:1])[1:]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("rows", "n_questions", "verdict", "said"),
    [
        (related(150), 15, Verdict.NOT_NEEDED, "0.0 on average repeat an earlier one"),
        (copied(related(60), 4, 0.97), 15, Verdict.HELPS, "near-copy"),
        (copied(related(12), 39, 0.985), 15, Verdict.HELPS, "an OversamplingSource"),
        (np.repeat(orthogonal(1), 200, axis=0), 15, Verdict.FEW_CONTENTS, "little else"),
        (np.repeat(related(50), 4, axis=0), 1, Verdict.UNCLEAR, "About 4 questions would tell"),
        (one_direction(related(151)), 15, Verdict.NOT_NEEDED, "counted by versions"),
    ],
    ids=["distinct", "five copies", "few in many copies", "one text", "one question", "one way"],
)
def test_the_verdict_is_the_one_of_what_was_made(rows, n_questions, verdict, said):
    diagnosis = diagnosed(rows, n_questions=n_questions)
    found = recommend(diagnosis)
    assert (found.verdict, found.rule) == (verdict, RULES[verdict][0])
    assert said in " ".join([found.headline, *found.reasons, *found.caveats])
    json.dumps(as_record(diagnosis, found), allow_nan=False)
    if verdict is Verdict.HELPS:  # what SIFT frees are the places of the copies
        assert diagnosis.repeated_places.value > 3
        assert diagnosis.freed_places.value == pytest.approx(
            diagnosis.repeated_places.value, abs=0.5
        )


def test_where_few_places_come_free_little_changes():
    diagnosis = diagnosed(np.repeat(related(50), 4, axis=0))
    kept = [replace(pool, sift=pool.nearest) for pool in diagnosis.pools]
    assert recommend(replace(diagnosis, pools=tuple(kept))).verdict is Verdict.LITTLE


def test_exact_copies_are_to_be_deduplicated_and_no_more_is_fetched_where_there_is_no_more():
    rows = np.repeat(orthogonal(1), 200, axis=0)
    source, sample = sampled(rows, ["Chunk 0 says one thing."] * 200)
    said = " ".join(recommend(diagnose(source, RowEmbedder(rows), sample=sample)).reasons)
    assert "Index each text once" in said
    assert "OversamplingSource" not in said


def test_of_own_questions_those_are_counted_that_would_be_refused():
    """Rows at right angles: a question that is a row is on the topic, one beside all is not."""
    rows = orthogonal(41)
    source, sample = sampled(rows[:40])
    questions = [Question(text=text) for text in ("on", "beside", "on too")]
    asked = {"on": rows[3], "beside": rows[40], "on too": rows[7]}

    class Embedder(RowEmbedder):
        def embed_query(self, text):
            return asked[text]

    diagnosis = diagnose(
        source,
        Embedder(rows),
        sample=sample,
        questions=QuestionSet(questions=tuple(questions), origin="a file"),
    )
    assert [pool.is_off_topic for pool in diagnosis.pools] == [False, True, False]
    said = "Mode auto would refuse 1 of the 3 questions"
    assert said in " ".join(recommend(diagnosis).reasons)
    assert "would refuse" not in " ".join(recommend(diagnosed(related(40))).reasons)


@pytest.mark.parametrize("n", [1, 2, 10, 11, 19])
def test_a_collection_of_few_chunks_is_too_small(n):
    diagnosis = diagnosed(related(n))
    found = recommend(diagnosis)
    assert found.verdict is Verdict.TOO_SMALL
    assert bool(diagnosis.pools) == (n > 10)
    assert set(as_record(diagnosis, found)) >= {"verdict", "headline", "n_stored"}


def test_the_figure_is_written(tmp_path):
    path = tmp_path / "new/figure.png"
    save_figure(diagnosed(related(60)), path)
    assert path.stat().st_size > 5_000


@pytest.mark.parametrize(
    ("n", "name", "message"),
    [(60, "figure.gif", "must end in"), (5, "figure.png", "nothing"), (60, "f/x.png", "written")],
)
def test_a_figure_that_cannot_be_made_is_refused(tmp_path, n, name, message):
    (tmp_path / "f").write_text("no folder")
    with pytest.raises(InvalidInputError, match=message):
        save_figure(diagnosed(related(n)), tmp_path / name)


def test_stand_ins_do_not_count_their_own_document():
    rows = related(60)
    source = InMemorySource(
        np.concatenate([rows, rows]),
        [f"Chunk {i} says something of its own." for i in range(60)] * 2,
        document_ids=[f"{copy}-{i}" for copy in "ab" for i in range(60)],
        metadata=[{"source": f"page {i}"} for i in range(60)] * 2,
    )
    sample = DocumentSample(
        document_ids=["a-0", "a-1"],
        texts=["Chunk 0 says something of its own.", "Chunk 1 says something of its own."],
        embeddings=rows[:2],
        metadata=[{"source": "page 0"}, {"source": "page 1"}],
        n_stored=120,
    )
    diagnosis = diagnose(source, RowEmbedder(rows), sample=sample)
    assert not {"a-0", "b-0"} & set(diagnosis.pools[0].nearest.document_ids)
    assert diagnosis.pools[0].n_candidates == 118
    assert "stood in" in recommend(diagnosis).caveats[0]


def test_own_questions_are_no_stand_ins():
    rows = related(60)
    asked = QuestionSet(questions=(Question(text="Chunk 3"),) * 2, origin="q.txt")
    diagnosis = diagnosed(rows, questions=asked)
    assert diagnosis.pools[0].nearest.document_ids[0] == "3"
    assert not any("stood in" in caveat for caveat in recommend(diagnosis).caveats)


def test_a_store_that_dies_in_the_middle_ends_the_diagnosis_with_its_own_error():
    rows = related(60)
    source, sample = sampled(rows)
    seen = []

    class Dying:
        def fetch(self, query, n_candidates, *, filter=None):
            seen.append(query)
            if len(seen) > 70:
                raise CandidateSourceError("the store is gone")
            return source.fetch(query, n_candidates)

    with pytest.raises(CandidateSourceError, match="gone"):
        diagnose(Dying(), RowEmbedder(rows), sample=sample)


def test_a_collection_without_words_needs_questions():
    source, sample = sampled(related(30), ["---"] * 30)
    with pytest.raises(InvalidInputError, match="--queries"):
        diagnose(source, RowEmbedder(related(30)), sample=sample)


def test_a_source_that_can_draw_needs_no_sample():
    rows = related(60)
    source, _ = sampled(rows)
    first, again, other = (
        diagnose(source, RowEmbedder(rows), n_questions=5, seed=seed) for seed in (0, 0, 1)
    )
    questions = [[one.chunk_id for one in d.questions.questions] for d in (first, again, other)]
    assert (first.n_stored, first.n_sampled) == (60, 60)
    assert questions[0] == questions[1] != questions[2]


def test_a_source_that_cannot_draw_needs_a_sample():
    rows = related(60)
    source, sample = sampled(rows)
    merged = CombinedSource({"one": source})
    with pytest.raises(InvalidInputError, match="a CombinedSource cannot draw"):
        diagnose(merged, RowEmbedder(rows))
    assert diagnose(merged, RowEmbedder(rows), sample=sample).n_stored == 60


@pytest.mark.parametrize("n_sampled", [63, 40])  # with those of zeros, and without
def test_vectors_of_zeros_are_left_out_with_one_warning(n_sampled):
    """The measures are those of the collection without them; ids 60 to 62 are zeros."""
    rows = related(60)
    with_zeros = np.concatenate([rows, np.zeros((3, rows.shape[1]), np.float32)])
    found = []
    for matrix in (rows, with_zeros):
        source, sample = sampled(matrix)
        n = min(n_sampled, len(matrix))
        sample = replace(
            sample,
            document_ids=sample.document_ids[:n],
            texts=sample.texts[:n],
            embeddings=sample.embeddings[:n],
            metadata=sample.metadata[:n],
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found.append(diagnose(source, RowEmbedder(matrix), sample=sample, n_questions=5))
    told = [str(one.message) for one in caught if one.category is EmptyEntryWarning]
    assert len(told) == 1
    assert "3 of the chunks" in told[0]
    assert "'60'" in told[0]
    assert found[0].n_sampled == found[1].n_sampled == min(n_sampled, 60)
    assert found[0].pools == found[1].pools
    assert (found[0].duplicates.cosines == found[1].duplicates.cosines).all()


def test_nothing_but_vectors_of_zeros_is_refused():
    source, sample = sampled(np.zeros((12, 4), np.float32))
    with pytest.raises(InvalidInputError, match="all sampled chunks are all zero, as of '0'"):
        diagnose(source, RowEmbedder(np.zeros((12, 4), np.float32)), sample=sample)
