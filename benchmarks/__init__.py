"""Benchmarks: one runner per question. Ratios against a named peer, measured in one run."""
