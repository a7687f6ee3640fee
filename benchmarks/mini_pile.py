"""The mini-Pile, as examples/tiny_lm divides it."""

NOT_SEEN = "89abcdef"  # last hex digits of sha1(doc) that examples/train_tiny_lm.py leaves out
