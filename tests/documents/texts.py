"""Texts in every format that is cut."""

GUIDE_MD = """\
---
title: not a heading
---

# The guide

What it is about, in a paragraph.

## Installing

Run this:

```bash
pip install thing
# not a heading

thing --help
```

### Deeper #

Below it.

Using it
--------

| Name | Meaning |
|------|---------|
| a    | alpha   |

1. one item
2. another

   of two paragraphs
"""

GUIDE_RST = """\
.. _guide:

=========
The guide
=========

What it is about, in a paragraph.

Installing
==========

Run this::

    pip install thing

    thing --help

.. code-block:: python
   :linenos:

   def main():

       return 0

.. _using:
.. _use:

Using it
--------

======  =======
Name    Meaning
======  =======
a       alpha
======  =======

Last words
==========

The end.
"""

MODULE = '''\
"""A module."""

import os


class Cat:
    """Purrs."""

    def purr(self) -> str:
        """Return the sound."""
        return "purr " * 3

    def sleep(self, hours: int) -> None:
        """Sleep."""
        for _ in range(hours):
            print("z")


@cached
def feed(cat: Cat) -> bool:
    return bool(cat)
'''
