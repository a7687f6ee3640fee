"""Long runs: rows of a file, measured here, in processes or on Ray."""
