"""What an attacker puts into a pickle."""

import os


class Evil:
    """Makes a folder when it is unpickled.

    Args:
        mark: The folder.
    """

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)
