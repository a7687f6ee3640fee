"""Sets of 220 chunks of one template with 100 questions each (decision 0024), written anew.

All are seeded. Each question names a number or name that its gold chunk alone has. The sets of
`UNSEEN` were added with this module: no option of the package was ever tuned on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.word_sets.building import N_CHUNKS, KeyedQuestion, Record, TemplatedSet, build
from benchmarks.word_sets.invoices import make_invoice_records
from benchmarks.word_sets.mails import make_mail_threads
from benchmarks.word_sets.software import (
    make_error_records,
    make_fork_records,
    make_line_records,
    make_note_records,
)
from benchmarks.word_sets.vocabulary import (
    CITIES,
    COMPANY_FORMS,
    companies,
    format_date,
    format_money,
    numbers,
    people,
    pick,
    random_date,
)

DEPARTMENTS = (
    "Accounting", "Customer Support", "Data Platform", "Facilities", "Human Resources", "Legal",
    "Logistics", "Marketing", "Procurement", "Quality", "Research", "Sales",
)  # fmt: skip
ROLES = ("analyst", "assistant", "coordinator", "engineer", "lead", "manager", "specialist")
SPECIALTIES = (
    "cardiology", "dermatology", "ear, nose and throat", "gastroenterology", "geriatrics",
    "haematology", "infectious diseases", "maternity", "nephrology", "neurology", "oncology",
    "ophthalmology", "orthopaedics", "paediatrics", "psychiatry", "respiratory medicine",
    "rheumatology", "surgery", "trauma", "urology",
)  # fmt: skip
PURPOSES = (
    "consulting fees", "deposit", "event tickets", "insurance premium", "licence renewal",
    "monthly rent", "office supplies", "refund", "repair of the roof", "salary advance",
    "spare parts", "travel expenses", "tuition", "utilities",
)  # fmt: skip
# Instrument: what it reads, unit, test points.
INSTRUMENTS = (
    ("pressure transmitter", "PT", "bar", (0, 5, 10)),
    ("temperature probe", "TP", "°C", (0, 50, 100)),
    ("humidity sensor", "HS", "% RH", (20, 50, 80)),
    ("flow meter", "FM", "l/min", (10, 40, 80)),
    ("load cell", "LC", "kg", (0, 250, 500)),
    ("pH electrode", "PH", "pH", (4, 7, 9)),
    ("accelerometer", "AC", "m/s²", (1, 10, 50)),
)  # fmt: skip


def make_employee_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield records of a staff directory."""
    badges, phones = numbers(rng, N_CHUNKS, 10000, 99999), numbers(rng, N_CHUNKS, 2000, 9999)
    bosses = people(rng, 12)
    staff = [name for name in people(rng, N_CHUNKS + 12) if name not in bosses][:N_CHUNKS]
    for name, badge, phone in zip(staff, badges, phones, strict=True):
        place = int(rng.integers(len(DEPARTMENTS)))
        role, city, hired = (
            pick(rng, ROLES),
            pick(rng, CITIES),
            format_date(random_date(rng, 2004, 2025)),
        )
        room = f"{pick(rng, 'ABCDE')}{int(rng.integers(100, 499))}"
        yield Record(
            title=name,
            text=(
                f"Employee: {name}. Employee number: {badge}. Department: {DEPARTMENTS[place]}. "
                f"Position: {role}. Office: {city}, room {room}. Extension: {phone}. "
                f"Hired: {hired}. Reports to: {bosses[place]}."
            ),
            questions=[
                KeyedQuestion(text=f"In which office does {name} sit?", answer=room, keys=(name,)),
                KeyedQuestion(
                    text=f"How do I reach {name} by phone?", answer=str(phone), keys=(name,)
                ),
                KeyedQuestion(
                    text=f"Since when has {name} worked for us?", answer=hired, keys=(name,)
                ),
                KeyedQuestion(
                    text=f"Who is the boss of {name}?", answer=bosses[place], keys=(name,)
                ),
                KeyedQuestion(
                    text=f"Whose badge has the number {badge}?", answer=name, keys=(str(badge),)
                ),
                KeyedQuestion(
                    text=f"Who picks up when I dial {phone}?", answer=name, keys=(str(phone),)
                ),
            ],
        )


