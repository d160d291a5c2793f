"""A warehouse without tiers: every table of the contract in an engine's memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fallow import tables
from fallow.tables import Batch

TYPES = {
    "string": "VARCHAR", "timestamp": "TIMESTAMP", "bool": "BOOLEAN", "i16": "SMALLINT",
    "i32": "INTEGER", "i64": "BIGINT", "f32": "FLOAT", "f64": "DOUBLE",
    "decimal": "DECIMAL(18, 8)", "hist": "INTEGER[]",
    "floats": "DOUBLE[]",
}  # fmt: skip


class Memory:
    """Views over tables in memory, and a way to put rows into them."""

    def __init__(self) -> None:
        self.engine = duckdb.connect()
        self.asked: list[str] = []
        for name in tables.table_names():
            columns = ", ".join(f'"{c.name}" {TYPES[c.type]}' for c in tables.columns(name))
            self.engine.execute(f'CREATE TABLE "{name}" ({columns})')

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
            rows = batch.rows
            self.engine.register("incoming", rows)
            self.engine.execute(f'INSERT INTO "{batch.table}" BY NAME SELECT * FROM incoming')
            self.engine.unregister("incoming")

    def rows(self, table: str, rows: Iterable[Mapping[str, object]]) -> None:
        listed = list(rows)
        names = {name: None for row in listed for name in row}
        self.put(Batch.of(table, {n: [row.get(n) for row in listed] for n in names}))


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


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
        """Put one look per value (a number is `gr_engine_active`), and the device."""
        first = START.replace(tzinfo=None) + begin
        looks = []
        for n, value in enumerate(values):
            shown = value if isinstance(value, Mapping) else {"gr_engine_active": value}
            looks.append(
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
        self.views.rows("sample", looks)
        seconds = self.interval.total_seconds()
        self.views.rows(
            "device",
            [
                {
                    "cluster": "c", "device": name, "parent": parent, "node": "n1",
                    "model": model, "gpu_model": "H100", "weight": 1.0, "interval_s": seconds,
                    "first_seen": first, "last_seen": first + len(looks) * self.interval,
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
