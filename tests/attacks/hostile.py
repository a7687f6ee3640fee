"""Files that hurt who reads them: bounded time and memory, and the files beside them are read."""

import os
import socket
import sys
from io import BytesIO

import pypdf
from pypdf.generic import ArrayObject, DecodedStreamObject, NameObject

from sift_core.documents import Budget, Chunker, read_files
from tests.attacks.commands import forked, sift
from tests.attacks.frame import Failed
from tests.documents.test_reading import pdf

LEAST, MOST = 1_000, 1_000_000  # bytes of a file
CPU_S, GROWN_MB = 10.0, 2_000.0  # for a folder with one such file; of time beyond its budget
GOOD = "# Cats\n\nCats purr.\n"

REPEATED = {  # pieces between "~"
    "html": "<div>~<b>~<a b='~<ul><li>~<table><tr><td>~<blockquote>~<!--~<![~&amp;~&#x1F600;~<p>~"
    "<pre>~<h1>x~<td colspan=1000>x</td>~<tr><td>x~<a href='x'>y</a>~</p>~<~<x y=~<svg><math>~"
    "<select><option>~<br>~<td rowspan=65534 colspan=1000>~<ol start=9999999999><li>x~<style>",
    "md": ">~> ~- ~  - x\n~[~![~*~_a_~`~```\n~|~| a ~#~# x\n~[a](~<a ~<~&~\\~1. ~a\n===\n~x~ ~\t~"
    "***a ~[^1]:~<div>\n~[a]: b\n~$$~:~* a\n\n~- a\n\n  ~|-~\n~é~漢",
    "rst": "=~`~|~*~.. ~..\n\n~x\n=\n~::\n\n ~+--~_~  - ~.. |a| ",
    "py": '(~[~{~a=~if x:\n ~f\'{~"""~\\\n~lambda:~-~not ~@a\n~x;',
    "txt": "x~ ~\n~é~e\u0301~\u200b~\U0001f468\u200d~\r~\f~a b~. ~漢",
}
PREFIXES = {
    "html": ("", "<meta charset={}>", '<?xml version="1.0" encoding="{}"?>', "<table>", "<p>x"),
    "md": ("", "---\n", "| a | b |\n|---|---|\n", "# x\n\n", "```\n"),
    "py": ("", "# coding: {}\n", '"""x"""\n', "def f():\n"),
}
CODECS = (
    "punycode idna rot13 base64 unicode_escape raw_unicode_escape undefined utf-7 utf-16 utf-32"
)
CODECS += " zlib hex mbcs oem \0 utf-8-sig bz2_codec quopri uu cp65001 iso2022_jp_2 hz ../x é"


def repeated(rng, suffix):
    """Return a small piece many times, or two in turn, between a beginning and an end."""
    piece = "".join(rng.choices(REPEATED[suffix].split("~"), k=rng.choice([1, 1, 2])))
    prefix = rng.choice(PREFIXES.get(suffix, ("",))).format(rng.choice(CODECS.split(" ")))
    n = round(LEAST * (MOST / LEAST) ** rng.random())
    middle = rng.choice(["", "", "\n", " ", "x"]).join([piece] * n)[:n]
    return (prefix + middle + rng.choice(["", "x", "\n\nThe end.\n"])).encode()


def encoded(rng, suffix):
    """Return text in a rare encoding, or bytes that are none."""
    text = "Cats purr. " * rng.randint(1, 2_000) + "é漢🙂\u202e"
    prefix = rng.choice(PREFIXES.get(suffix, ("{}",))).format(rng.choice(CODECS.split(" ")))
    ways = [text.encode(name) for name in ("utf-16", "utf-32", "utf-7", "utf-8-sig", "utf-16-be")]
    ways += [rng.randbytes(9_999), b"\xff\xfe" + rng.randbytes(99), b"\xef\xbb\xbf" * 99 + ways[0]]
    ways += [text.encode()[:-1], text.encode().replace(b" ", bytes([rng.randrange(32)]))]
    return rng.choice([*ways, *[(prefix + text).encode()] * 5])


