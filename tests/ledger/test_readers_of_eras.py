"""Readers of the past see what a node was then: it was on-demand and large, and became spot."""

from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest

from actions.backtest.as_of import AsOf
from analyzers.queries import NODE_SHARES, compose_steps
from analyzers.spot.rows import read_interruptions, read_worked_hours
from dashboards.figures.commitments import read_commitments
from dashboards.figures.query import Filters
from dashboards.figures.supply import read_capacity
from dashboards.reports.focus import read_rows
from fallow.settings.prices import ReservedCapacity
from warehouse.allocation import derive_allocations
from warehouse.pricing import ERAS as ERA_STEPS
from warehouse.steps import compose_query

LARGE = {
    "provider": "aws", "region": "us-east-1", "instance_type": "large",
    "capacity_type": "on-demand", "gpu_count": 4,
}  # fmt: skip
SMALL = LARGE | {"instance_type": "small", "capacity_type": "spot", "gpu_count": 2}
NODE = {"cluster": "c", "node": "n"}


@pytest.fixture
def fleet(builders: Any, tables: Any) -> Any:
    """Return three hours of one GPU of a node that changed after the first one."""
    at = builders.at
    tables.put("node", [{**NODE, **SMALL, "first_seen": at(0), "last_seen": at(180)}])
    tables.put(
        "era",
        [
            {**NODE, **LARGE, "valid_from": at(0), "valid_to": at(60)},
            {**NODE, **SMALL, "valid_from": at(60), "valid_to": None},
        ],
    )
    hour = {
        **NODE, "device": "d", "model": "H100", "namespace": "ns", "workload_kind": "Job",
        "workload": "w", "state": "productive", "seconds": 3600.0, "gpu_seconds": 3600.0,
        "priced": True,
    }  # fmt: skip
    usd = [Decimal(10), Decimal(1), Decimal(1)]
    hours = [
        {**hour, "bucket": at(60 * n), "usd": usd[n], "usd_gpu": usd[n], "price_as_of": at(0)}
        for n in range(3)
    ]
    tables.put("ledger", hours)
    return tables


def test_charges_name_the_type_and_the_terms_of_their_hours(builders: Any, fleet: Any) -> None:
    charges = read_rows(fleet, builders.window(0, 180), Filters(), "1.2").rows.to_pylist()
    rows = {(r["SkuId"], r["PricingCategory"]): float(r["BilledCost"]) for r in charges}
    assert rows == {
        ("Amazon Web Services/large", "Standard"): 10,
        ("Amazon Web Services/small", "Dynamic"): 2,
    }


def test_hours_count_by_how_their_node_was_bought(builders: Any, fleet: Any) -> None:
    rows = read_capacity(fleet, builders.window(0, 180), Filters()).to_pylist()
    by_terms = {row["capacity"]: (row["gpu_hours"], float(row["usd"])) for row in rows}
    assert by_terms == {"on-demand": (1, 10), "spot": (2, 2)}
    assert read_demand(builders, fleet) == [
        ("on-demand", 1, 10), ("spot", 1, 1), ("spot", 1, 1),
    ]  # fmt: skip


def read_demand(builders: Any, fleet: Any) -> list[tuple[str, float, float]]:
    """Return the hours of the analyzer of demand as they were paid."""
    sql = compose_steps(*NODE_SHARES, "demand/capacity")
    rows = fleet.query(sql, {**builders.window(0, 180).bounds(), "region": ""}).to_pylist()
    return [(row["capacity_type"], row["gpu_hours"], row["usd"]) for row in rows]


@pytest.mark.parametrize("gpus", [4, 2])
def test_what_a_commitment_paid_is_committed_while_its_node_was_of_that_type(
    builders: Any, fleet: Any, gpus: int
) -> None:
    """One node of four GPUs at $12, or half of it; the rest costs its list price, $7 a GPU."""
    large = {"provider": "aws", "instance_type": "large", "gpu_count": 4}
    commitment = {**large, "source": "commitment a", "term": "reserved", "nodes": 1}
    fleet.put(
        "rate",
        [
            builders.flat_rate("28", source="rate-card", **large),
            builders.flat_rate(str(3 * gpus), **commitment | {"gpu_count": gpus}),
        ],
    )
    # Per GPU-hour a commitment pays $3 of $3, or of the $5 that half of $3 and half of $7 are.
    part, usd = (1.0, 10.0) if gpus == 4 else (0.5, 10 * 1.5 / 5)
    own = [("committed", part, usd)] + [("on-demand", 1 - part, 10 - usd)] * (gpus == 2)
    assert read_demand(builders, fleet) == [*own, ("spot", 1, 1), ("spot", 1, 1)]
    charges = read_rows(fleet, builders.window(0, 180), Filters(), "1.2").rows.to_pylist()
    rows = {r["PricingCategory"]: (r["PricingQuantity"], r["BilledCost"]) for r in charges}
    standard = {"Standard": (1 - part, 10 - usd)} if gpus == 2 else {}
    assert rows == {"Committed": (part, usd), **standard, "Dynamic": (2, 2)}


