"""Define what `fallow.connect` returns: a fleet's figures as Arrow tables, for notebooks.

    with fallow.connect(home) as fleet:
        fleet.spend(by=["team", "state"], window="30d").to_pandas()

The figures are those of the command line with `-o json`. Nothing is written.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
import pyarrow as pa

from fallow.errors import UsageError
from fallow.plugins import find_installed
from fallow.window import Window

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

GROUP = "connect"
"""The entry-point group `fallow.connect`; its only entry point has this name."""
ENTRY_POINT = "warehouse"


class FleetTable(msgspec.Struct, frozen=True):
    """Rows as an Arrow table, with the window that they cover and the notes beside them.

    It has the Arrow C stream interface: `polars.DataFrame(table)`, `pyarrow.table(table)` and
    DuckDB read it as it is.
    """

    table: pa.Table
    window: Window
    notes: tuple[str, ...] = ()
    """What the command line writes on stderr: coverage, stale data, audits that fail."""
    document: Mapping[str, Any] = {}
    """The command's JSON document: coverage, totals, savings; money is `Decimal`. A result that
    comes from no command that writes one has none."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table: dollars are decimal, times UTC without a zone."""
        return self.table

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a Polars frame: dollars are `pl.Decimal`."""
        frame: pl.DataFrame = import_module("polars").from_arrow(self.table)
        return frame

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas frame: dollars are `decimal.Decimal`, exact.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import_module("pandas")
        except ModuleNotFoundError as error:
            raise UsageError("pandas is not installed", hint="pip install pandas") from error
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        names = ", ".join(self.table.column_names)
        lines = [f"{len(self):,} rows of {names}", *self.notes]
        return "\n".join(lines)


class Explanation(msgspec.Struct, frozen=True):
    """What a finding or an action rests on: see `fallow explain`."""

    document: Mapping[str, Any]
    """The command's JSON document: finding, arithmetic, savings, rates, queries with their SQL."""
    tables: Mapping[str, FleetTable] = {}
    """The rows of each query by its name, and `rates`; empty for an action."""

    def __repr__(self) -> str:
        names = ", ".join(f"{name} ({len(table):,} rows)" for name, table in self.tables.items())
        return f"{self.document.get('arithmetic', 'an action')}; tables: {names or 'none'}"


class Fleet(Protocol):
    """A fleet's warehouse, open for reading. Close it, or use it in a `with` statement.

    `window`: `7d` (until the newest hour in the ledger; the default), or `START/END`; a `Window`
    too. Each method raises UsageError where an argument is not legal or there is no telemetry,
    UnreadableDaysError where archived days cannot be read, and TemporaryError where the catalog or
    the archive does not answer.
    """

    def spend(
        self,
        by: str | Sequence[str] = "team",
        window: str | Window | None = None,
        *,
        view: str = "loaded",
        share_unallocated: bool = False,
    ) -> FleetTable:
        """Return GPU-hours and dollars that sum to the capacity and to the bill: `fallow spend`.

        `by`: cluster, namespace, team, workload, model, pool, node, state, or several of them.
        Columns: those of `by`, gpu_hours, share_pct, usd (cents; null = no rate), idle_gpu_hours,
        idle_usd, unknown_gpu_hours, unpriced_gpu_hours, estimated_gpu_hours (prices),
        price_as_of, saves_gpu_hours, saves_usd, busy_pct, effective_pct, measured_gpu_hours.
        """
        ...

    def findings(
        self,
        *analyzers: str,
        window: str | Window | None = None,
        evidence: str | None = None,
    ) -> FleetTable:
        """Find waste with these analyzers (none = all): `fallow analyze`, but nothing is stored.

        `evidence`: only `confirmed`, or only `suspected`. Columns: id, analyzer, kind, evidence,
        namespace, workload, team, start, end, gpu_hours, usd, effort, impact, saves_gpu_hours,
        saves_usd, at_most_gpu_hours, at_most_usd (hours in use, in no sum), saving, do. The
        `document` has the whole findings and the waterfall.
        """
        ...

    def explain(self, prefix: str) -> Explanation:
        """Return what a stored finding or an action rests on: `fallow explain ID`.

        Raises:
            UsageError: no id, or several, begin with `prefix`.
        """
        ...

    def ledger(self, window: str | Window | None = None) -> FleetTable:
        """Return the ledger's rows: each device and bucket, its states, seconds and exact dollars.

        Columns: those of the table `ledger` (docs/ledger.md).
        """
        ...

    def close(self) -> None:
        """Close the warehouse; a second call has no effect."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_fleet(home: Path | str | None, *, config: Path | str | None, cluster: str | None) -> Fleet:
    """Open a fleet by the installed entry point; see `fallow.connect`."""
    points = find_installed(GROUP)
    if ENTRY_POINT not in points:
        raise UsageError(
            "nothing that opens a warehouse is installed",
            hint="install Fallow from its checkout: its entry point fallow.connect is missing",
        )
    fleet: Fleet = points[ENTRY_POINT].load()(home, config=config, cluster=cluster)
    return fleet
