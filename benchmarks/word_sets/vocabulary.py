"""Names, companies, products and dates that fill templates. All are invented."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

FIRST_NAMES = (
    "Ada Adrian Agnes Amir Anke Anton Aisha Beatriz Bruno Carla Chidi Clara Daniel Dilara Edith "
    "Elias Emeka Erik Esther Farid Fatima Felix Freya Gabriel Greta Hana Harold Ines Ivan Jana "
    "Joao Jonas Judith Kamil Karin Kenji Lara Leon Lucia Magnus Marta Mehmet Mina Nadia Nils Noor "
    "Olga Oscar Paula Pedro Priya Ravi Rosa Ruben Samuel Sara Selma Stefan Sunita Tariq Tomas "
    "Ursula Viktor Wanda Wei Yara Yusuf Zoe"
).split()
LAST_NAMES = (
    "Abbott Adeyemi Aguilar Albrecht Almeida Andersen Baker Banerjee Berglund Bianchi Brandt "
    "Castillo Chen Cohen Costa Dahl Delgado Dubois Eriksson Fischer Fontaine Gallagher Garcia "
    "Haddad Hansen Hofmann Horvat Ibrahim Iyer Jansen Jovanovic Kaplan Kaya Keller Kovacs Kowalski "
    "Larsen Lindqvist Lopez Maier Marchetti Mbeki Moreau Murphy Nakamura Novak Nowak Okafor "
    "Okonkwo Olsen Patel Pereira Petrov Quinn Ramos Reyes Rossi Sanders Schmitt Silva Sokolov "
    "Stewart Suzuki Tanaka Thompson Vargas Vogel Weber Yilmaz Zimmermann"
).split()
CITIES = (
    "Aarhus Antwerp Basel Bergen Bologna Bristol Cork Dresden Gdansk Geneva Ghent Graz Haarlem "
    "Leeds Leipzig Lille Linz Lyon Malmo Nantes Porto Poznan Rostock Seville Tampere Turin Utrecht "
    "Valencia Verona Zagreb"
).split()
COMPANY_WORDS = (
    "Alder Amber Anchor Aurora Beacon Birch Boreal Cedar Clover Cobalt Copper Coral Delta Ember "
    "Falcon Fjord Granite Harbour Heron Indigo Juniper Kestrel Lantern Larch Linden Lumen Maple "
    "Meridian Nimbus Northgate Oak Orchard Osprey Pebble Pine Quarry Ridge Rowan Saffron Sable "
    "Silver Sparrow Sterling Summit Tidal Timber Vesper Willow"
).split()
COMPANY_TRADES = (
    "Bakery, Builders, Carpentry, Ceramics, Chemicals, Cleaning, Cycles, Dental, Electrics, "
    "Engineering, Foods, Freight, Furniture, Glass, Insurance, Interiors, Joinery, Logistics, "
    "Marine, Medical, Motors, Optics, Packaging, Paper, Plastics, Printing, Roofing, Software, "
    "Textiles, Tools, Travel, Veterinary"
).split(", ")
COMPANY_FORMS = ("Ltd", "GmbH", "BV", "SA", "AB", "Inc")
MONTHS = (
    "January February March April May June July August September October November December"
).split()


def pick(rng: np.random.Generator, items: Sequence[T]) -> T:
    """Return one item, each as likely as any other."""
    return items[int(rng.integers(len(items)))]


def pick_several(rng: np.random.Generator, items: Sequence[T], n: int) -> list[T]:
    """Return n distinct places' items in random order."""
    return [items[i] for i in rng.permutation(len(items))[:n].tolist()]


def people(rng: np.random.Generator, n: int) -> list[str]:
    """Return n distinct full names; first and last names repeat among them."""
    every = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return pick_several(rng, every, n)


def companies(rng: np.random.Generator, n: int) -> list[str]:
    """Return n distinct companies, without their legal form."""
    every = [f"{word} {trade}" for word in COMPANY_WORDS for trade in COMPANY_TRADES]
    return pick_several(rng, every, n)


def numbers(rng: np.random.Generator, n: int, low: int, high: int) -> list[int]:
    """Return n distinct whole numbers of [low, high)."""
    drawn: list[int] = (low + rng.choice(high - low, n, replace=False)).tolist()
    return drawn


def random_date(rng: np.random.Generator, first: int, last: int) -> datetime.date:
    """Return a day of the years from `first` to `last`, both included."""
    start = datetime.date(first, 1, 1)
    n_days = (datetime.date(last, 12, 31) - start).days + 1
    return start + datetime.timedelta(days=int(rng.integers(n_days)))


def format_date(day: datetime.date) -> str:
    """Return a date as people write it, such as "4 March 2024"."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def format_money(cents: int) -> str:
    """Return an amount such as "1,284.50"."""
    return f"{cents / 100:,.2f}"
