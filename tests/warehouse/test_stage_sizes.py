"""Roll up, ledger and audits as slices equal those of one process, on a real inventory and a site.

`python -m benchmarks equality` compares 10,000 GPUs x 7 days. `test_stages.py` covers the same on
small homes in `make test`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from collectors.openb import import_openb
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from tests.copies import copied
from tests.warehouse.test_stage_kills import read_audits
from tests.warehouse.test_stages import assert_equal, open_settings, read_ledger, read_rolled
from warehouse.allocation import write_allocations
from warehouse.audit_results import audit_hours
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.rollup import roll_up
from warehouse.runners.local import LocalRunner
from warehouse.stages import ledger_stage
from warehouse.stages.audit_stage import audit_stage
from warehouse.stages.ledger_stage import write_ledger_stage
from warehouse.stages.rollup_stage import roll_up_stage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # test_stages.py is the cheap one

Shared = Callable[[str], Path]
STEP = timedelta(minutes=5)
OPENB_NIGHT = datetime(2023, 5, 20, 21)  # noqa: DTZ001  (tables hold naive UTC)
SITE_START = datetime(2026, 11, 18)  # noqa: DTZ001


def build_samples(
    holders: Mapping[str, tuple[str, str] | None], start: datetime, scrapes: int, cluster: str
) -> Iterable[Batch]:
    """Yield a sample of each device (`node/gpuN`: its namespace and pod) every five minutes."""
    names = list(holders)
    phase = np.array([sum(map(ord, name)) % 97 for name in names])
    for n in range(scrapes):
        util = (phase * 7 + n * 13) % 101 * (phase % 3 > 0)
        columns: dict[str, Any] = {
            "cluster": [cluster] * len(names),
            "ts": [start + n * STEP] * len(names),
            "device": names,
            "node": [name.partition("/")[0] for name in names],
            "namespace": [held and held[0] for held in holders.values()],
            "pod": [held and held[1] for held in holders.values()],
            "model": ["NVIDIA H100 80GB HBM3"] * len(names),
            "interval_s": [STEP.total_seconds()] * len(names),
            "gpu_util_pct": pa.array(util.astype(float)),
            "power_w": pa.array(100.0 + util * 5),
        }
        yield Batch.of("sample", columns)


def list_openb(shared_data: Shared) -> list[Batch]:
    """Return openb's nodes and pods, and six hours of samples of its GPUs."""
    batches = list(
        import_openb(
            shared_data("openb/openb_node_list_gpu_node.csv"),
            shared_data("openb/openb_pod_list_default.csv"),
            shared_data("openb/openb_default_firstfit_placement.csv"),
            "openb",
        )
    )
    holders: dict[str, tuple[str, str] | None] = {}
    for row in (
        row for batch in batches if batch.table == "node" for row in batch.rows.to_pylist()
    ):
        holders |= {f"{row['node']}/gpu{n}": None for n in range(row["gpu_count"] or 0)}
    for row in (row for batch in batches if batch.table == "pod" for row in batch.rows.to_pylist()):
        held = row["created_at"] <= OPENB_NIGHT < row["deleted_at"]
        for device in json.loads(row["devices"] or "[]") if held else ():
            holders[device["device"]] = row["namespace"], row["pod"]
    assert len(holders) == 6212, "the GPUs of openb (its README)"
    return [*batches, *build_samples(holders, OPENB_NIGHT, 72, "openb")]


def list_site(_: Shared) -> list[Batch]:
    """Return two days of samples of 2,000 GPUs."""
    holders: dict[str, tuple[str, str] | None] = {
        f"node-{n // 8}/gpu{n % 8}": (f"team-{n % 5}", f"job-{n // 8}") if n % 11 else None
        for n in range(2_000)
    }
    return list(build_samples(holders, SITE_START, 576, "site"))


SITES = {"openb": (list_openb, OPENB_NIGHT, 6), "site": (list_site, SITE_START, 48)}
"""By name: the rows, when their samples begin, and how many hours they last."""


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("site", [pytest.param("openb", marks=pytest.mark.real_data), "site"])
def test_workers_store_what_one_process_stores(
    tmp_path: Path,
    shared_data: Shared,
    monkeypatch: pytest.MonkeyPatch,
    site: str,
    workers: int,
) -> None:
    list_batches, start, hours = SITES[site]
    since = start.replace(tzinfo=UTC)
    window = Window(since, since + timedelta(hours=hours))
    monkeypatch.setattr(ledger_stage, "compute_stride", lambda _: timedelta(hours=hours / 6))
    settings = open_settings(tmp_path / "home")
    with Warehouse.open(settings, write=True, clock=lambda: window.end) as wh:
        wh.ingest(list_batches(shared_data))
    runner = LocalRunner(workers)
    rows: list[dict[str, pl.DataFrame]] = []
    for name in ("whole", "sliced"):
        place = open_settings(copied(settings.home, tmp_path / name))
        with Warehouse.open(place, write=True, clock=lambda: window.end) as wh:
            do = account_whole if name == "whole" else account_sliced
            do(wh, window, lambda _: runner)
            rows.append(read_rolled(wh) | read_ledger(wh) | read_audits(wh))
    runner.close()
    assert rows[0]["ledger"]["gpu_seconds"].sum() > 0
    assert_equal(rows[0], rows[1])


def account_whole(wh: Warehouse, window: Window, _: object) -> None:
    roll_up(wh)
    write_allocations(wh, window)
    write_ledger(wh, window)
    assert audit_hours(wh, window, marked=True) == []


def account_sliced(
    wh: Warehouse, window: Window, runner: Callable[[Settings], LocalRunner]
) -> None:
    roll_up_stage(wh, runner)
    write_allocations(wh, window)
    write_ledger_stage(wh, window, runner)
    assert audit_stage(wh, window, runner, marked=True) == []
