"""Servers that write the answers, over HTTP."""