def make_ward_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield pages of the wards of a hospital, eleven floors of twenty."""
    names = [f"{floor}{letter}" for floor in range(1, 12) for letter in "ABCDEFGHJKLMNPQRSTUV"]
    nurses, doctors = people(rng, N_CHUNKS), people(rng, N_CHUNKS)
    phones = numbers(rng, N_CHUNKS, 3000, 8999)
    for ward, nurse, doctor, phone in zip(names, nurses, doctors, phones, strict=True):
        specialty, beds = pick(rng, SPECIALTIES), int(rng.integers(8, 37))
        opens, closes = int(rng.integers(10, 16)), int(rng.integers(17, 21))
        key = f"Ward {ward}"
        yield Record(
            title=f"Ward {ward}, {specialty}",
            text=(
                f"Ward {ward} is a ward of {specialty} with {beds} beds. Visiting hours are from "
                f"{opens}:00 to {closes}:00. Head nurse: {nurse}. Senior doctor: Dr {doctor}. "
                f"Nurses' station: extension {phone}. Please wash your hands before you enter."
            ),
            questions=[
                KeyedQuestion(
                    text=f"When may I see my mother on ward {ward}?",
                    answer=f"{opens}:00 to {closes}:00",
                    keys=(key,),
                ),
                KeyedQuestion(
                    text=f"How many patients can ward {ward} take?", answer=str(beds), keys=(key,)
                ),
                KeyedQuestion(
                    text=f"Which number do I call for the nurses of {ward}?",
                    answer=str(phone),
                    keys=(key,),
                ),
                KeyedQuestion(
                    text=f"Who is in charge of nursing on {ward}?", answer=nurse, keys=(key,)
                ),
                KeyedQuestion(
                    text=f"On which ward does Dr {doctor} work?", answer=key, keys=(f"Dr {doctor}",)
                ),
                KeyedQuestion(
                    text=f"Where is {nurse} the head nurse?", answer=key, keys=(f"nurse: {nurse}",)
                ),
            ],
        )


def make_transfer_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield confirmations of bank transfers. Few payers pay many times."""
    references = numbers(rng, N_CHUNKS, 100_000, 999_999)
    endings = numbers(rng, N_CHUNKS, 1000, 9999)
    payers = [f"{name} {pick(rng, COMPANY_FORMS)}" for name in companies(rng, 15)]
    payees = people(rng, 40)
    for reference, ending in zip(references, endings, strict=True):
        payer, payee, purpose = pick(rng, payers), pick(rng, payees), pick(rng, PURPOSES)
        day, cents = random_date(rng, 2025, 2025), int(rng.integers(1_500, 2_500_000))
        amount, written = format_money(cents), f"TRF-{reference}"
        by_amount = (f"EUR {amount}",)
        yield Record(
            title=f"Transfer confirmation {written}",
            text=(
                f"We have carried out your transfer order. Reference: {written}. Amount: EUR "
                f"{amount}. Ordered by: {payer}. Beneficiary: {payee}. Beneficiary account ending "
                f"in: {ending}. Value date: {day.isoformat()}. Purpose: {purpose}. Charges: shared."
            ),
            questions=[
                KeyedQuestion(
                    text=f"How much was sent with {written}?", answer=amount, keys=(written,)
                ),
                KeyedQuestion(
                    text=f"Who received payment {reference}?", answer=payee, keys=(written,)
                ),
                KeyedQuestion(
                    text=f"What was the money of transfer {reference} for?",
                    answer=purpose,
                    keys=(written,),
                ),
                KeyedQuestion(
                    text=f"To whom did we wire {amount} euros?", answer=payee, keys=by_amount
                ),
                KeyedQuestion(
                    text=f"What did {payer} pay {payee} on {format_date(day)}?",
                    answer=amount,
                    keys=(payer, payee, day.isoformat()),
                ),
                KeyedQuestion(
                    text=f"Which sum went to the account that ends in {ending}?",
                    answer=amount,
                    keys=(f"ending in: {ending}",),
                ),
            ],
        )


def make_certificate_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield calibration certificates of sensors, with readings at three test points."""
    certificates, serials = numbers(rng, N_CHUNKS, 10000, 99999), numbers(rng, N_CHUNKS, 1000, 9999)
    technicians = people(rng, 8)
    for certificate, serial in zip(certificates, serials, strict=True):
        kind, letters, unit, points = pick(rng, INSTRUMENTS)
        day, technician = random_date(rng, 2023, 2025), pick(rng, technicians)
        readings = [f"{point + rng.normal(scale=0.03):.3f}" for point in points]
        tag, written, doubt = (
            f"{letters}-{serial}",
            f"CAL-{certificate}",
            f"{rng.uniform(0.01, 0.2):.3f}",
        )
        due = day.replace(year=day.year + 1, day=min(day.day, 28))
        table = "; ".join(
            f"at {point} {unit} it read {reading} {unit}"
            for point, reading in zip(points, readings, strict=True)
        )
        yield Record(
            title=f"Calibration certificate {written}",
            text=(
                f"Certificate {written} for the {kind} with tag {tag}, calibrated on "
                f"{format_date(day)} by {technician}. Readings: {table}. "
                f"Expanded uncertainty (k = 2): {doubt} {unit}. "
                f"Result: within tolerance. Next calibration: {format_date(due)}."
            ),
            questions=[
                KeyedQuestion(
                    text=f"What did {tag} show at {points[1]} {unit}?",
                    answer=readings[1],
                    keys=(tag,),
                ),
                KeyedQuestion(
                    text=f"When does sensor {tag} have to be checked again?",
                    answer=format_date(due),
                    keys=(tag,),
                ),
                KeyedQuestion(text=f"Who calibrated {tag}?", answer=technician, keys=(tag,)),
                KeyedQuestion(
                    text=f"How uncertain are the values on certificate {certificate}?",
                    answer=doubt,
                    keys=(written,),
                ),
                KeyedQuestion(
                    text=f"Which instrument does {written} belong to?", answer=tag, keys=(written,)
                ),
            ],
        )


RECORDS: dict[str, Callable[[np.random.Generator], Iterator[Record]]] = {
    "release notes, one line": make_line_records,
    "release notes, two fixes": make_note_records,
    "invoices": make_invoice_records,
    "error codes": make_error_records,
    "employees": make_employee_records,
    "wards": make_ward_records,
    "forks of a function": make_fork_records,
    "bank transfers (unseen)": make_transfer_records,
    "calibration certificates (unseen)": make_certificate_records,
}
MAILS = "mail threads"
KINDS = (*RECORDS, MAILS)
UNSEEN = ("bank transfers (unseen)", "calibration certificates (unseen)")


def make_templated_sets(kinds: Sequence[str] = KINDS, *, seed: int = 0) -> Iterator[TemplatedSet]:
    """Yield templated sets.

    Args:
        kinds: Names of `KINDS`. Default: all.
        seed: Fixes all that is random. A set does not depend on which others are made.
    """
    for kind in kinds:
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        if kind == MAILS:
            yield make_mail_threads(rng, kind)
        else:
            yield build(kind, list(RECORDS[kind](rng)), rng)
