"""What a failure threw away is `lost` in the ledger: from `work_lost`, and from nothing else."""

from typing import Any

import pytest

from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger


def site(builders: Any, tables: Any, minutes: int = 180) -> None:
    """Put two GPUs, each at work for a pod of one job until minute 110 of three hours."""
    for n in range(2):
        tables.put("device", [builders.device(f"d{n}", minutes)])
        busy = builders.looks(f"d{n}", 0, 110, f"p{n}", busy_s=300.0)
        tables.put("rollup_5m", [*busy, *builders.looks(f"d{n}", 110, minutes)])
        tables.put(
            "pod",
            [
                {
                    "cluster": "c", "uid": f"u{n}", "namespace": f"ns-p{n}", "pod": f"p{n}",
                    "node": "n", "workload_kind": "PyTorchJob", "workload": "train",
                    "scheduled_at": builders.at(-300), "finished_at": builders.at(110),
                    "last_seen": builders.at(minutes),
                }
            ],
        )  # fmt: skip
    tables.put("rate", [builders.flat_rate("2")])
    builders.hourly(tables)


def hours(builders: Any, tables: Any, step: str = "1h") -> dict[tuple[str, str, int], float]:
    write_allocations(tables, builders.window(0, 180))
    write_ledger(tables, builders.window(0, 180), step)
    found: dict[tuple[str, str, int], float] = {}
    for row in tables.rows("ledger"):
        key = (row["state"], row["device"], row["bucket"].hour)
        found[key] = round(found.get(key, 0) + row["gpu_seconds"] / 60, 3)
    return {key: minutes for key, minutes in found.items() if key[0] != "free"}


@pytest.mark.parametrize("step", ["1h", "5m"])
def test_what_was_computed_since_the_last_checkpoint_is_lost(
    builders: Any, tables: Any, step: str
) -> None:
    """From minute 50 to the failure at 110: 10 minutes of the first hour, 50 of the second."""
    site(builders, tables)
    row = {
        "cluster": "c", "namespace": "ns-p0", "pod": "p0", "start": builders.at(50),
        "end": builders.at(110),
        "workload_kind": "PyTorchJob", "workload": "train", "cause": "node", "lost": 1.0,
        "basis": "measured",
    }  # fmt: skip
    tables.put("work_lost", [row])
    assert hours(builders, tables, step) == {
        ("productive", "d0", 0): 50, ("lost", "d0", 0): 10, ("lost", "d0", 1): 50,
        ("productive", "d1", 0): 60, ("productive", "d1", 1): 50,
    }  # fmt: skip
    rows = tables.rows("ledger")
    # Two GPUs, three hours at $2; of them one hour lost.
    assert float(sum(r["usd"] for r in rows)) == pytest.approx(12, abs=1e-6)
    assert float(sum(r["usd"] for r in rows if r["state"] == "lost")) == pytest.approx(2, abs=1e-6)
    assert sum(r["seconds"] for r in rows) == pytest.approx(2 * 3 * 3600)


@pytest.mark.parametrize("step", ["1h", "5m"])
def test_a_loss_that_begins_and_ends_within_a_cell_takes_its_part_of_the_cell(
    builders: Any, tables: Any, step: str
) -> None:
    """From minute 52 to 108: 8 minutes of the first hour, 48 of the second."""
    site(builders, tables)
    row = {
        "cluster": "c", "namespace": "ns-p0", "pod": "p0", "start": builders.at(52),
        "end": builders.at(108),
        "workload_kind": "PyTorchJob", "workload": "train", "cause": "node", "lost": 0.93,
        "basis": "measured",
    }  # fmt: skip
    tables.put("work_lost", [row])
    found = hours(builders, tables, step)
    assert {key: minutes for key, minutes in found.items() if key[1] == "d0"} == {
        ("productive", "d0", 0): 52, ("lost", "d0", 0): 8,
        ("productive", "d0", 1): 2, ("lost", "d0", 1): 48,
    }  # fmt: skip


def test_without_a_row_nothing_is_lost(builders: Any, tables: Any) -> None:
    site(builders, tables)
    assert {state for state, _, _ in hours(builders, tables)} == {"productive"}


def test_hours_at_rest_are_idle_not_lost(builders: Any, tables: Any) -> None:
    tables.put("device", [builders.device("d", 180)])
    tables.put(
        "rollup_5m",
        [*builders.looks("d", 0, 60, "p", busy_s=300.0), *builders.looks("d", 60, 180, "p")],
    )
    builders.hourly(tables)
    row = {
        "cluster": "c", "namespace": "ns-p", "pod": "p", "start": builders.at(30),
        "end": builders.at(180),
        "workload_kind": "Job", "workload": "p", "cause": "spot", "lost": 2.5,
        "basis": "estimated",
    }  # fmt: skip
    tables.put("work_lost", [row])
    found = hours(builders, tables)
    assert found["lost", "d", 0] == 30
    assert (found["idle", "d", 1], found["idle", "d", 2]) == (60, 60)