def test_a_commitment_has_the_hours_in_which_its_nodes_were_of_its_kind(
    builders: Any, fleet: Any
) -> None:
    promise = ReservedCapacity(
        name="y", provider="aws", instance_type="large", nodes=1, gpus_per_node=1,
        usd_per_node_hour=Decimal(1), start=builders.at(-9).replace(tzinfo=UTC),
        end=builders.at(999).replace(tzinfo=UTC),
    )  # fmt: skip
    [use] = read_commitments(fleet, builders.window(0, 180), [promise])
    assert (use.running_node_hours, use.committed_node_hours) == (1, 3)


def test_spot_hours_and_interruptions_are_of_the_time_as_spot(builders: Any, fleet: Any) -> None:
    window = builders.window(0, 180)
    hours = {row.capacity_type: row.gpu_hours for row in read_worked_hours(fleet, window)}
    assert hours == {"on-demand": 1, "spot": 2}
    fleet.put(
        "event",
        [
            {
                "cluster": "c", "kind": "Node", "name": "n", "reason": "Reclaimed",
                "uid": f"{minute}", "ts": builders.at(minute),
            }
            for minute in (30, 120, 121)
        ],
    )  # fmt: skip
    [row] = read_interruptions(fleet, window, ["Reclaimed"])
    assert (row.nodes, row.node_hours, row.interruptions) == (1, 2, 1)


def test_the_past_has_the_node_of_then(builders: Any, fleet: Any) -> None:
    sql = "SELECT instance_type, capacity_type, gpu_count FROM node"
    for minute, values in ((30, LARGE), (120, SMALL)):
        then = AsOf(fleet, builders.at(minute).replace(tzinfo=UTC))
        assert then.query(sql).to_pylist() == [{name: values[name] for name in (
            "instance_type", "capacity_type", "gpu_count"
        )}]  # fmt: skip


def test_a_pod_holds_gpus_that_no_exporter_shows_while_the_node_has_them(
    builders: Any, fleet: Any
) -> None:
    """Two of four devices report, a pod has both; after the change there are no others."""
    fleet.put("device", [builders.device(name, 180) for name in ("d", "e")])
    idle = {**NODE, "namespace": "ns-seen", "pod": "seen", "covered_s": 300.0, "idle_s": 300.0}
    times = [(name, builders.at(minute)) for name in "de" for minute in range(0, 180, 5)]
    fleet.put("rollup_5m", [{**idle, "device": name, "bucket": at} for name, at in times])
    builders.hourly(fleet)
    pod = {"cluster": "c", "node": "n", "gpu_request": 2.0, "gpu_resource": "nvidia.com/gpu"}
    ends = {"early": (0, 60), "late": (60, 180), "seen": (0, 180)}
    fleet.put(
        "pod",
        [
            {
                **pod, "uid": name, "pod": name, "namespace": f"ns-{name}", "phase": "Running",
                "created_at": builders.at(start), "started_at": builders.at(start),
                "scheduled_at": builders.at(start), "finished_at": builders.at(end),
                "first_seen": builders.at(start), "last_seen": builders.at(end),
            }
            for name, (start, end) in ends.items()
        ],
    )  # fmt: skip
    rows = derive_allocations(fleet, builders.window(0, 180)).to_pylist()
    devices = {row["pod"]: set[str]() for row in rows}
    for row in rows:
        devices[row["pod"]].add(row["device"])
    assert devices["early"] == {"n/untracked2", "n/untracked3"}
    assert "late" not in devices


@pytest.mark.parametrize(("minute", "dropped"), [(30, {"m"}), (120, set())])
def test_an_exporter_is_believed_where_its_node_had_room_for_the_device(
    builders: Any, fleet: Any, minute: int, dropped: set[str]
) -> None:
    """Node m never had a GPU; n has none since the change, and room before it."""
    fleet.query("UPDATE era SET gpu_count = 0 WHERE valid_to IS NULL")
    fleet.put("node", [{"cluster": "c", "node": "m", "gpu_count": 0, "last_seen": builders.at(9)}])
    fleet.query("CREATE TABLE label (device VARCHAR, node VARCHAR, parent VARCHAR)")
    fleet.query("INSERT INTO label VALUES ('d', 'n', NULL), ('d', 'm', NULL)")
    fleet.query(
        "CREATE TABLE device_sample AS SELECT 'd' AS device, node, epoch_us($at) AS at_us,"
        " util AS gpu_util_pct, NULL::DOUBLE AS gr_engine_active"
        " FROM (VALUES ('n', 90.0), ('m', 0.0)) AS of_node(node, util)",
        {"at": builders.at(minute)},
    )
    sql = compose_query((*ERA_STEPS, "rollup/doubted"))
    bounds = {**builders.window(0, 180).bounds(), "cluster": "c", "first": builders.at(0)}
    rows = fleet.query(sql, bounds).to_pylist()
    assert {row["node"] for row in rows if row["dropped"]} == dropped
