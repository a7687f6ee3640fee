import numpy as np
import pytest

from sift_core.candidates import InMemorySource
from sift_core.diagnosis.chunk_sample import ChunkSample
from sift_core.diagnosis.diagnose import diagnose
from sift_core.diagnosis.questions import Question, QuestionSet
from sift_core.diagnosis.recommendation import recommend
from sift_core.diagnosis.tables import record, tables
from sift_core.diagnosis.verdict import Verdict, freed_places, repeated_places
from sift_core.errors import CandidateSourceError, InvalidInputError
from tests.diagnosis.collections import RowEmbedder, noisy, orthogonal, sampled


def diagnosed(rows, embedder_rows=None, **options):
    source, sample = sampled(rows)
    embedder = RowEmbedder(rows if embedder_rows is None else embedder_rows)
    return diagnose(source, sample, embedder, **{"n_questions": 15, **options})


def related(n, seed=0):
    """Rows with a cosine of about .4 to one another, as chunks of one collection have."""
    rows = orthogonal(n + 1, seed)
    return (0.63 * rows[:1] + 0.777 * rows[1:]).astype(np.float32)


def test_where_all_is_distinct_nobody_needs_this():
    found = recommend(diagnosed(related(150)))
    assert found.verdict is Verdict.NOT_NEEDED
    assert "You do not need this" in found.headline
    assert "0.0 of 10 places" in found.headline


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
    found = recommend(diagnose(source, sample, RowEmbedder(rows)))
    assert found.verdict is Verdict.FEW_CONTENTS
    assert any("of 100 % of the chunks the text stands" in reason for reason in found.reasons)
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
    assert set(record(diagnosis, found)) >= {"verdict", "headline", "n_stored"}
    assert ("places" in tables(diagnosis)) == (n > 10)


def test_one_question_alone_shows_nothing():
    rows = np.repeat(related(50), 4, axis=0)
    found = recommend(diagnosed(rows, n_questions=1))
    assert found.verdict is Verdict.UNCLEAR
    assert "no interval" in found.headline


def test_where_all_cosines_are_high_versions_are_counted():
    rows = related(151)
    rows = (rows + 3 * rows[:1])[1:]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    diagnosis = diagnosed(rows)
    assert diagnosis.over_questions(lambda pool: pool.nearest.n_redundant).value == 9
    found = recommend(diagnosis)
    assert found.verdict is Verdict.NOT_NEEDED
    assert any("places were counted by versions" in caveat for caveat in found.caveats)


def test_stand_ins_do_not_count_their_own_document():
    rows = related(60)
    source = InMemorySource(
        np.concatenate([rows, rows]),
        [f"Chunk {i} says something of its own." for i in range(60)] * 2,
        document_ids=[f"{copy}-{i}" for copy in "ab" for i in range(60)],
        metadata=[{"source": f"page {i}"} for i in range(60)] * 2,
    )
    sample = ChunkSample(
        document_ids=["a-0", "a-1"],
        texts=["Chunk 0 says something of its own.", "Chunk 1 says something of its own."],
        embeddings=rows[:2],
        metadata=[{"source": "page 0"}, {"source": "page 1"}],
        n_stored=120,
    )
    diagnosis = diagnose(source, sample, RowEmbedder(rows))
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
        diagnose(Dying(), sample, RowEmbedder(rows))


def test_a_collection_without_words_needs_questions():
    source, sample = sampled(related(30), ["---"] * 30)
    with pytest.raises(InvalidInputError, match="--queries"):
        diagnose(source, sample, RowEmbedder(related(30)))
