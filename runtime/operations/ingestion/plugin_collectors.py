"""Read other packages' collectors: whatever one does costs its own turn, and no other source."""

from collections.abc import Callable, Iterator

from fallow.errors import FallowError, SettingsError, SourceError
from fallow.protocols import Collector
from fallow.system.deadlines import call_within
from fallow.tables import Batch
from fallow.window import Window
from warehouse.storage import get_storage

READ_WITHIN_S = 300.0
"""Deadline for one read: a turn of `collect --once` waits for it."""
MOST_ROWS = 2_000_000
"""Rows of one read: 1 GB of memory."""


class PluginError(Exception):
    """Report what ended a plugin; no error of Fallow's, which would be the whole pass's."""


class PluginCollector:
    """A collector of another package, whose rows are whole before any is used."""

    def __init__(self, build: Callable[[], Collector]) -> None:
        """Build it; what its class raises is said at each read.

        Raises:
            SettingsError: it refuses its section of the settings.
        """
        try:
            self._collector = build()
        except SettingsError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  (of code that is not ours)
            self._fault: BaseException | None = error
        else:
            self._fault = None

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield its batches.

        Raises:
            PluginError: it failed, or gave what no collector may give.
            DeadlineExceededError: it did not end in time.
        """
        yield from call_within(READ_WITHIN_S, lambda: self._read(window))

    def _read(self, window: Window) -> list[Batch]:
        try:
            if self._fault is not None:
                raise self._fault
            return list(_check(self._collector.collect(window)))
        except (FallowError, SystemExit) as error:
            raise PluginError(f"{type(error).__name__}: {error}") from error


def _check(batches: Iterator[Batch]) -> Iterator[Batch]:
    rows = 0
    for batch in batches:
        if get_storage(batch.table).mode == "derived":
            raise SourceError(f"table {batch.table!r} is no collector's")
        rows += max(batch.rows.num_rows, 1)
        if rows > MOST_ROWS:
            raise SourceError(f"over {MOST_ROWS:,} rows in one read")
        yield batch
