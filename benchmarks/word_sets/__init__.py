"""Question sets for retrieval by words beside embeddings. No question was written after a search.

`templates` has chunks of one template, `languages` German, Chinese and Python, `planted` adds
pages that only look relevant, and `documentation` asks FastAPI's documentation.
"""
