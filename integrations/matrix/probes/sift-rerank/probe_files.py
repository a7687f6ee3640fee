"""The text of an HTML page and of an empty PDF."""

import io

import pypdf

from sift_core.documents.html import markdown_of_html

text = markdown_of_html(b"<html><body><h1>Tea</h1><p>Must not boil.</p></body></html>")
assert "# Tea" in text, text
pypdf.PdfWriter().write(io.BytesIO())
