"""Whether a collection needs SIFT: how much repeats in it, what would change, what to do."""
