"""End the process of a query that takes too much time or memory, whatever the engine does.

The engine's `memory_limit` counts a part of its memory only, and neither the rows of a result nor
their text; a call inside a function such as `repeat` or `list_sort` ends by no interrupt.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.service.process_end import end_process

PERIOD_S = 0.02
ABOVE_ENGINE = 1.5
"""Memory of a query, its rows and their text, in times that of the engine."""
_RESIDENT = Path("/proc/self/statm")


@contextmanager
def limit_query(seconds: float, engine_bytes: int) -> Iterator[None]:
    """End the process with exit code 1 where the block takes too long, or too much memory."""
    closed = threading.Event()
    end = time.monotonic() + seconds
    most = int(engine_bytes * ABOVE_ENGINE)
    limit = _read_resident() + most

    def watch() -> None:
        while not closed.wait(PERIOD_S):
            if time.monotonic() > end:
                _end(f"the query ran for {seconds:g} s", "warehouse.query_within")
            if _read_resident() > limit:
                _end(f"the query took {most >> 20:,} MiB of memory", "warehouse.memory_limit")

    threading.Thread(target=watch, name="query-limit", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _end(message: str, setting: str) -> None:
    sys.stderr.write(
        f"fallow: {message} and was ended\n"
        f"hint: ask for fewer hours or columns, or set {setting} (`fallow config show`)\n"
    )
    end_process(1)


def _read_resident() -> int:
    """Return the bytes of memory that this process has; 0 where the system does not say."""
    try:
        pages = int(_RESIDENT.read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
