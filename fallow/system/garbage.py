"""Collect garbage less often while many lasting objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 50_000
"""New objects between two collections; Python's default is 700. All objects are
searched after a hundred times as many."""


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """Collect after `YOUNG_OBJECTS` new objects until the block ends.

    Objects outside of cycles are freed at once as ever. The more objects a process keeps, the
    longer does a collection search them.
    """
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
