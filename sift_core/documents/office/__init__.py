"""Readers of Office files, EPUB and notebooks. Import them from their modules."""
