"""The `sift` command: thin, over the public API."""
