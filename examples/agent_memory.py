"""An agent's memory: 200 dated notes in which facts change, behind `sift mcp` over stdio.

    .venv/bin/python examples/agent_memory.py

Eight facts were noted five times in a year, and one in January alone. A search gives the current
version first, and other notes behind it, in at most 800 tokens. With the half-life of 20 days a
note counts half as much as one that is 20 days younger. Any other client of MCP does the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from sift_core.token_estimate import estimated_tokens

MAX_TOKENS = 800
MONTHS = (1, 3, 5, 7, 9)
# A fact, its five values, and a question that asks for the last one.
FACTS = {
    "The production database of the shop runs on {}.": (
        ("MySQL 5.7", "MySQL 8", "PostgreSQL 14", "PostgreSQL 15", "PostgreSQL 16"),
        "Which database does the shop use in production?",
    ),
    "Releases of the mobile app are approved by {}.": (
        ("Ann", "Bob", "Carla", "Dmitri", "Esra"),
        "Who approves a release of the mobile app?",
    ),
    "The weekly team meeting takes place on {}.": (
        ("Monday at 9", "Monday at 10", "Tuesday at 10", "Thursday at 14", "Friday at 11"),
        "When is the team meeting?",
    ),
    "Invoices to the customer Nordwind are sent to {}.": (
        ("post box 7", "anna@nordwind.example", "the portal", "ben@nordwind.example", "Peppol"),
        "Where do invoices to Nordwind go?",
    ),
    "The deploy key of the website is kept in {}.": (
        ("a text file", "the wiki", "vault A", "vault B", "the hardware token of Esra"),
        "Where is the deploy key of the website?",
    ),
    "The rate limit of the public API is {} requests per minute.": (
        ("60", "100", "300", "250", "500"),
        "How many requests per minute does the public API allow?",
    ),
    "The office printer on the second floor has the address {}.": (
        ("10.0.2.9", "10.0.2.14", "10.0.2.77", "printer-2.local", "printer-2b.local"),
        "What is the address of the printer on the second floor?",
    ),
    "Flights for business trips are booked with {}.": (
        ("Globe Travel", "Skyline", "the travel portal", "TravelPerk", "Navan"),
        "How do I book a flight for a business trip?",
    ),
}
UNCHANGED = "The spare key of the office lies behind the third brick of the yard wall."
PEOPLE = ("Ann", "Bob", "Carla", "Dmitri", "Esra", "Farid", "Grete", "Hugo", "Ines", "Jonas")
DONE = (
    "fixed the checkout test that failed at midnight",
    "asked for a larger screen",
    "reviewed the draft of the privacy notice",
    "moved the log files to cold storage",
    "wrote the minutes of the board",
    "found a leak in the image cache",
    "ordered new chairs for the kitchen",
    "taught the interns how to use git",
    "measured how long the search page takes",
    "watered the plants",
    "translated the help pages into Danish",
    "replaced the battery of the door lock",
    "closed forty stale tickets",
    "planned the summer party",
    "counted the stickers that are left",
    "drew the new logo",
)


def notes() -> list[dict[str, str]]:
    """Return 40 versions of 8 facts, one that is old, and 159 things that somebody has done."""
    facts = [
        {"text": fact.format(value), "date": f"2026-{month:02}-01"}
        for fact, (values, _) in FACTS.items()
        for month, value in zip(MONTHS, values, strict=True)
    ]
    things = [
        {"text": f"{who} {what}.", "date": f"2026-{1 + i % 10:02}-{1 + j:02}"}
        for i, who in enumerate(PEOPLE)
        for j, what in enumerate(DONE)
    ]
    return [*facts, {"text": UNCHANGED, "date": "2026-01-02"}, *things[1:]]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = ["--store", f"faiss:{folder}/memory", "--write", "--max-tokens", str(MAX_TOKENS)]
        recent = ["--newest", "date", "--half-life-days", "20"]
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "sift_core.cli", "mcp", *store, *recent],
            env={**os.environ},
        )
        async with Client(stdio_client(server)) as client:
            await show(client)


async def show(client: Client) -> None:
    stored = await asyncio.gather(*(client.call_tool("remember", note) for note in notes()))
    print(f"{sum(not one.is_error for one in stored)} notes remembered")
    current = {question: fact.format(values[-1]) for fact, (values, question) in FACTS.items()}
    current["Where is the spare key of the office?"] = UNCHANGED
    n_first = n_returned = 0
    for question, fact in current.items():
        answer = await client.call_tool("search", {"question": question})
        text = answer.content[0].text
        first, *others = returned = [one["text"] for one in json.loads(text)["passages"]]
        n_first += first == fact
        n_returned += fact in returned
        print(f"\n{question}\n  {first}")
        print(f"  and {len(others)} other notes, in {estimated_tokens(text)} tokens")
    n = len(current)
    print(f"\nthe current fact came first for {n_first} of {n} questions")
    print(f"the current fact was returned for {n_returned} of {n} questions")


if __name__ == "__main__":
    asyncio.run(main())
