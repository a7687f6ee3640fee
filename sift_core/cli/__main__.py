"""`python -m sift_core.cli` is the `sift` command."""

from sift_core.cli import main

main()
