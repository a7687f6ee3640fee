"""Marks in answers, and what is put around chunks and question."""

import asyncio
from dataclasses import replace

import pytest

from sift_core import (
    ChoiceOptions,
    InMemorySource,
    InvalidInputError,
    Query,
)
from sift_core.answering import PromptOptions
from sift_core.answering.answer import Citation
from sift_core.answering.citing import citations_in
from sift_core.answering.in_context import INSTRUCTION, InContextAnswerer
from sift_core.testing import HashingEmbedder
from tests.engines import engine_of
from tests.pools import pool_of

TEXTS = ["water boils in the kettle", "cats sleep on the shelf", "boats fold from paper"]
QUESTION = "Where do cats sleep?"
POOL = pool_of(TEXTS)


def cited(*entries):
    return tuple(
        Citation(mark=m, start=s, end=e, position=m - 1, document_id=POOL.document_ids[m - 1])
        for m, s, e in entries
    )


@pytest.mark.parametrize(
    ("text", "known", "unknown"),
    [
        ("Cats sleep [2]. Boats fold[3].", [(2, 11, 14), (3, 26, 29)], ()),
        ("Both [1, 2].", [(1, 5, 11), (2, 5, 11)], ()),
        ("[1][1]", [(1, 0, 3), (1, 3, 6)], ()),
        ("None [0], [4] and [4,1].", [(1, 18, 23)], (0, 4)),
        ("No mark [a], [ 1 ], (1), [12345].", [], ()),
        ("", [], ()),
    ],
)
def test_marks_name_chunks_and_others_are_told(text, known, unknown):
    assert citations_in(text, POOL) == (cited(*known), unknown)


@pytest.fixture
def make_engine(small_lm):
    return lambda **options: engine_of(small_lm, TEXTS, **{"max_new_tokens": 12, **options})


class Saying:
    """Writes what it was given, as a generator of an engine's texts, and keeps the prompt."""

    def __init__(self, language_model, text):
        self.model, self.text, self.prompts = language_model, text, []

    def generate(self, prompt, *, on_text=None, prefix=None, **options):
        self.prompts.append(prompt)
        written = self.model.generate(prompt, **options)
        if on_text is not None:
            on_text(self.text)
        return replace(written, text=self.text)


def test_an_answer_names_the_chunks_that_it_marks(make_engine, small_lm):
    saying = Saying(small_lm, "On the shelf [1], perhaps [9].")
    engine = make_engine(cite=True, generator=saying)
    answer = engine.answer(QUESTION, mode="context")
    assert f"[1] {answer.chunks.texts[0]}" in saying.prompts[0]
    assert f"{INSTRUCTION}\n\n{QUESTION}" in saying.prompts[0]
    (citation,) = answer.citations
    assert answer.text[citation.start : citation.end] == "[1]"
    assert citation.document_id == answer.chunks.document_ids[citation.position]
    assert answer.unknown_marks == (9,)
    assert asyncio.run(engine.aanswer(QUESTION, mode="context")).citations == answer.citations
    session = engine.session(QUESTION, mode="context")
    assert session.answer("And cats?").citations == answer.citations
    with engine.stream(QUESTION, mode="context") as stream:
        assert stream.answer().citations == answer.citations


def test_marks_count_only_where_they_were_asked_for(make_engine, small_lm):
    engine = make_engine(generator=Saying(small_lm, "[1]"))
    assert engine.answer(QUESTION, mode="context").citations == ()
    assert len(engine.answer(QUESTION, mode="context", cite=True).citations) == 1
    base = engine.answer(QUESTION, mode="base", cite=True)
    assert (base.citations, base.unknown_marks) == ((), (1,))


def test_numbered_chunks_fit_into_the_window(make_random_lm):
    citing = {"prompt": PromptOptions(cite=True), "max_new_tokens": 4}
    answerer = InContextAnswerer(language_model=make_random_lm(), **citing)
    query = Query(text="Q")
    used = answerer.used(query, pool_of(["one two", "three four"]))
    assert answerer.room(answerer.prompt_for(query, used)) >= 0


def test_the_system_prompt_comes_first_unless_the_history_has_one(make_engine, small_lm):
    saying = Saying(small_lm, "yes")
    engine = make_engine(system="Be short.", generator=saying)
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    own = [{"role": "system", "content": "Be long."}]
    for history in ([], said, own):
        engine.answer(QUESTION, mode="base", history=history)
    system = {"role": "system", "content": "Be short."}
    question = {"role": "user", "content": QUESTION}
    assert saying.prompts == [[system, question], [system, *said, question], [*own, question]]


def test_a_template_places_chunks_and_question_and_knows_no_other_braces(make_engine, small_lm):
    saying = Saying(small_lm, "yes")
    template = "{question} {x} <{context}>"
    engine = make_engine(template=template, generator=saying, options=ChoiceOptions(n_select=1))
    answer = engine.answer("What is {context}?", mode="context")
    assert saying.prompts == ["What is {context}? {x} <" + answer.chunks.texts[0] + ">"]
    engine.answer(QUESTION, mode="base")
    assert saying.prompts[1] == QUESTION


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"template": "{context}"}, "{question}"),
        ({"template": "no places"}, "{context} and {question}"),
        ({"template": 3}, "template"),
        ({"template": " "}, "template"),
        ({"system": ""}, "system"),
        ({"system": ["Be short."]}, "system"),
        ({"cite": "yes"}, "cite"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(make_engine, options, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        make_engine(**options)


@pytest.mark.parametrize("mode", ["context", "both"])
def test_chunks_that_share_an_id_keep_each_its_text_mark_and_place(small_lm, mode):
    shared = InMemorySource(
        HashingEmbedder().embed_documents(TEXTS), TEXTS, document_ids=["guide.md"] * len(TEXTS)
    )
    saying = Saying(small_lm, "As said [1][3].")
    engine = engine_of(
        small_lm,
        source=shared,
        embedder=HashingEmbedder(),
        options=ChoiceOptions(n_select=3),
        cite=True,
        generator=saying,
        max_new_tokens=4,
    )
    answer = engine.answer(QUESTION, mode=mode)
    told = answer.as_dict()
    found = shared.fetch(Query(text=QUESTION, embedding=HashingEmbedder().embed_query(QUESTION)), 3)
    cosines = dict(zip(found.texts, found.similarities.tolist(), strict=True))
    assert sorted(chunk["text"] for chunk in told["chunks"]) == sorted(TEXTS)
    assert [one["rank"] for one in told["citations"]] == [1, 3]
    for number, chunk in enumerate(told["chunks"], start=1):
        assert chunk["rank"] == number
        assert f"[{number}] {chunk['text']}" in saying.prompts[0]
        assert chunk["similarity"] == pytest.approx(cosines[chunk["text"]], abs=1e-6)
    distinct, counts = answer.distinct_chunks()
    assert sorted(distinct.texts) == sorted(TEXTS)
    assert sum(counts) == len(answer.chunks)
