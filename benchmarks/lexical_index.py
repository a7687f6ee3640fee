"""What keeps the words of documents best? Our own columns, FTS5, bm25s or tantivy.

    OMP_NUM_THREADS=1 python -m benchmarks.lexical_index --data ../shared/data [--json FILE]

All but ours get the strings of `words_of`, headings three times. Times of changes include writing
them to disk, and opening after a writer was killed includes a search. Install bm25s and tantivy.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.lexical_index_rivals import ENGINES, Engine, Texts
from benchmarks.records import write_record
from sift_core.selection.word_counts import words_of

SETS = ("2wikimultihopqa", "musique", "hotpotqa", "squad", "entailmentbank")
QUESTION = "What is the name of the film that was directed by the person who was born in London?"
ROUNDS = 21


def clock_ms(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def measure(make: Callable[[Path, Texts], Engine], texts: Texts) -> dict[str, float]:
    rng, n = np.random.default_rng(0), len(texts)
    own = [{*words_of(texts[i][1])} for i in rng.integers(n, size=3 * ROUNDS)]
    drawn = [sorted(words, key=lambda word: (len(word), word))[-10:] for words in own]  # long: rare
    common, texts = words_of(QUESTION), [*texts, *texts[:100]]
    with TemporaryDirectory() as place:
        folder = Path(place)
        write, opened = make(folder, texts)
        row = {"build_ms": clock_ms(lambda: write(n, int))}
        row["size_mb"] = sum(path.stat().st_size for path in folder.rglob("*")) / 1e6
        search = opened()
        search(common, 200)
        times = [clock_ms(lambda: search(common, 200)) for _ in range(ROUNDS)]
        row["common_ms"] = statistics.median(times)
        triples = [drawn[3 * i : 3 * i + 3] for i in range(ROUNDS)]
        times = [clock_ms(lambda t=t: [search(words, 200) for words in t]) for t in triples]
        row["three_rare_ms"] = statistics.median(times)
        row["add_100_ms"] = clock_ms(lambda: write(n + 100, int))
        row["remove_100_ms"] = clock_ms(lambda: write(n, int))
        if (child := os.fork()) == 0:
            write(n + 100, lambda: os.kill(os.getpid(), signal.SIGKILL))
        os.waitpid(child, 0)
        row["open_after_kill_ms"] = clock_ms(lambda: opened()(common, 200))
    return {key: round(value, 2) for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with `corpus`")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    rows = []
    for sets in (SETS[:1], SETS[1:2], SETS):
        texts = []
        for name in sets:
            with gzip.open(arguments.data / "corpus" / name / "corpus.jsonl.gz", "rt") as file:
                texts += [(one["title"], one["text"]) for one in map(json.loads, file)]
        for name, make in ENGINES.items():
            about = {"engine": name, "sets": list(sets), "n_documents": len(texts)}
            rows.append({**about, **measure(make, texts)})
            print(rows[-1], flush=True)
    if arguments.json is not None:
        write_record(arguments.json, rows=rows, bars=[], packages=["numpy", "bm25s", "tantivy"])


if __name__ == "__main__":
    main()
