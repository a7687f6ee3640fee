"""All that needs a GPU, in one run that takes its packages with it: see `benchmarks.gpu`."""