def bomb(rng, _):
    """Return a PDF that is small and much, or damaged."""
    n, way = rng.randint(1_000, 100_000), rng.choice(("pages", "flate", "loop", "damaged"))
    if way == "damaged":
        content = bytearray(pdf("Cats purr.", "Dogs bark."))
        for _ in range(rng.randint(1, 20)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(BytesIO(pdf("Cats purr."))))
    pages, page, stream = writer._root_object["/Pages"], writer.pages[0], DecodedStreamObject()
    if way == "pages":  # one page, listed often
        pages[NameObject("/Kids")] = ArrayObject([pages["/Kids"][0]] * n)
    elif way == "loop":  # a tree of pages that contains itself
        pages[NameObject("/Kids")] = ArrayObject([pages["/Kids"][0], pages.indirect_reference])
    else:  # much that is packed small
        stream.set_data(rng.choice([b" ", b"BT /F1 12 Tf (Cats purr.) Tj ET\n"]) * 10 * n)
        page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def contents(rng, folder):
    """Small files that take long, or much, to read."""
    suffix = rng.choice([*REPEATED, "html", "md", "pdf"])
    content = (bomb if suffix == "pdf" else rng.choice([repeated] * 4 + [encoded]))(rng, suffix)
    (folder / f"hostile.{suffix}").write_bytes(content)
    (folder / "good.md").write_text(GOOD)
    words = Chunker(rng.choice([40, 256]), size=lambda text: len(text.split()))
    chunker = rng.choice([Chunker(200), Chunker(), words])
    budget = Budget(seconds=rng.choice([0.5] * 9 + [Budget().seconds]))

    def work():
        reading = read_files([folder], base=folder, chunker=chunker, budget=budget)
        sys.stdout.write(" ".join(reading.sources))

    ended, most = forked(work, folder), budget.seconds + 10 * len(content) / 1e6 + CPU_S
    about = f"{suffix} {content[:25]!r}… of {len(content) // 1000} kB"
    if ended.code or "good.md" not in ended.out:
        raise Failed(f"{about}: exit code {ended.code}, {ended.err[-200:]}")
    if ended.cpu_s > most or ended.grown_mb > GROWN_MB:
        raise Failed(f"{about} took {ended.cpu_s:.0f} s of computing, {ended.grown_mb:.0f} MB")


def names(rng, folder):
    """Odd names, depths and kinds of entries: listed as left out, and the others are indexed."""
    docs, secret = folder / "docs", folder / "secret.md"
    docs.mkdir()
    secret.write_text("# Secret\n\nThe secret is 42.\n")
    (docs / "good.md").write_text(GOOD)
    way = rng.choice(("deep", "long", "links", "kinds"))
    if way in ("deep", "long"):
        name, depth = ("d", rng.randint(500, 2_500)) if way == "deep" else ("d" * 250, 30)
        below = docs
        for _ in range(depth):
            os.chdir(below)
            os.mkdir(name)
            below = name
        os.chdir(name)
        with open("x.md", "w") as file:
            file.write("# Deep\n\nDogs bark.\n")
        os.chdir(folder)
    elif way == "links":
        places = [secret, folder, "/proc/self/environ", "/dev/zero", "5.md", "/etc/passwd", ".."]
        for i, place in enumerate(places):
            (docs / f"{i}.md").symlink_to(place)
    else:
        os.mkfifo(docs / "pipe.md")
        socket.socket(socket.AF_UNIX).bind("docs/socket.md")
        (docs / "folder.md").mkdir()
        (docs / "none.md").touch()
        os.truncate(docs / "none.md", rng.choice([1, 10**6, 10**12]))
    told = sift(folder, "index", "docs", "--json").checked(0)
    if told.cpu_s > 6 * CPU_S or told.grown_mb > GROWN_MB:
        raise Failed(f"{way}: {told.cpu_s:.0f} s of computing, {told.grown_mb:.0f} MB")
    found = sift(folder, "search", "What do cats and the secret say?", "-n", "60").checked(0)
    if "Cats purr" not in found.out or "secret is 42" in found.out:
        raise Failed(f"{way}: not indexed, or through a link: {told.out[:300]}")


ATTACKS = (contents, names)
