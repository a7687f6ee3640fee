from benchmarks.words import (
    N_AFTER_HOP,
    N_CHUNKS,
    choices_ms,
    documentation,
    measure,
    random_chunks,
)


def test_every_step_is_timed_in_every_round():
    chunks = random_chunks()
    times = measure(chunks[:N_CHUNKS], 2) | choices_ms(chunks, 2)
    assert min(map(min, times.values())) > 0
    assert {step: len(taken) for step, taken in times.items()} == {
        **dict.fromkeys(times, 2),
        "pool_words, warm": 6,
    }


def test_chunks_are_as_many_and_as_long_as_the_bars_ask():
    assert N_CHUNKS == 200
    for chunks in (documentation(), random_chunks()):
        assert len(chunks) == N_AFTER_HOP == 300
        assert {len(chunk.split(" ")) for chunk in chunks} == {192}
