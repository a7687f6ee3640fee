"""Bits per byte of prompts: what is measured, on what, and how."""
