"""Open a fleet for `fallow.connect`: the functions behind the commands, their results as Arrow."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa

from capacity.replay.answer import answer_what_if
from capacity.replay.changes import parse_changes
from fallow.demo_marker import read_now
from fallow.fleet import Explanation, Fleet, FleetTable
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.accounting import ledger_totals, windows
from runtime.operations.acting import plans
from runtime.operations.analysis import analyzer_runs, explanations, findings, incidents, pending
from runtime.operations.analysis.idleness import Idleness, IdlenessReader
from runtime.operations.answers import documents
from runtime.operations.queries import load_sql
from runtime.rendering.tables import round_body
from warehouse.lake import Warehouse
from warehouse.spend import KEYS

if TYPE_CHECKING:
    from capacity.queue.records import QueuedWorkload
    from capacity.replay.answer import WhatIfAnswer
    from runtime.operations.accounting.windows import CoveredHours
    from runtime.operations.acting.plans import WhyNotReport

HOURS, USD, TIME = pa.float64(), pa.decimal128(38, 2), pa.timestamp("us")
SPEND_COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(KEYS, pa.string()),
    "gpu_hours": HOURS, "share_pct": HOURS, "usd": USD, "idle_gpu_hours": HOURS, "idle_usd": USD,
    "unknown_gpu_hours": HOURS, "unpriced_gpu_hours": HOURS, "estimated_gpu_hours": HOURS,
    "price_as_of": TIME, "saves_gpu_hours": HOURS, "saves_usd": USD, "busy_pct": HOURS,
    "effective_pct": HOURS, "measured_gpu_hours": HOURS,
}  # fmt: skip
"""Columns of a spend table and their types, also where there are no rows."""
FINDING_COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(
        ("id", "analyzer", "kind", "evidence", "namespace", "workload", "team", "cluster"),
        pa.string(),
    ),
    "start": TIME, "end": TIME, "gpu_hours": HOURS, "usd": USD, "effort": pa.string(),
    "impact": pa.string(), "saves_gpu_hours": HOURS, "saves_usd": USD,
    "at_most_gpu_hours": HOURS, "at_most_usd": USD, "saving": pa.string(),
    "do": pa.string(),
}  # fmt: skip
"""Columns of a table of findings and their types."""


def open_fleet(
    home: Path | str | None = None,
    *,
    config: Path | str | None = None,
    cluster: str | None = None,
) -> Fleet:
    """Open the warehouse of these settings for reading: the entry point of `fallow.connect`.

    Raises:
        SettingsError: a setting is not legal.
        WarehouseError: there is no warehouse, or it cannot be used as it is.
        TemporaryError: the catalog does not answer.
    """
    flags = {"home": home, "cluster": cluster}
    settings = load(file=None if config is None else Path(config), flags=flags).settings
    return WarehouseFleet(settings, cluster)


class WarehouseFleet:
    """A fleet's warehouse, open for reading; see `fallow.fleet.Fleet`."""

    def __init__(
        self,
        settings: Settings,
        cluster: str | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._settings, self._cluster = settings, cluster
        self._clock = clock or (lambda: read_now(settings.home))
        self._warehouse = Warehouse.open(
            settings, clock=self._clock, within=settings.warehouse.query_within
        )

    def spend(
        self,
        by: str | Sequence[str] = "team",
        window: str | Window | None = None,
        *,
        view: str = "loaded",
        share_unallocated: bool = False,
    ) -> FleetTable:
        """Return GPU-hours and dollars that sum to the capacity and to the bill."""
        names = _split(by)
        table = ledger_totals.read_total_spend(
            self._warehouse,
            _format_window(window),
            now=self._clock(),
            cluster=self._cluster,
            by=names,
            view=view,
            share_unallocated=share_unallocated,
        )
        document = round_body({**documents.describe_spend(table, view), "spend": table.rows})
        legal = {n: kind for n, kind in SPEND_COLUMNS.items() if n in names or n not in KEYS}
        columns = {**{name: legal[name] for name in names}, **legal}
        return FleetTable(
            _to_arrow(document["spend"], columns), table.window, tuple(table.notes), document
        )

    def findings(
        self,
        *analyzers: str,
        window: str | Window | None = None,
        evidence: str | None = None,
    ) -> FleetTable:
        """Find waste with these analyzers; nothing is stored."""
        documents.check_evidence(evidence)
        analysis = analyzer_runs.analyze(
            self._warehouse,
            self._settings,
            analyzers,
            _format_window(window),
            now=self._clock(),
            cluster=self._cluster,
        )
        ranked = documents.select_findings(analysis, evidence)
        document = round_body(documents.describe_analysis(analysis, ranked, analyzers))
        rows = round_body({"findings": [findings.build_row(row) for row in ranked]})["findings"]
        table = _to_arrow(rows, FINDING_COLUMNS)
        return FleetTable(table, analysis.window.whole(), analysis.notes, document)

    def explain(self, prefix: str) -> Explanation:
        """Return what a stored finding or an action rests on."""
        noun, explanation = explanations.explain_any(
            self._warehouse, prefix, self._settings, self._clock()
        )
        document = round_body(explanation)
        if noun == explanations.ACTION:
            return Explanation(document)
        window = msgspec.convert(explanation["finding"]["window"], Window)
        tables = {
            query["name"]: FleetTable(
                pa.Table.from_pylist(query["rows"]), window, (query["what"],), query
            )
            for query in document["queries"]
        }
        rates = FleetTable(pa.Table.from_pylist(document["rates"]), window)
        return Explanation(document, {**tables, "rates": rates})

    def ledger(self, window: str | Window | None = None) -> FleetTable:
        """Return the ledger's rows of a window."""
        span = self.cover(window)
        rows = self._warehouse.query(
            load_sql("ledger_rows"), {**span.window.bounds(), "cluster": self._cluster}
        )
        return FleetTable(rows, span.window, span.notes)

    def cover(self, window: str | Window | None = None) -> "CoveredHours":
        """Return the hours of a window that have data, with the notes about them."""
        return windows.find_ledger_hours(
            self._warehouse, _format_window(window), self._clock(), self._cluster
        )

    def why_not(self, workload: str) -> "WhyNotReport":
        """Return every gate's answer about a workload now, under each policy of the site."""
        rules = plans.load_policies(self._settings)
        return plans.explain_why_not(
            self._warehouse,
            self._settings,
            rules,
            workload,
            at=self._clock(),
            cluster=self._cluster,
        )

    def read_queue(self) -> "tuple[list[QueuedWorkload], datetime]":
        """Return who waits for GPUs, the most GPU-hours first, and for which time."""
        return pending.read_queue(self._warehouse, at=self._clock(), cluster=self._cluster)

    def why_pending(self, workload: str) -> "tuple[QueuedWorkload, datetime]":
        """Return why a workload waits for GPUs and its ways in, and for which time."""
        return pending.explain_why_pending(
            self._warehouse, workload, at=self._clock(), cluster=self._cluster
        )

    def read_incidents(self, window: str | None, by: str | None) -> incidents.IncidentReport:
        """Return the incidents of a window; with `by` also how often they come."""
        return incidents.read_report(
            self._warehouse, window, now=self._clock(), cluster=self._cluster, by=by
        )

    def what_if(self, options: Mapping[str, Sequence[str]], window: str | None) -> "WhatIfAnswer":
        """Return the site's past with other settings: `options` by name, as `fallow what-if`."""
        changes = parse_changes(
            options.get("quota", ()), options.get("pool", ()), options.get("priority", ())
        )
        chosen, _ = windows.choose(
            self._warehouse, window, self._clock(), self._cluster, inventory=True
        )
        return answer_what_if(self._warehouse, chosen, changes, self._cluster)

    def read_idleness(self, cluster: str, namespace: str, kind: str, name: str) -> Idleness | None:
        """Return whether a workload is idle now; None = it held no device in the last day."""
        reader = IdlenessReader(self._warehouse, self._settings, self._clock)
        return reader.read(cluster, namespace, kind, name)

    def close(self) -> None:
        """Close the warehouse."""
        self._warehouse.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _split(names: str | Sequence[str]) -> list[str]:
    """Return the columns to group by; a text is split at its commas, as --by is."""
    listed = names.split(",") if isinstance(names, str) else names
    return list(dict.fromkeys(name.strip() for name in listed if name.strip()))


def _format_window(window: str | Window | None) -> str | None:
    """Return a window as the command line takes it."""
    if isinstance(window, Window):
        return f"{window.start.isoformat()}/{window.end.isoformat()}"
    return window


def _to_arrow(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table with these columns; a row with another column is a defect."""
    unknown = {name for row in rows for name in row} - set(columns)
    if unknown:
        raise KeyError(f"columns without a type: {', '.join(sorted(unknown))}")
    fields = [pa.field(name, kind) for name, kind in columns.items()]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))
