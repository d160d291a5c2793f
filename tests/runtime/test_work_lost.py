"""From a failure to the ledger: what was computed since the last checkpoint, and nothing else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

T = datetime(2026, 11, 2)  # noqa: DTZ001  (tables hold naive UTC)
HOURS = 4
FAILED = 200
"""Minute at which the node of both ranks goes away."""


def at(minute: float) -> datetime:
    return T + timedelta(minutes=minute)


def batch(table: str, rows: list[dict[str, Any]]) -> Batch:
    names = list({name: None for row in rows for name in row})
    data: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    if "ts" in data:
        data["ts"] = pa.array(data["ts"], pa.timestamp("us"))
    return Batch.of(table, data)


def samples(until: int) -> Batch:
    rows = [
        {
            "cluster": "c", "device": f"GPU-{n}", "ts": at(m), "node": "n", "vendor": "nvidia",
            "model": "NVIDIA H100 80GB HBM3", "namespace": "ns", "pod": f"train-{n}",
            "interval_s": 60.0, "gpu_util_pct": 97.0, "gr_engine_active": 0.97,
            "sm_active": 0.6, "tensor_active": 0.4, "dram_active": 0.4, "power_w": 600.0 + m % 7,
        }
        for n in range(2)
        for m in range(until)
    ]  # fmt: skip
    return batch("sample", rows)


def pods(ended: int | None, notes: str | None) -> Batch:
    rows = [
        {
            "cluster": "c", "uid": f"u{n}", "namespace": "ns", "pod": f"train-{n}", "node": "n",
            "workload_kind": "PyTorchJob", "workload": "train", "team": "a", "gpu_request": 1.0,
            "created_at": at(-60), "scheduled_at": at(-60), "started_at": at(-60),
            "phase": "Running" if ended is None else "Failed",
            "finished_at": None if ended is None else at(ended),
            "first_seen": at(-60), "last_seen": at(HOURS * 60 if ended else 120),
            "annotations": notes,
        }
        for n in range(2)
    ]  # fmt: skip
    return batch("pod", rows)


def writes(*minutes: int) -> Batch:
    rows = [
        {
            "cluster": "c", "namespace": "ns", "pod": "train-0", "ts": at(m), "interval_s": 60.0,
            "fs_write_bps": 400e6 if m in minutes else 0.0,
        }
        for m in range(FAILED)
    ]  # fmt: skip
    return batch("pod_sample", rows)


def down() -> Batch:
    row = {
        "cluster": "c", "uid": "e", "ts": at(FAILED), "kind": "Node", "name": "n",
        "reason": "NodeNotReady",
    }  # fmt: skip
    return batch("event", [row])


@pytest.fixture
def warehouse(settings: Settings) -> Iterator[Warehouse]:
    with Warehouse.open_in_memory(settings) as opened:
        yield opened


def minutes(warehouse: Warehouse) -> dict[tuple[str, int], float]:
    """Return GPU-minutes by state and hour."""
    rows = warehouse.query(
        "SELECT state, hour(bucket) AS h, sum(gpu_seconds) / 60 AS m FROM ledger "
        "WHERE state IN ('lost', 'productive', 'low') GROUP BY ALL"
    ).to_pylist()
    return {(r["state"], r["h"]): round(r["m"], 2) for r in rows}


def account(warehouse: Warehouse, first: int, last: int) -> None:
    zone = T.replace(tzinfo=UTC)
    part = Window(zone + timedelta(hours=first), zone + timedelta(hours=last))
    assert not pipeline.account(warehouse, part)[1], "the ledger adds up"


def test_hours_posted_as_productive_are_lost_when_their_job_fails(warehouse: Warehouse) -> None:
    """Both ranks save at 30, 90 and 150 and go away at 200: each loses 50 minutes."""
    warehouse.ingest([samples(FAILED), pods(None, None), writes(30, 90, 150)])
    account(warehouse, 0, 3)
    assert minutes(warehouse)["productive", 2] == 120
    warehouse.ingest([pods(FAILED, None), down()])
    account(warehouse, 3, 4)
    rows = warehouse.query("SELECT * FROM work_lost ORDER BY pod").to_pylist()
    assert [(r["pod"], r["start"], r["end"], r["cause"], r["basis"]) for r in rows] == [
        ("train-0", at(150), at(200), "node", "measured"),
        ("train-1", at(150), at(200), "node", "measured"),
    ]
    assert [round(r["lost"], 6) for r in rows] == [round(50 / 60, 6)] * 2
    found = minutes(warehouse)
    assert (found["productive", 2], found["lost", 2]) == (60, 60)
    assert found["lost", 3] == 40
    assert ("productive", 3) not in found
    account(warehouse, 3, 4)
    assert minutes(warehouse) == found, "posting again changes nothing"


def test_an_interval_that_the_owner_names_is_an_estimate(warehouse: Warehouse) -> None:
    """Every 40 minutes by annotation: 20 of them are lost on average."""
    notes = '{"fallow.dev/checkpoint-interval": "40m"}'
    warehouse.ingest([samples(FAILED), pods(FAILED, notes), down()])
    account(warehouse, 0, 4)
    rows = warehouse.query("SELECT start, basis FROM work_lost").to_pylist()
    assert [(r["start"], r["basis"]) for r in rows] == [(at(180), "estimated")] * 2
    assert minutes(warehouse)["lost", 3] == 40


def test_without_a_known_checkpoint_nothing_is_said_to_be_lost(warehouse: Warehouse) -> None:
    warehouse.ingest([samples(FAILED), pods(FAILED, None), down()])
    account(warehouse, 0, 4)
    assert warehouse.query("SELECT * FROM work_lost").num_rows == 0
    assert {state for state, _ in minutes(warehouse)} == {"productive"}


def test_a_pod_that_makes_room_for_another_loses_its_work_too(warehouse: Warehouse) -> None:
    event = {
        "cluster": "c", "uid": "e", "ts": at(FAILED), "kind": "Pod", "namespace": "ns",
        "name": "train-0", "reason": "Preempted",
    }  # fmt: skip
    warehouse.ingest([samples(FAILED), pods(FAILED, None), writes(30, 90, 150)])
    warehouse.ingest([batch("event", [event])])
    account(warehouse, 0, 4)
    rows = warehouse.query("SELECT cause FROM work_lost WHERE pod = 'train-0'").to_pylist()
    assert rows == [{"cause": "preemption"}]


def test_where_no_checkpoint_is_seen_the_loss_is_estimated_by_those_of_others(
    warehouse: Warehouse,
) -> None:
    """Another job saves every 60 minutes: half of that is the loss of each rank."""
    peer = {
        "cluster": "c", "uid": "p", "namespace": "ns", "pod": "peer-0", "node": "m",
        "workload_kind": "PyTorchJob", "workload": "peer", "team": "a", "gpu_request": 1.0,
        "created_at": at(-60), "scheduled_at": at(-60), "started_at": at(-60), "phase": "Running",
        "first_seen": at(-60), "last_seen": at(HOURS * 60),
    }  # fmt: skip
    saved = writes(30, 90, 150)
    names = pa.array(["peer-0"] * saved.rows.num_rows)
    place = saved.rows.schema.get_field_index("pod")
    theirs = Batch(
        "pod_sample", saved.rows.set_column(place, saved.rows.schema.field(place), names)
    )
    warehouse.ingest(
        [samples(FAILED), pods(FAILED, None), batch("pod", [peer]), theirs, down()]
    )  # fmt: skip
    account(warehouse, 0, 4)
    rows = warehouse.query("SELECT workload, start, basis FROM work_lost").to_pylist()
    assert [(r["workload"], r["start"], r["basis"]) for r in rows] == [
        ("train", at(170), "estimated")
    ] * 2
