"""The text of a workbook, and the readers of the other formats."""

import io

import openpyxl

from sift_core.documents.office import slides, word
from sift_core.documents.office.sheets import markdown_of_xlsx

book, content = openpyxl.Workbook(), io.BytesIO()
book.active.append(["tea", 3])
book.save(content)
assert "tea" in markdown_of_xlsx(content.getvalue())
assert word.markdown_of_docx
assert slides.markdown_of_pptx
