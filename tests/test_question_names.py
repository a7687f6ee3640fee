"""A year, version, name or code in the question wins over the newest date.

A year or version wins over the most relevant one too.
"""

from dataclasses import replace

import numpy as np
import pytest

from sift_core import CandidatePool, ChoiceOptions, Query, choose, cosine_similarities
from sift_core.dates import by_date, year_of
from sift_core.question_names import prefer_named

YEARS = range(2018, 2024)
# Six vectors that differ by 0.02 in one coordinate each: cosines of 0.9996 among them. The most
# relevant one is of 2021. Twenty others are orthogonal to one another, with cosine 0.3.
BASE = np.eye(40)[0]
ROWS = [BASE + (0 if year == 2021 else 0.02) * np.eye(40)[year - 2000] for year in YEARS]
OTHERS = [
    0.3 * BASE + np.sqrt(1 - 0.09) * np.eye(40)[10 + i % 8 + 14 * (i // 8)] for i in range(16)
]


def make_pool(texts=None, *, names="policy-{}.md", dates=True):
    """Return six versions, oldest first, then sixteen others; the texts say no year by default."""
    sources = [names.format(year) for year in YEARS]
    texts = list(
        texts or ["Meals are paid up to a limit that the unit sets each year"] * len(YEARS)
    )
    others = [f"Another matter, number {'abcdefghijklmnop'[i]}" for i in range(len(OTHERS))]
    rows = np.array([*ROWS, *OTHERS])
    metadata = [{"source": source} for source in sources]
    if dates:
        metadata = [
            {**one, "date": f"{year}-02-01"} for one, year in zip(metadata, YEARS, strict=True)
        ]
    return CandidatePool(
        document_ids=[f"c{i}" for i in range(len(YEARS))] + [f"o{i}" for i in range(len(OTHERS))],
        texts=texts + others,
        embeddings=rows,
        similarities=np.clip(cosine_similarities(BASE, rows), -1, 1),
        metadata=[*metadata, *({"source": f"o{i}", "date": "2020-01-01"} for i in range(16))],
    )


def chosen(question, pool, **options):
    """Return which of the six versions are among the first three."""
    query = Query(text=question, embedding=BASE)
    ids = choose(pool, query, ChoiceOptions(n_select=3, **options)).chunks.document_ids
    return [YEARS[int(one[1:])] for one in ids if one.startswith("c")]


@pytest.mark.parametrize(
    ("question", "years"),
    [
        ("What was the limit in 2019?", [2019]),
        ("limit FY2019", [2019]),
        ("as of 2019-12-31", [2019]),
        ("am 31.12.2019", [2019]),
        ("2019年的限额是多少?", [2019]),
        ("الحد في ٢٠١٩", [2019]),
        ("limits 2019-2020", [2019, 2020]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"newest": "date"}, {"words": 0}], ids=str)
def test_a_named_year_is_chosen(question, years, options):
    assert sorted(chosen(question, make_pool(), **options)) == years


@pytest.mark.parametrize(
    "question", ["What is the limit?", "the limit in 2031", "room 12019", "SKU-20191", ""]
)
def test_a_year_that_no_candidate_has_changes_nothing(question):
    # The most relevant one is of 2021, and the newest of 2023.
    assert chosen(question, make_pool()) == [2021]
    assert chosen(question, make_pool(), newest="date") == [2023]


def test_age_does_not_count_against_a_named_year():
    # Five years before the newest, with a half-life of 30 days, is a weight of 2^-49.
    options = {"newest": "date", "half_life_days": 30}
    assert chosen("in 2019", make_pool(), **options) == [2019]


def test_a_name_counts_more_than_a_date_and_a_date_more_than_a_text():
    # Each version says which one it replaces, so 2019 stands in the text of 2020.
    texts = [f"Meals are paid. This replaces the policy of {year - 1}" for year in YEARS]
    assert chosen("in 2019", make_pool(texts)) == [2019]
    assert chosen("in 2019", make_pool(texts, names="policy.md")) == [2019]  # by date
    only_texts = make_pool(texts, names="policy.md", dates=False)
    assert chosen("in 2019", only_texts) == [2020]


def test_the_name_of_a_document_is_read_by_its_key():
    # As above; of the six, only the one that `document_key` names says 2019 in its name.
    pool = make_pool([f"This replaces the policy of {year - 1}" for year in YEARS], dates=False)
    pool = replace(pool, metadata=[{"file": one["source"]} for one in pool.metadata])
    assert chosen("in 2019", pool, document_key="file") == [2019]


# Notices of one template that differ in one berth, crane and code each; the last is the newest.
NOTICES = [
    "Berth 5 is closed from 3 March. Crane Kestrel stops. Order INV-2031, ships up to 80 m",
    "Berth 3 is closed from 5 May. Crane Tern stops. Order INV-203, ships up to 90 m",
    "Saltpan Quay is closed in February. Crane Kestrel stops. Order L9, ships up to 70 m",
    "Liegeplatz 7 am Kohlenkai ist gesperrt. Der Kran Möwe steht. Auftrag L95",
    "O'Brien looks after the crane. The Harbour Office is open, as is the Lantern Quay",
    "Berth 8 is closed from 3 May. Crane Heron stops. Order L4, for 80 ships",
]


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("Is berth 5 closed?", 0),  # not berth 3, which is closed from 5 May
        ("Which crane stops for INV-2031?", 0),
        ("INV-203: which crane stops?", 1),
        ("Which ships does L9 concern?", 2),  # not L95
        ("How does an 80 m coaster get in?", 0),  # not 80 ships
        ("When does Kestrel stop at Saltpan Quay?", 2),  # two names, of which the first has one
        ("what is closed in February", 2),
        ("Seit wann ist der Liegeplatz am Kohlenkai gesperrt?", 3),
        ("whom does O'Brien's crane serve", 4),
        ("Berth closed? Tern stops?", 5),  # sentences begin there
        ("HAS KESTREL STOPPED", 5),
        ("Find the Lantern Quay Harbour Office Hours", 5),
        ("WHERE IS L9", 2),
        ("Has Marta stopped, and where is L8?", 5),  # no notice has these
        ("which crane stops?", 5),
    ],
)
def test_a_name_wins_over_a_newer_date(question, row):
    found = chosen(question, make_notices(), newest="date")
    assert [year - YEARS[0] for year in found] == [row]


