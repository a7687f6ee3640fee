"""Mail threads: ten mails each, and each quotes all that went before.

The gold chunk is the mail that says the answer first. Later mails quote it, so the answer stands
there, too: judge by `TemplatedSet.holds_answer`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import numpy as np

from benchmarks.word_sets.building import N_CHUNKS, N_QUESTIONS, TemplatedSet
from benchmarks.word_sets.vocabulary import (
    CITIES,
    COMPANY_WORDS,
    format_date,
    format_money,
    numbers,
    people,
    pick_several,
    random_date,
)
from sift_core.evaluation.data import Passage, Question, RetrievalSet

N_MAILS = 10
LAST_START = datetime.date(2024, 12, 1)  # so that a thread ends before the days it speaks of
# A story is a subject and ten mails: who writes (of four people), the text, a question, its answer.
# Names in braces are values of one thread that no other thread has.
STORIES = (
    (
        "Moving the {project} servers",
        (
            (0, "We have to leave the old data centre. Can we move {project} on {day_a}?",
             "On which day was the move of the {project} servers first planned?", "{day_a}"),
            (1, "The month end is too close. I would rather take {day_b}.",
             "Which day was proposed instead for moving {project}?", "{day_b}"),
            (2, "Fine with me. The carrier wants EUR {amount_a} for the transport.",
             "What does the transport of {project} cost?", "{amount_a}"),
            (0, "That is within the budget, please order it under {order_a}.",
             "Under which order number is the carrier of {project} booked?", "{order_a}"),
            (3, "The new rack is {room_a}. Power has been switched on there.",
             "Which rack do the machines of {project} go to?", "{room_a}"),
            (1, "Who has the keys? The guard will let us in with code {number_a} only.",
             "Which code opens the door on the day that {project} moves?", "{number_a}"),
            (2, "I have them. Call me under {number_b} when you stand at the gate.",
             "Which number do I call at the gate for {project}?", "{number_b}"),
            (3, "All is up again. One disk died, it has the serial {order_b}.",
             "Which disk broke when {project} was moved?", "{order_b}"),
            (0, "Insurance pays for it, the claim is {order_c}.",
             "Which insurance claim covers the damage at {project}?", "{order_c}"),
            (1, "Thank you all. The old contract ends on {day_c}, I have cancelled it.",
             "When does the old data centre contract of {project} end?", "{day_c}"),
        ),
    ),
    (
        "{project} offsite",
        (
            (1, "It is time for the yearly {project} meeting. How about {city_a}?",
             "Which town was the first idea for the {project} offsite?", "{city_a}"),
            (2, "We were there already. {city_b} is easier to reach by train.",
             "Where does the {project} team go, since it is easier to reach?", "{city_b}"),
            (0, "Agreed. I asked for rooms from {day_a} on.",
             "From when on are there rooms for the {project} offsite?", "{day_a}"),
            (3, "The hotel charges EUR {amount_a} for all of us, breakfast included.",
             "How much is the hotel for {project}?", "{amount_a}"),
            (1, "Please book it. Their reference is {order_a}.",
             "What is the booking reference of the hotel for {project}?", "{order_a}"),
            (2, "For the talks we get the hall {room_a} with a projector.",
             "In which hall are the talks of the {project} meeting?", "{room_a}"),
            (3, "I would like to cook on the second evening. The kitchen is EUR {amount_b} extra.",
             "What do we pay on top for cooking at the {project} offsite?", "{amount_b}"),
            (0, "Good idea. Tell me by {day_b} what you cannot eat.",
             "Until when can one report allergies for {project}?", "{day_b}"),
            (1, "The train tickets are under {order_b}, please check in by yourselves.",
             "Under which code are the {project} train tickets?", "{order_b}"),
            (2, "Whoever is late, ring the host under {number_a}.",
             "Whom do latecomers to the {project} offsite ring, under which number?", "{number_a}"),
        ),
    ),
    (
        "Complaint about the {project} delivery",
        (
            (2, "The parcel {order_a} for {project} arrived wet.",
             "Which parcel for {project} got wet?", "{order_a}"),
            (0, "I am sorry. How many parts are damaged? The whole lot has the number {number_a}.",
             "What is the lot number of the spoiled {project} parts?", "{number_a}"),
            (2, "All that lay at the bottom, worth EUR {amount_a}.",
             "What are the damaged goods of {project} worth?", "{amount_a}"),
            (3, "Our depot in {city_a} has some left, we can send them today.",
             "From which depot are the parts of {project} replaced?", "{city_a}"),
            (1, "We need them by {day_a} at the latest, or the line stands still.",
             "When does the {project} line stop without new parts?", "{day_a}"),
            (3, "They left this morning. You can follow them under {order_b}.",
             "How can I track the replacement for {project}?", "{order_b}"),
            (1, "Received at gate {room_a}, and dry this time.",
             "At which gate did the second {project} shipment arrive?", "{room_a}"),
            (0, "We credit you EUR {amount_b} for the trouble.",
             "How much credit does {project} get?", "{amount_b}"),
            (2, "Please put it on the bill of {day_b}.",
             "On the bill of which date does the {project} credit go?", "{day_b}"),
            (0, "Done. The case is closed as {order_c}.",
             "Under which case number was the {project} complaint closed?", "{order_c}"),
        ),
    ),
    (
        "Interviews for {project}",
        (
            (3, "For {project} we may hire one more person. The budget is EUR {amount_a} a year.",
             "What may the new colleague at {project} earn?", "{amount_a}"),
            (0, "Great. I put the advertisement online as {order_a}.",
             "What is the reference of the job advertisement of {project}?", "{order_a}"),
            (1, "How long do we leave it there? I suggest until {day_a}.",
             "When do applications to {project} close?", "{day_a}"),
            (3, "We had {number_a} visits of the page within a week.",
             "How many people looked at the job page of {project}?", "{number_a}"),
            (2, "I liked the portfolio of {person_a} most.",
             "Whose portfolio for {project} was liked most?", "{person_a}"),
            (1, "I would also meet {person_b}, who knows the field.",
             "Which second applicant should be met for {project}?", "{person_b}"),
            (0, "Both are invited for {day_b}.",
             "On which day are the {project} interviews?", "{day_b}"),
            (2, "We sit in room {room_a}, since the large one is taken.",
             "In which room are the candidates of {project} interviewed?", "{room_a}"),
            (3, "The second one said yes and starts on {day_c}.",
             "When does the person hired for {project} begin?", "{day_c}"),
            (0, "Wonderful. The laptop is ordered as {order_b}.",
             "Under which order is the laptop of the new {project} colleague?", "{order_b}"),
        ),
    ),
)  # fmt: skip


def make_mail_threads(rng: np.random.Generator, name: str) -> TemplatedSet:
    """Return a set whose chunks are the mails of 22 threads."""
    n_threads = N_CHUNKS // N_MAILS
    projects = pick_several(rng, COMPANY_WORDS, n_threads)
    values = _draw_values(rng, n_threads)
    passages, asked = [], []
    for thread, project in enumerate(projects):
        subject, mails = STORIES[thread % len(STORIES)]
        fill = {**values[thread], "project": project}
        writers = people(rng, 4)
        day = min(random_date(rng, 2024, 2024), LAST_START)
        body = ""
        for place, (writer, text, question, answer) in enumerate(mails):
            sent = f"{format_date(day)}, {writers[writer]} wrote:"
            own = text.format(**fill)
            head = f"From: {writers[writer]}\nDate: {format_date(day)}"
            passages.append(
                Passage(
                    passage_id=f"{name}/{thread}.{place}",
                    title=("Re: " if place else "") + subject.format(**fill),
                    text=f"{head}\n\n{own}\n{body}".strip(),
                )
            )
            asked.append((question.format(**fill), answer.format(**fill), project))
            body = _quote(f"{sent}\n{own}\n{body}")
            day += datetime.timedelta(days=int(rng.integers(1, 3)))
    rows = sorted(pick_several(rng, range(len(asked)), N_QUESTIONS))
    questions = [
        Question(question_id=f"{name}/{row}", text=asked[row][0], grades={row: 1.0}) for row in rows
    ]
    return TemplatedSet(
        retrieval_set=RetrievalSet(name=name, passages=passages, questions=questions),
        answers={f"{name}/{row}": asked[row][1] for row in rows},
        keys={f"{name}/{row}": asked[row][2:] for row in rows},
    )


def _quote(text: str) -> str:
    return "\n" + "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def _draw_values(rng: np.random.Generator, n: int) -> list[Mapping[str, str]]:
    """Return what fills the stories of n threads; no two threads share a value."""
    days = list(dict.fromkeys(format_date(random_date(rng, 2025, 2026)) for _ in range(6 * n)))
    pools = {
        "day": days,
        "amount": [format_money(cents) for cents in numbers(rng, 2 * n, 20_000, 9_000_000)],
        "order": [f"{one:08X}" for one in numbers(rng, 3 * n, 16**7, 16**8 - 1)],
        "room": [f"{letter}{one}" for letter in "BFKS" for one in numbers(rng, 2 * n, 10, 99)],
        "number": [str(one) for one in numbers(rng, 2 * n, 100_000, 999_999)],
        "city": pick_several(rng, CITIES, len(CITIES)),
        "person": people(rng, 2 * n),
    }
    kinds = {"day": 3, "amount": 2, "order": 3, "room": 1, "number": 2, "person": 2}
    filled: list[Mapping[str, str]] = []
    # At most two towns a thread, where its story names some: there are but 30.
    towns = iter(pools["city"])
    for thread in range(n):
        _, mails = STORIES[thread % len(STORIES)]
        story = "".join(text for _, text, _, _ in mails)
        named = [slot for slot in ("city_a", "city_b") if f"{{{slot}}}" in story]
        filled.append(
            {
                **{
                    f"{kind}_{letter}": pools[kind][thread * many + "abc".index(letter)]
                    for kind, many in kinds.items()
                    for letter in "abc"[:many]
                },
                **{slot: next(towns) for slot in named},
            }
        )
    return filled
