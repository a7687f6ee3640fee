"""Retrieval metrics on your own data, and how redundant a collection is."""
