"""Experiments over documents and prompts, retrieval metrics, their tables and figures."""
