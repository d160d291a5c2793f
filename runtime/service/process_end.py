"""End the process of a stopped service, whatever still hangs in it.

Every write is one transaction, so ending without waiting loses no more than a SIGKILL: nothing that
was acknowledged.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

log = logging.getLogger("fallow.service")

CLOSING_S = 20.0
"""Time to close the dashboard, the lease, the journal and the warehouse after the running jobs."""


@contextmanager
def limit_stop(stop: threading.Event, within_s: float) -> Iterator[None]:
    """End the process if the block still runs this long after `stop` was set."""
    closed = threading.Event()

    def limit() -> None:
        stop.wait()
        if not closed.wait(within_s):
            log.error("ended before everything was closed", extra={"after_s": within_s})
            end_process()

    threading.Thread(target=limit, name="stop-limit", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def end_process(code: int = 0) -> NoReturn:
    """End this process now with an exit code, without waiting for threads that libraries started.

    A thread in the middle of a query would abort the process when the interpreter ends: DuckDB asks
    for the interpreter's lock, and Python 3.11 ends that thread inside DuckDB's code.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
