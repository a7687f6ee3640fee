"""Choosing documents: arrays in, arrays out. NumPy alone."""
