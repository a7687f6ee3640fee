from dataclasses import replace

import numpy as np
import pytest

from sift_core.diagnosis.measuring import diagnose
from sift_core.diagnosis.questions import Question, QuestionSet
from sift_core.diagnosis.recommendation import recommend
from sift_core.diagnosis.tables import as_record, tables_of
from sift_core.diagnosis.verdict import Verdict, freed_places, repeated_places
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import InMemorySource, MergedSource
from sift_core.types import DocumentSample
from tests.diagnosis.collections import RowEmbedder, noisy, orthogonal, sampled


def diagnosed(rows, embedder_rows=None, **options):
    source, sample = sampled(rows)
    embedder = RowEmbedder(rows if embedder_rows is None else embedder_rows)
    return diagnose(source, embedder, sample=sample, **{"n_questions": 15, **options})


def related(n, seed=0):
    """Rows with a cosine of about .4 to one another, as chunks of one collection have."""
    rows = orthogonal(n + 1, seed)
    return (0.63 * rows[:1] + 0.777 * rows[1:]).astype(np.float32)


def test_where_all_is_distinct_nobody_needs_this():
    found = recommend(diagnosed(related(150)))
    assert found.verdict is Verdict.NOT_NEEDED
    assert "You do not need SIFT here" in found.headline
    assert "0.0 on average repeat an earlier one" in found.headline


def test_where_everything_stands_there_five_times_sift_helps():
    rows = related(60)
    copies = np.concatenate([rows, *(noisy(rows, 0.97, seed) for seed in range(1, 5))])
    diagnosis = diagnosed(copies)
    found = recommend(diagnosis)
    assert found.verdict is Verdict.HELPS
    assert freed_places(diagnosis).value == pytest.approx(repeated_places(diagnosis).value, abs=0.5)
    assert any("near-copy" in reason for reason in found.reasons)


def test_two_hundred_copies_of_one_chunk_are_to_be_deduplicated():
    rows = np.repeat(orthogonal(1), 200, axis=0)
    source, sample = sampled(rows, ["Chunk 0 says one thing."] * 200)
    found = recommend(diagnose(source, RowEmbedder(rows), sample=sample))
    assert found.verdict is Verdict.FEW_CONTENTS
    assert any("100 % have an exact copy" in reason for reason in found.reasons)
    assert any("Index each text once" in reason for reason in found.reasons)
    assert not any("OversamplingSource" in reason for reason in found.reasons)  # there is no more


def test_where_more_could_be_fetched_oversampling_is_advised():
    rows = related(12)
    copies = np.concatenate([rows, *(noisy(rows, 0.985, seed) for seed in range(1, 40))])
    found = recommend(diagnosed(copies))
    assert any("OversamplingSource" in reason for reason in found.reasons)


@pytest.mark.parametrize("n", [1, 2, 10, 11, 19])
def test_a_collection_of_few_chunks_is_too_small(n):
    diagnosis = diagnosed(related(n))
    found = recommend(diagnosis)
    assert found.verdict is Verdict.TOO_SMALL
    assert bool(diagnosis.pools) == (n > 10)
    assert set(as_record(diagnosis, found)) >= {"verdict", "headline", "n_stored"}
    assert ("places" in tables_of(diagnosis)) == (n > 10)


def test_one_question_alone_shows_nothing():
    rows = np.repeat(related(50), 4, axis=0)
    found = recommend(diagnosed(rows, n_questions=1))
    assert found.verdict is Verdict.UNCLEAR
    assert found.headline.startswith("No clear answer yet: ")
    assert found.headline.endswith("(--sample 4), or better your own (--queries FILE).")
    assert any("no interval" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("n_found", "advice"),
    [
        (2, "About 8 questions in own.txt would tell."),
        (8, "Ask more of your questions (--sample 8)."),
    ],
)
def test_advice_to_ask_more_is_one_that_can_be_followed(n_found, advice):
    diagnosis = diagnosed(np.repeat(related(50), 4, axis=0), n_questions=2)
    own = replace(diagnosis.questions, origin="own.txt", n_found=n_found)
    freed = diagnosis.pools[0]
    kept = replace(freed, sift=freed.nearest)  # SIFT frees places for one question of the two
    found = recommend(replace(diagnosis, questions=own, pools=(freed, kept)))
    assert found.verdict is Verdict.UNCLEAR
    assert found.headline.endswith(advice)


def test_where_all_cosines_are_high_versions_are_counted():
    rows = related(151)
    rows = (rows + 3 * rows[:1])[1:]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    diagnosis = diagnosed(rows)
    assert diagnosis.over_questions(lambda pool: pool.nearest.n_redundant).value == 9
    found = recommend(diagnosis)
    assert found.verdict is Verdict.NOT_NEEDED
    assert "0.0 on average are versions of a more relevant one" in found.headline
    assert any("places were counted by versions" in caveat for caveat in found.caveats)


def test_every_report_says_how_many_copies_there_are_and_once_what_is_a_guess():
    found = recommend(diagnosed(related(150)))
    assert sum("0 % have an exact copy" in sentence for sentence in found.reasons) == 1
    said = [found.headline, *found.reasons, *found.fine_tuning, *found.caveats]
    assert " ".join(said).count("guess") == 1


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
    ids = [chunk.document_id for chunk in diagnosis.pools[0].nearest.chunks]
    assert not {"a-0", "b-0"} & set(ids)
    assert diagnosis.pools[0].n_candidates == 118
    assert "stood in" in recommend(diagnosis).caveats[0]


def test_own_questions_are_no_stand_ins_and_the_draw_is_told():
    rows = related(60)
    asked = QuestionSet(questions=(Question(text="Chunk 3"),) * 2, n_found=10_000, origin="q.txt")
    diagnosis = diagnosed(rows, questions=asked)
    assert diagnosis.pools[0].nearest.chunks[0].document_id == "3"
    caveats = recommend(diagnosis).caveats
    assert not any("stood in" in caveat for caveat in caveats)
    assert any("Of 10,000 questions in q.txt, 2 were drawn" in caveat for caveat in caveats)


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

        async def afetch(self, query, n_candidates, *, filter=None):
            raise NotImplementedError

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
    merged = MergedSource({"one": source})
    with pytest.raises(InvalidInputError, match="a MergedSource cannot draw"):
        diagnose(merged, RowEmbedder(rows))
    assert diagnose(merged, RowEmbedder(rows), sample=sample).n_stored == 60


def test_a_vector_that_is_all_zero_is_named():
    rows = related(60)
    rows[7] = 0
    source, sample = sampled(rows)
    with pytest.raises(CandidateSourceError, match="chunk '7' is all zero"):
        diagnose(source, RowEmbedder(rows), sample=sample)
