"""A warehouse without tiers: every table of the contract in an engine's memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from collectors.inventory import DOUBTS, WHOLE
from fallow import tables
from fallow.tables import Batch
from tests import engine


class Memory:
    """Views over tables in memory, and a way to put rows into them.

    Rows wait in Python until somebody asks: a thousand small inserts are most of a test's time.
    """

    def __init__(self, with_engine: duckdb.DuckDBPyConnection | None = None) -> None:
        self.asked: list[str] = []
        self._waiting: dict[str, list[pa.Table]] = {}
        self._rows: dict[str, list[Mapping[str, object]]] = {}
        self._engine = with_engine or engine.empty()

    @property
    def engine(self) -> duckdb.DuckDBPyConnection:
        """The engine, with all rows in it."""
        for table in [*self._rows]:
            self._batch(table)
        for table, batches in self._waiting.items():
            rows = pa.concat_tables(batches)  # noqa: F841  (the engine finds it by its name)
            self._engine.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM rows')
        self._waiting.clear()
        return self._engine

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        self.asked.append(sql)
        bound = {
            name: value.astimezone(UTC).replace(tzinfo=None)
            if isinstance(value, datetime) and value.tzinfo
            else value
            for name, value in (parameters or {}).items()
        }
        return self.engine.execute(sql, bound).to_arrow_table()

    def put(self, *batches: Batch) -> None:
        for batch in batches:
            if batch.table in self._rows:
                self._batch(batch.table)
            self._waiting.setdefault(batch.table, []).append(batch.rows)

    def rows(self, table: str, rows: Iterable[Mapping[str, object]]) -> None:
        known = {column.name for column in tables.list_columns(table)}
        for listed in rows:
            row = {name: value for name, value in listed.items() if name not in {DOUBTS, WHOLE}}
            if not row.keys() <= known:
                raise ValueError(f"table {table!r} has no columns {sorted(row.keys() - known)}")
            self._rows.setdefault(table, []).append(row)

    def _batch(self, table: str) -> None:
        listed = self._rows.pop(table)
        names = {name: None for row in listed for name in row}
        batch = Batch.of(table, {n: [row.get(n) for row in listed] for n in names})
        self._waiting.setdefault(table, []).append(batch.rows)


@pytest.fixture
def views() -> Iterator[Memory]:
    with engine.lent() as one:
        yield Memory(one)


START = datetime(2026, 11, 1, tzinfo=UTC)


class Site:
    """One cluster whose devices show what a test says, every `interval` from `START`."""

    def __init__(self, views: Memory, interval: timedelta) -> None:
        self.views = views
        self.interval = interval
        self.start = START

    def device(
        self,
        name: str,
        values: Iterable[Mapping[str, object] | float | None],
        *,
        begin: timedelta = timedelta(),
        model: str = "NVIDIA H100 80GB HBM3",
        parent: str | None = None,
        **constant: object,
    ) -> None:
        """Put one look per value (a number is `gr_engine_active`), and the device.

        Where it has a power sensor, it has an energy counter too, unless `energy_mj` is given.
        """
        first = START.replace(tzinfo=None) + begin
        samples, energy_mj = [], 1e12
        for n, value in enumerate(values):
            shown = value if isinstance(value, Mapping) else {"gr_engine_active": value}
            watts = {**constant, **shown}.get("power_w")
            if isinstance(watts, int | float) and parent is None:
                energy_mj += watts * self.interval.total_seconds() * 1000
                shown = {"energy_mj": energy_mj, **constant, **shown}
            samples.append(
                {
                    "cluster": "c",
                    "ts": first + n * self.interval,
                    "device": name,
                    "node": "n1",
                    "model": model,
                    "parent": parent,
                    "interval_s": self.interval.total_seconds(),
                    **constant,
                    **shown,
                }
            )
        self.views.rows("sample", samples)
        seconds = self.interval.total_seconds()
        self.views.rows(
            "device",
            [
                {
                    "cluster": "c", "device": name, "parent": parent, "node": "n1",
                    "model": model, "gpu_model": "H100", "weight": 1.0, "interval_s": seconds,
                    "first_seen": first, "last_seen": first + len(samples) * self.interval,
                }
            ],
        )  # fmt: skip

    def holds(
        self,
        workload: str,
        devices: Iterable[str],
        *,
        kind: str = "Deployment",
        namespace: str = "ns",
        pod: str | None = None,
        share: float = 1.0,
        attribution: str = "exact",
        begin: timedelta = timedelta(),
        length: timedelta = timedelta(days=1),
        **pods: object,
    ) -> None:
        """Let one pod of a workload hold devices."""
        start = START.replace(tzinfo=None) + begin
        name = pod or f"{workload}-0"
        self.views.rows(
            "allocation",
            [
                {
                    "cluster": "c", "device": d, "pod_uid": f"uid-{namespace}-{name}",
                    "start": start, "end": start + length, "namespace": namespace, "pod": name,
                    "workload_kind": kind, "workload": workload, "team": "team-a",
                    "share": share, "attribution": attribution, "rule": "test",
                }
                for d in devices
            ],
        )  # fmt: skip
        self.views.rows(
            "pod",
            [
                {
                    "cluster": "c", "uid": f"uid-{namespace}-{name}", "namespace": namespace,
                    "pod": name, "node": "n1", "phase": "Running", "workload_kind": kind,
                    "workload": workload, "team": "team-a",
                    "started_at": start - timedelta(days=1), **pods,
                }
            ],
        )  # fmt: skip

    def notebook(self, pod: str, **said: object) -> None:
        """Let a notebook server answer every ten minutes for a day; its last cell ran before."""
        first = START.replace(tzinfo=None)
        self.views.rows(
            "notebook_sample",
            [
                {
                    "cluster": "c", "ts": first + n * timedelta(minutes=10), "namespace": "ns",
                    "pod": pod, "kernels": 1, "terminals": 0,
                    "last_kernel_activity": first - timedelta(hours=9), **said,
                }
                for n in range(144)
            ],
        )  # fmt: skip

    def host(self, pod: str, **said: object) -> None:
        """Let the kubelet say every ten minutes for a day what a pod does on its host."""
        first = START.replace(tzinfo=None)
        rows = [
            {
                "cluster": "c",
                "ts": first + n * timedelta(minutes=10),
                "namespace": "ns",
                "pod": pod,
                "interval_s": 600.0,
                **said,
            }
            for n in range(144)
        ]
        self.views.rows("pod_sample", rows)

    def price(self, usd_h: str, *, hours: int | None = None) -> None:
        """Let a GPU-hour cost so much, from the start on or for the first hours."""
        first = START.replace(tzinfo=None)
        self.views.rows(
            "rate",
            [
                {
                    "source": "test", "provider": "override", "region": "", "zone": "",
                    "instance_type": "", "gpu_model": "", "cluster": "c", "term": "on-demand",
                    "valid_from": first - timedelta(days=1), "as_of": first, "gpu_count": 1,
                    "valid_to": None if hours is None else first + timedelta(hours=hours),
                    "node_usd_h": Decimal(usd_h), "gpu_usd_h": Decimal(usd_h),
                }
            ],
        )  # fmt: skip

    def unknown(self, workload: str, gpu_hours: float) -> None:
        """Let the ledger say that telemetry could not tell what a workload did."""
        self.views.rows(
            "ledger",
            [
                {
                    "cluster": "c", "bucket": START.replace(tzinfo=None), "device": "GPU-x",
                    "state": "unknown", "namespace": "ns", "workload_kind": "Deployment",
                    "workload": workload, "gpu_seconds": gpu_hours * 3600, "priced": False,
                }
            ],
        )  # fmt: skip


@pytest.fixture
def site(views: Memory) -> Site:
    return Site(views, timedelta(minutes=1))


@pytest.fixture
def make_site() -> Callable[[], Site]:
    return lambda: Site(Memory(), timedelta(minutes=1))