def test_a_name_is_looked_for_in_paths_and_counts_less_than_a_year():
    pool = make_pool(names="kestrel-{}.md")
    newest = {**pool.metadata[5], "source": "tern.md"}
    pool = replace(pool, metadata=[*pool.metadata[:5], newest, *pool.metadata[6:]])
    assert chosen("How is Kestrel?", pool, newest="date") == [2022]
    assert chosen("How is Tern?", pool, newest="date") == [2023]
    assert chosen("How was Tern in 2019?", pool, newest="date") == [2019]


def test_a_newer_version_without_a_sentence_wins():
    # Its text lacks the name, and its title is that of the others.
    assert chosen("When does Tern stop?", make_pool(NOTICES), newest="date") == [2023]


def test_a_name_counts_nothing_without_words_or_newest():
    pool = make_notices()
    assert chosen("When does Kestrel stop?", pool, newest="date") == [2020]
    assert chosen("When does Kestrel stop?", pool, newest="date", words=0) == [2023]
    assert prefer_named(None, pool, Query(text="Is Kestrel shut?"), newest=None) is None


def test_a_name_of_more_than_64_characters_is_not_looked_for():
    word = "Berth" * 20
    pool = make_pool()
    oldest = {**pool.metadata[0], "title": f"{word} 5"}
    pool = replace(pool, metadata=[oldest, *pool.metadata[1:]])
    assert chosen(f"Is {word} 5 open?", pool, newest="date") == [2023]


