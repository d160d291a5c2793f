"""What a noun's view reads when its rows lie in more than one tier.

`definition(noun, state)` returns the SELECT of a noun, or None for "the lake's table as it is".
`state` is what the lake said inside the reader's own snapshot, so that a tier move is seen whole
or not at all. SQL here names the lake's tables in full: `lake.main.sample`.
"""

from datetime import datetime

import msgspec


class TierState(msgspec.Struct, frozen=True):
    """Where rows lie at one snapshot: watermarks by name, archived files by table."""

    watermarks: tuple[tuple[str, datetime], ...] = ()
    cold: tuple[tuple[str, str], ...] = ()
    """(table, path) of every archived Parquet file, in order."""

    def watermark(self, name: str) -> datetime | None:
        """Return a watermark's moment (UTC, naive), or None when it was never set."""
        return dict(self.watermarks).get(name)

    def files(self, table: str) -> list[str]:
        """Return the archived files of a table."""
        return [path for name, path in self.cold if name == table]


def definition(noun: str, state: TierState) -> str | None:  # noqa: ARG001
    """Return the SELECT that is the noun at this state, or None for the lake's table."""
    return None
