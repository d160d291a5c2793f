"""Remember the devices of late samples, so that the rollup reads no others.

One process writes an embedded warehouse. What it knows about a mark is complete if it has set the
mark itself: the bucket was rolled up before, and every later sample of it came through this
process. Of other marks nothing is known, and the rollup compares samples with rollups.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

Marks = frozenset[tuple[str, datetime]]
"""(cluster, bucket) pairs that are marked in the lake."""

MOST_DEVICES = 500
"""More devices are not late ones: all are rolled up again."""
MOST_MARKS = 2_000
"""Marks whose devices are remembered: a long backfill has more, and is rolled up whole."""


class SampleMarks(msgspec.Struct, frozen=True):
    """The marks of ingested sample rows."""

    stored: Marks
    """All marks of which this process knows that they are in the lake."""
    own: Marks = frozenset()
    """Those of these rows."""
    fresh: Marks = frozenset()
    """Those of these rows that were not in the lake before."""
    devices: frozenset[str] | None = None
    """The devices of these rows; None: more than `MOST_DEVICES`."""


class LateDevices:
    """The devices of samples since the last rollup of a bucket, by its mark."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, datetime], frozenset[str] | None] = {}

    def note(self, marks: SampleMarks) -> None:
        """Note the devices of rows that are committed."""
        for mark in marks.own:
            if mark in self._devices:
                self._devices[mark] = _join(self._devices[mark], marks.devices)
            elif mark in marks.fresh and len(self._devices) < MOST_MARKS:
                self._devices[mark] = marks.devices

    def find(
        self, cluster: str, buckets: Collection[datetime], first: datetime, last: datetime
    ) -> frozenset[str] | None:
        """Return the devices with samples since the last rollup of these marks of a cluster.

        Marks in [first, last) that came after `buckets` were read are included. Returns None where
        the devices of a mark are not known, or are many.
        """
        since = {mark for mark in self._devices if mark[0] == cluster and first <= mark[1] < last}
        devices: frozenset[str] | None = frozenset()
        for mark in since.union((cluster, bucket) for bucket in buckets):
            devices = _join(devices, self._devices.get(mark))
        return devices

    def forget(self, cluster: str, first: datetime, last: datetime) -> None:
        """Forget the marks in [first, last) of a cluster: they are about to be cleared."""
        for mark in [m for m in self._devices if m[0] == cluster and first <= m[1] < last]:
            del self._devices[mark]

    @contextmanager
    def clear_on_error(self) -> Iterator[None]:
        """Forget all marks if the block raises: whether it was committed is not known."""
        try:
            yield
        except BaseException:
            self._devices.clear()
            raise


def list_few_devices(rows: pa.Table) -> frozenset[str] | None:
    """Return the devices of sample rows; None: there are more than `MOST_DEVICES`."""
    # Rows of one scrape have different devices: the first rows answer for most large batches.
    column = rows.column("device")
    if len(pc.unique(column.slice(0, 2 * MOST_DEVICES))) > MOST_DEVICES:
        return None
    return _limit(frozenset(pc.unique(column).to_pylist()))


def _join(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    return None if first is None or second is None else _limit(first | second)


def _limit(devices: frozenset[str]) -> frozenset[str] | None:
    return devices if len(devices) <= MOST_DEVICES else None
