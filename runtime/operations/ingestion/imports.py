"""Import rows from files and from a Prometheus's history, through ingest and the ledger."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from collectors.openb import summarize_import
from collectors.prices import rate_card
from collectors.prometheus.collector import MAX_SAMPLES
from collectors.prometheus.telemetry import SOURCE
from fallow.clean_texts import check_batches
from fallow.errors import UsageError
from fallow.rejections import Rejection, build_batch
from fallow.settings import Settings
from fallow.settings.prices import ALWAYS
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import windows
from runtime.operations.accounting.prices import read_configured_rates
from runtime.operations.ingestion import collection
from runtime.operations.ingestion.import_stores import ImportStore, open_store
from runtime.operations.ingestion.telemetry_slices import SLICE_SAMPLES, read_slices
from runtime.operations.queries import load_sql
from runtime.rendering.finding_tables import Progress
from warehouse.ingest import IngestResult
from warehouse.lake import Warehouse
from warehouse.pricing import IMPORT
from warehouse.runners.choice import is_sliced


class TelemetryExtent:
    """Passes batches on and records which time their telemetry covers, and how many rows it has."""

    def __init__(self) -> None:
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.devices: set[str] = set()
        self.rows = 0

    def observe(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches unchanged."""
        for batch in batches:
            if batch.table == "sample" and batch.rows.num_rows:
                self._widen(batch.rows)
                self.rows += batch.rows.num_rows
                self.devices.update(pc.unique(batch.rows["device"]).to_pylist())
            yield batch

    def _widen(self, rows: pa.Table) -> None:
        span = pc.min_max(rows["ts"]).as_py()
        interval = pc.max(rows["interval_s"]).as_py() or 0.0
        end = span["max"] + timedelta(seconds=interval)
        self.first = span["min"] if self.first is None else min(self.first, span["min"])
        self.last = end if self.last is None else max(self.last, end)

    @property
    def window(self) -> Window | None:
        """Return the covered time; None = there was no telemetry."""
        if self.first is None or self.last is None or self.last <= self.first:
            return None
        return Window(self.first.replace(tzinfo=UTC), self.last.replace(tzinfo=UTC))


