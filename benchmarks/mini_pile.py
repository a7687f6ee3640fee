"""The mini-Pile, as results are measured on it."""

NOT_SEEN = "89abcdef"  # last hex digits of sha1(doc), of what the results choose from
