"""Four ways to keep the words of documents, alike enough to be measured by `lexical_index`.

Each takes a folder and pairs of heading and text. It returns `write(n, die)`, which makes the
folder hold the first n and calls `die` just before that is durable, and `opened()`, which returns
`search(words, k)`. Only ours leaves out words that more than half of the documents have.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import bm25s
import numpy as np
import tantivy

from sift_core.selection.word_counts import words_of
from sift_core.sources.lexical_index import LexicalIndex

Texts: TypeAlias = list[tuple[str, str]]
Search: TypeAlias = Callable[[list[str], int], object]
Engine: TypeAlias = tuple[Callable[[int, Callable[[], object]], None], Callable[[], Search]]


def ours(folder: Path, texts: Texts) -> Engine:
    path = folder / "words.npz"

    def read(ids: list[int]) -> tuple[list[str], list[str]]:
        return [texts[i][1] for i in ids], [texts[i][0] for i in ids]

    def write(n: int, die: Callable[[], object]) -> None:
        draft = folder / "draft"
        index = LexicalIndex.empty()
        if path.exists():
            index = LexicalIndex.from_bytes(path.read_bytes())
        draft.write_bytes(index.updated(np.arange(n), read).as_bytes())
        die()
        draft.replace(path)

    return write, lambda: LexicalIndex.from_bytes(path.read_bytes()).search


def fts5(folder: Path, texts: Texts) -> Engine:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(folder / "words.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        split = "unicode61 remove_diacritics 0 categories 'L* N* Co M* P* S*'"
        sql = 'CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, heading, tokenize="{}")'
        connection.execute(sql.format(split))
        return connection

    def write(n: int, die: Callable[[], object]) -> None:
        db = connect()
        (held,) = db.execute("SELECT coalesce(max(rowid), -1) + 1 FROM words").fetchone()
        rows = ((i, *(" ".join(words_of(t)) for t in texts[i][::-1])) for i in range(held, n))
        db.execute("BEGIN")
        db.executemany("INSERT INTO words(rowid, text, heading) VALUES (?, ?, ?)", rows)
        db.execute("DELETE FROM words WHERE rowid >= ?", [n])
        die()
        db.execute("COMMIT")
        db.close()

    best = "ORDER BY bm25(words, 1.0, 3.0), rowid LIMIT ?"
    sql = f"SELECT rowid FROM words WHERE words MATCH ? {best}"

    def opened() -> Search:
        connection = connect()

        def search(words: list[str], k: int) -> object:
            expression = " OR ".join(f'"{word}"' for word in words)
            return connection.execute(sql, [expression, k]).fetchall()

        return search

    return write, opened


def of_bm25s(folder: Path, texts: Texts) -> Engine:
    def write(n: int, die: Callable[[], object]) -> None:
        index = bm25s.BM25(k1=1.2, b=0.75)
        tokens = [words_of(text) + 2 * words_of(title) for title, text in texts[:n]]
        index.index(tokens, show_progress=False)
        die()
        index.save(folder)

    def opened() -> Search:
        index = bm25s.BM25.load(folder)
        return lambda words, k: index.retrieve([words], k=k, show_progress=False)

    return write, opened


def of_tantivy(folder: Path, texts: Texts) -> Engine:
    builder = tantivy.SchemaBuilder().add_unsigned_field("id", indexed=True, fast=True)
    schema = builder.add_text_field("text", tokenizer_name="spaces", index_option="freq").build()

    def connect() -> tantivy.Index:
        index = tantivy.Index(schema, path=str(folder))
        spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        index.register_tokenizer("spaces", spaces)
        return index

    def write(n: int, die: Callable[[], object]) -> None:
        index, held = connect(), connect().searcher().num_docs
        writer = index.writer(heap_size=50_000_000, num_threads=1)
        for i in range(held, n):
            title, text = texts[i]
            document = tantivy.Document(text=" ".join(words_of(text) + 2 * words_of(title)))
            document.add_unsigned("id", i)
            writer.add_document(document)
        for i in range(n, held):
            writer.delete_documents_by_term("id", i)
        die()
        writer.commit()
        writer.wait_merging_threads()

    def opened() -> Search:
        searcher, query, should = connect().searcher(), tantivy.Query, tantivy.Occur.Should

        def search(words: list[str], k: int) -> object:
            terms = [(should, query.term_query(schema, "text", word)) for word in words]
            return searcher.search(query.boolean_query(terms), k, count=False).hits

        return search

    return write, opened


ENGINES = {"ours": ours, "FTS5": fts5, "bm25s": of_bm25s, "tantivy": of_tantivy}