class Importer:
    """Stores batches of one cluster in its warehouse and accounts for their time."""

    def __init__(
        self,
        settings: Settings,
        now: datetime,
        *,
        is_restating: bool = False,
        is_named: bool = False,
    ) -> None:
        """`is_named`: the command line names the cluster, so that another source may be of it."""
        self.settings = settings
        self.now = now
        self.is_restating = is_restating
        self.is_named = is_named
        self.notes: list[str] = []

    def clock(self) -> datetime:
        """Return the time of the run; rows after it are refused."""
        return self.now

    def import_batches(
        self,
        batches: Iterable[Batch],
        rate: Decimal | None = None,
        refused: Sequence[Rejection] = (),
        *,
        valid_from: datetime | None = None,
    ) -> dict[str, Any]:
        """Open the warehouse, store the batches, account for them, and return the counts.

        `refused` was left out of the batches already: its rows are listed, and counted as old.
        """
        count = sum(rejection.count for rejection in refused)
        if refused:
            cluster = self.settings.cluster
            listed = build_batch(refused, cluster=cluster, source="import", at=self.now)
            batches = chain(batches, [listed])
        with open_store(self.settings, self.clock) as store:
            summary = self.import_into(store, batches, rate, valid_from=valid_from)
        return {**summary, "rows": summary["rows"] + count, "old": summary["old"] + count}

    def import_into(
        self,
        store: ImportStore,
        batches: Iterable[Batch],
        rate: Decimal | None = None,
        *,
        valid_from: datetime | None = None,
    ) -> dict[str, Any]:
        """Store batches, account for them, and return the counts."""
        extent = TelemetryExtent()
        cluster = self.settings.cluster
        rates = read_configured_rates(self.settings, self.now)
        clean = check_batches(batches, cluster=cluster, source="import", at=self.now)
        before = self._list_devices(store.views)
        ingested = store.ingest(extent.observe(clean))
        if before and extent.devices and before.isdisjoint(extent.devices) and not self.is_named:
            self.notes.append(
                f"none of its GPUs is among the {len(before):,} that cluster {cluster!r} had "
                "already: --cluster NAME keeps the GPUs of another cluster apart"
            )
        store.price(rates)
        store.price(self._rate_batches(rate, valid_from), is_restating=self.is_restating)
        return self._account(store, extent, ingested)

    def backfill(self, since: str, progress: Progress) -> dict[str, Any]:
        """Import a Prometheus's history chunk by chunk; a finished chunk is never read again.

        With workers (`warehouse.processes`, Ray) they read the telemetry, a chunk each.

        Raises:
            FallowError: the error that stopped it; another run continues from there.
            SourceError: neither this run nor one before it found telemetry or an inventory.
            UsageError: the cluster has the telemetry of another Prometheus, and was not named.
        """
        window = windows.parse_since(since, self.now)
        extent, ingested = TelemetryExtent(), IngestResult()

        def ingest(batches: Iterable[Batch]) -> IngestResult:
            nonlocal ingested
            ingested += (result := store.ingest(batches))
            return result

        rates = read_configured_rates(self.settings, self.now)
        with open_store(self.settings, self.clock) as store:
            cursors = collection.read_cursors(store.views)
            in_slices = is_sliced(self.settings)
            collector = collection.build_prometheus_collector(
                self.settings, cursors, self.clock, SLICE_SAMPLES if in_slices else MAX_SAMPLES
            )
            self._require_one_source(store.views, collector.client.name)
            collection.drain(
                store.views,
                collector,
                window,
                progress,
                extent.observe,
                ingest=ingest,
                read_before=read_slices(self.settings, collector, window, self.now)
                if in_slices
                else (),
            )
            if extent.window is None and self._is_empty(store.views):
                raise collection.build_empty_error(self.settings, window)
            store.price(rates)
            return self._account(store, extent, ingested)

    def _list_devices(self, views: Warehouse) -> set[str]:
        sql = 'SELECT device FROM device WHERE "cluster" = $cluster'
        return {*views.query(sql, {"cluster": self.settings.cluster})["device"].to_pylist()}

    def _require_one_source(self, views: Warehouse, server: str) -> None:
        """Refuse to mix two Prometheus servers in one cluster that nobody named."""
        parameters = {"cluster": self.settings.cluster, "collector": SOURCE, "server": server}
        others = views.query(load_sql("other_servers"), parameters)["target"].to_pylist()
        if others and not self.is_named:
            cluster = shlex.quote(self.settings.cluster)
            raise UsageError(
                f"cluster {cluster} has the telemetry of {others[0]}: {server} would mix with it",
                hint=f"--cluster NAME of another cluster; --cluster {cluster} where it is the same",
            )

    def _account(
        self, store: ImportStore, extent: TelemetryExtent, ingested: IngestResult
    ) -> dict[str, Any]:
        """Account for the imported time, and return the counts.

        Where samples were read the counts are theirs: rows of devices and scrapes are not counted.
        """
        window, counted = extent.window, msgspec.structs.asdict(ingested)
        samples = counted.pop("samples")
        if extent.rows:
            before = extent.rows - samples - ingested.future - ingested.old
            counted |= {"rows": extent.rows, "added": samples, "duplicates": max(before, 0)}
        # An inventory alone can name the owners of hours whose telemetry was imported before.
        ledger_window = window or (self._rollup_window(store.views) if counted["added"] else None)
        failures = store.account(ledger_window) if ledger_window is not None else []
        return {
            "cluster": self.settings.cluster,
            "devices": len(extent.devices),
            **counted,
            "start": window.start.replace(tzinfo=None) if window else None,
            "end": window.end.replace(tzinfo=None) if window else None,
            "audits": "; ".join(failures) or "ok",
        }

    def _is_empty(self, warehouse: "Warehouse") -> bool:
        """Return whether neither telemetry nor nodes of the cluster are stored."""
        if self._rollup_window(warehouse) is not None:
            return False
        sql = 'SELECT count(*) AS n FROM node WHERE "cluster" = $cluster'
        return not warehouse.query(sql, {"cluster": self.settings.cluster})["n"][0].as_py()

    def _rollup_window(self, warehouse: "Warehouse") -> Window | None:
        rows = warehouse.query(
            "SELECT min(bucket) AS first, max(bucket) AS last FROM rollup_1h"
            ' WHERE "cluster" = $cluster',
            {"cluster": self.settings.cluster},
        ).to_pylist()
        first, last = rows[0]["first"], rows[0]["last"]
        if first is None:
            return None
        return Window(first.replace(tzinfo=UTC), last.replace(tzinfo=UTC) + timedelta(hours=1))

    def _rate_batches(self, rate: Decimal | None, valid_from: datetime | None) -> list[Batch]:
        if rate is None:
            return []
        rate_row = rate_card.build_flat_rate(
            rate,
            source=IMPORT,
            as_of=self.now,
            valid_from=valid_from or ALWAYS,
            reference="--rate of fallow import samples",
            cluster=self.settings.cluster,
        )
        return [rate_card.batch([rate_row])]


def count_inventory(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Count nodes, GPUs and pods by what they request."""
    counted = summarize_import(batches)
    rows: list[tuple[str, float]] = [
        ("nodes", counted.nodes),
        ("nodes with GPUs", counted.gpu_nodes),
        ("GPUs", counted.gpus),
        ("pods", counted.pods),
        ("pods asking for no GPU", counted.cpu_only),
        ("pods sharing a GPU", counted.sharing),
        *((f"pods asking for {n} GPUs", count) for n, count in counted.by_gpus.items()),
        ("pods pending", counted.pending),
        ("GPUs the pending ask for", counted.pending_gpus),
        ("pods placed on a node", counted.placed),
    ]
    return [{"what": label, "count": count} for label, count in rows]