def make_notices():
    """Return the pool of versions with these as titles, and the same text each."""
    pool = make_pool()
    titles = [*NOTICES, *("Another matter" for _ in OTHERS)]
    metadata = [one | {"title": title} for one, title in zip(pool.metadata, titles, strict=True)]
    return replace(pool, metadata=metadata)


VERSIONS = ["1.2", "1.20", "2.0", "2.3", "2.3.1", "3.0"]


@pytest.mark.parametrize(
    ("question", "version"),
    [
        ("in 1.2", "1.2"),
        ("since version 1.20.", "1.20"),
        ("v2.3", "2.3"),
        ("2.3.1 broke it", "2.3.1"),
        ("v3", "3.0"),
        ("Version 3", "3.0"),
        ("в версии 3", "3.0"),
        ("versión 3", "3.0"),
        ("版本 3", "3.0"),
    ],
)
def test_a_named_version_is_chosen(question, version):
    texts = [f"Set the flag as of v{one}, or it fails" for one in VERSIONS]
    found = chosen(question, make_pool(texts, names="guide.md", dates=False))
    assert [VERSIONS[year - 2018] for year in found] == [version]


def test_a_number_without_a_mark_is_no_version():
    texts = [f"Set the flag as of v{one}, or it fails" for one in VERSIONS]
    assert chosen("the 3 flags", make_pool(texts, names="guide.md", dates=False)) == [2021]


def test_a_question_takes_no_time_quadratic_in_its_length():
    # 500 kB. With endings of any length the search would take half an hour.
    assert chosen("vers_" * 100_000 + " in 2019", make_pool()) == [2019]
    odd = "V1_" * 30_000 + "." * 30_000 + "_ Tern Kestrel of 2019"
    assert chosen(odd, make_pool(), newest="date") == [2019]


def test_a_follow_up_asks_for_its_own_year():
    # `query_rewriting` "join": both questions as one text, then the last one alone.
    last = Query(text="And in 2019?", embedding=BASE)
    joined = Query(text="And in 2019? What was it in 2022?", embedding=BASE, also=[last])
    ids = choose(make_pool(), joined, ChoiceOptions(n_select=3)).chunks.document_ids
    assert [one for one in ids if one.startswith("c")] == ["c1"]
    # A last question without a year asks for that of the one before.
    last = Query(text="And abroad?", embedding=BASE)
    joined = Query(text="And abroad? What was it in 2022?", embedding=BASE, also=[last])
    ids = choose(make_pool(), joined, ChoiceOptions(n_select=3)).chunks.document_ids
    assert [one for one in ids if one.startswith("c")] == ["c4"]


def test_points_by_hand():
    # Two names: a row each. 2019 in the name: 2 · 9 points, and 2 · 3 by date; both 24. The sum
    # of both rows is 24 at most, so one point more is worth 25 · n. Dates order those that tie.
    pool = make_pool().take(range(3))
    preferences = by_date([one["date"] for one in pool.metadata])
    query = Query(text="2019 or 2020?", embedding=BASE)
    found = prefer_named(preferences, pool, query, newest="date").prefer
    assert found.tolist() == [
        [0, (24 * 25 + 24) * 3 + 1, 24 * 3 + 2],
        [0, 24 * 3 + 1, (24 * 25 + 24) * 3 + 2],
    ]


@pytest.mark.parametrize(
    ("date", "year"),
    [
        ("2019-05-01", 2019),
        (1_556_668_800, 2019),
        ("May", None),
        (None, None),
        # In UTC these are of the years 10000 and 0, which Python has not.
        ("9999-12-31T23:59:59-05:00", 9999),
        ("0001-01-01T00:00:00+05:00", 1),
    ],
)
def test_the_year_of_a_date(date, year):
    assert year_of(date) == year
