"""How soon does the page of `sift serve` show its passages, and the first words of its answer?

    sift index docs && sift serve
    python -m benchmarks.first_words http://127.0.0.1:8123

It asks in a real browser (Debian's `chromium`) and prints seconds from the key press. Set the
variables of `make CPU=avx2` to measure as on a processor without AVX-512.
"""

from __future__ import annotations

import argparse
import os
import re
import time

QUESTION = "How do I choose only the newest version of a document, and how do I limit tokens?"
PATIENCE_MS = 300_000


def seconds_to_first_words(url: str, question: str) -> tuple[float, float]:
    """Return the seconds from Enter to the first passage, and to the first word of the answer."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = os.environ.get("SIFT_CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        page.get_by_role("textbox", name="Question").fill(question)
        started = time.perf_counter()
        page.keyboard.press("Enter")
        page.locator(".passage").first.wait_for()
        passages_s = time.perf_counter() - started
        page.locator(".text").filter(has_text=re.compile(r"\w")).first.wait_for()
        words_s = time.perf_counter() - started
        page.get_by_role("button", name="Stop", exact=True).click()
        browser.close()
    return passages_s, words_s


def main() -> None:
    """Ask a few times, and print each time."""
    parser = argparse.ArgumentParser(description="Time the page of a running service.")
    parser.add_argument("url")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    for _ in range(arguments.times):
        passages_s, words_s = seconds_to_first_words(arguments.url, arguments.question)
        print(f"passages after {passages_s:.1f} s, first words after {words_s:.1f} s")


if __name__ == "__main__":
    main()
