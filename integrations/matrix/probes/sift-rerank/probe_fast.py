"""The compiled selection, which compiles here."""

import sift_core

assert sift_core.load_compiled()
