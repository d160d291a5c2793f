"""A gang of 32 GPUs loses one pod: what all its ranks lose, and what waiting and start-up take."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any

import pytest

from analyzers.reliability.incidents.reading import read_incidents
from analyzers.reliability.incidents.recovery import price_incident
from fallow.settings import Settings
from fallow.settings.reliability import ReliabilitySettings
from fallow.tables import Batch
from fallow.window import Window
from tests.runtime.test_work_lost import HOURS, T, account, at, batch
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

FAILED, PLACED, WORKS = 190, 210, 220
"""Minutes: pod 3 fails, its replacement is placed, and all ranks work again."""
PODS, GPUS = 4, 8
SPILL_H = 8 * 15 / 3600
"""A sample is valid for 12 s longer than its minute; 8 GPUs."""


def is_working(pod: int, minute: int, *, elastic: bool) -> bool:
    return minute < FAILED or minute >= WORKS or (elastic and pod != PODS - 1)


def build_samples(*, elastic: bool) -> Batch:
    rows = [
        {
            "cluster": "c", "device": f"GPU-{pod}-{n}", "ts": at(m), "node": f"n{pod}",
            "vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3", "interval_s": 60.0,
            "namespace": "ns" if held else None, "pod": f"train-{pod}" if held else None,
            **(
                {"gpu_util_pct": 97.0, "gr_engine_active": 0.97, "sm_active": 0.6,
                 "tensor_active": 0.4, "dram_active": 0.4, "power_w": 600.0 + m % 7}
                if is_working(pod, m, elastic=elastic)
                else {"gpu_util_pct": 0.0, "gr_engine_active": 0.0, "sm_active": 0.0,
                      "tensor_active": 0.0, "dram_active": 0.0, "power_w": 70.0 + m % 3}
            ),
        }
        for pod in range(PODS)
        for n in range(GPUS)
        for m in range(HOURS * 60)
        for held in [pod < PODS - 1 or not FAILED <= m < PLACED]
    ]  # fmt: skip
    return batch("sample", rows)


def build_pod(pod: int, start: int, ended: int | None, uid: str = "") -> dict[str, Any]:
    return {
        "cluster": "c", "uid": f"u{pod}{uid}", "namespace": "ns", "pod": f"train-{pod}",
        "node": f"n{pod}", "workload_kind": "PyTorchJob", "workload": "train", "team": "a",
        "gpu_request": float(GPUS), "created_at": at(start), "scheduled_at": at(start),
        "started_at": at(start), "phase": "Running" if ended is None else "Failed",
        "finished_at": None if ended is None else at(ended),
        "first_seen": at(start), "last_seen": at(HOURS * 60 if ended is None else ended),
    }  # fmt: skip


def build_site(*, elastic: bool = False) -> list[Batch]:
    last = PODS - 1
    pods = [
        *(build_pod(pod, -60, None) for pod in range(last)),
        build_pod(last, -60, FAILED), build_pod(last, PLACED, None, "b"),
    ]  # fmt: skip
    event = {
        "cluster": "c", "uid": "e", "ts": at(FAILED), "kind": "Node", "name": f"n{last}",
        "reason": "NodeNotReady",
    }  # fmt: skip
    writes = [
        {
            "cluster": "c", "namespace": "ns", "pod": "train-0", "ts": at(m), "interval_s": 60.0,
            "fs_write_bps": 400e6 if m in {30, 90, 150} else 0.0,
        }
        for m in range(FAILED)
    ]  # fmt: skip
    return [
        build_samples(elastic=elastic), batch("pod", pods), batch("event", [event]),
        batch("pod_sample", writes),
    ]  # fmt: skip


@pytest.fixture
def warehouse(settings: Settings) -> Iterator[Warehouse]:
    with Warehouse.open_in_memory(settings) as opened:
        yield opened


def sum_states(warehouse: Warehouse) -> dict[str, float]:
    rows = warehouse.query(
        "SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger WHERE namespace <> '' GROUP BY ALL"
    ).to_pylist()
    return {row["state"]: round(row["h"], 2) for row in rows}


def test_all_ranks_of_a_gang_lose_what_came_after_its_newest_checkpoint(
    warehouse: Warehouse,
) -> None:
    """The newest checkpoint is of minute 150, 40 minutes before: 32 x 40 / 60 = 21.33 GPU-h.

    Then 24 GPUs wait for 30 minutes, 12 GPU-h, which stay idle in the ledger; the new pod's 8 GPUs
    start for 10, 1.33 GPU-h. Of 32 x 4 = 128 GPU-h nobody holds 8 x 20 / 60 = 2.67, and
    128 - 2.67 - 21.33 - 12 - 1.33 = 90.67 are productive.
    """
    warehouse.ingest(build_site())
    account(warehouse, 0, HOURS)
    rows = warehouse.query("SELECT * FROM work_lost ORDER BY pod").to_pylist()
    assert [(r["pod"], r["start"], r["end"], r["basis"]) for r in rows] == [
        (f"train-{pod}", at(150), at(FAILED), "measured") for pod in range(PODS)
    ]
    assert round(sum(r["lost"] for r in rows), 2) == 21.33
    assert [r["recovering"] for r in rows] == pytest.approx([4, 4, 4, 4 / 3], abs=SPILL_H)
    assert sum_states(warehouse) == pytest.approx(
        {"lost": 64 / 3, "idle": 12, "startup": 4 / 3, "productive": 272 / 3}, abs=SPILL_H
    )
    account(warehouse, 0, HOURS)
    assert warehouse.query("SELECT * FROM work_lost ORDER BY pod").to_pylist() == rows
    # Its incident: 13.33 of waiting and start-up; 30 minutes from the failure to work.
    window = Window(T.replace(tzinfo=UTC), T.replace(tzinfo=UTC) + timedelta(hours=HOURS))
    [incident] = read_incidents(warehouse, window, ReliabilitySettings(), [])
    cost = price_incident(incident, {})
    assert round(cost.lost_gpu_hours or 0, 2) == 21.33
    assert cost.recovery_gpu_hours == pytest.approx(40 / 3, abs=SPILL_H)
    assert incident.recovery_s == pytest.approx((WORKS - FAILED) * 60, abs=SPILL_H / 8 * 3600)


def test_ranks_that_worked_on_lose_nothing(warehouse: Warehouse) -> None:
    """Pods that do not wait for the failed one: it alone loses 8 x 40 / 60 = 5.33 GPU-h."""
    warehouse.ingest(build_site(elastic=True))
    account(warehouse, 0, HOURS)
    rows = warehouse.query("SELECT pod, lost, recovering FROM work_lost").to_pylist()
    assert [(r["pod"], round(r["lost"], 2)) for r in rows] == [("train-3", 5.33)]
    assert rows[0]["recovering"] == pytest.approx(4 / 3, abs=SPILL_H)
    assert "idle" not in sum_states(warehouse)
