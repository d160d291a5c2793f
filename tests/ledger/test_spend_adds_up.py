"""What `fallow spend` answers adds up, whoever asks and however."""

from decimal import Decimal
from typing import Any

import pytest

from dashboards.figures import spend
from dashboards.figures.query import Filters
from fallow.errors import UsageError
from fallow.models import PLATFORM
from warehouse.allocation import write_allocations
from warehouse.ledger import write_ledger
from warehouse.spend import KEYS, read_spend


@pytest.fixture
def posted(builders: Any, tables: Any) -> Any:
    """Return an hour of four GPUs at $8 (GPU part $5): two teams, one free, one never looked at."""
    tables.put(
        "device", [builders.device(f"d{n}", 60, model="NVIDIA H100 80GB HBM3") for n in range(3)]
    )
    tables.put("device", [builders.device("dark", 60, node="elsewhere")])
    tables.put("rate", [builders.flat_rate("8", gpu_usd_h=Decimal(5))])
    tables.put(
        "rollup_5m",
        [
            *builders.looks("d0", 0, 60, "p", busy_s=300.0),
            *builders.looks("d1", 0, 60, "q", idle_s=200.0, conflict_s=100.0),
            *builders.looks("d2", 0, 60),
        ],
    )
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, 60))
    write_ledger(tables, builders.window(0, 60))
    return tables


def answered(builders: Any, tables: Any, *by: str, **more: Any) -> dict[Any, tuple[Any, Any]]:
    rows = read_spend(tables, builders.window(0, 60), by or ("namespace",), **more).to_pylist()
    return {
        tuple(r[k] for k in by or ("namespace",)): (
            pytest.approx(r["gpu_hours"]),
            pytest.approx(float(r["usd"])),
        )
        for r in rows
    }


@pytest.mark.parametrize("by", KEYS)
@pytest.mark.parametrize("shared", [False, True])
def test_every_grouping_sums_to_capacity_and_bill(
    builders: Any, posted: Any, by: str, *, shared: bool
) -> None:
    for view, bill in (("loaded", 32), ("gpu", 20)):
        rows = read_spend(
            posted, builders.window(0, 60), [by], view, share_unallocated=shared
        ).to_pylist()
        assert sum(r["gpu_hours"] for r in rows) == pytest.approx(4)
        assert sum(r["usd"] for r in rows) == bill
        assert sum(r["share_pct"] for r in rows) == pytest.approx(100)


def test_what_nobody_held_is_the_platform_s_and_unknown_is_in_the_open(
    builders: Any, posted: Any
) -> None:
    assert answered(builders, posted) == {
        ("ns-p",): (1, 8),
        ("ns-q",): (1, 8),
        (PLATFORM,): (2, 16),
    }
    assert answered(builders, posted, "namespace", "state") == {
        ("ns-p", "productive"): (1, 8),
        ("ns-q", "idle"): (pytest.approx(2 / 3), pytest.approx(16 / 3)),
        ("ns-q", "unknown"): (pytest.approx(1 / 3), pytest.approx(8 / 3)),
        (PLATFORM, "free"): (1, 8),
        (PLATFORM, "unknown"): (1, 8),
    }
    rows = read_spend(posted, builders.window(0, 60), ["namespace"]).to_pylist()
    unknown = {r["namespace"]: r["unknown_gpu_hours"] for r in rows}
    assert unknown == pytest.approx({"ns-p": 0, "ns-q": 1 / 3, PLATFORM: 1})


def test_when_asked_the_platform_s_dollars_go_to_the_owners_and_its_hours_stay(
    builders: Any, posted: Any
) -> None:
    assert answered(builders, posted, share_unallocated=True) == {
        ("ns-p",): (1, 16),
        ("ns-q",): (1, 16),
        (PLATFORM,): (2, 0),
    }


def test_gpu_only_leaves_out_the_rest_of_the_node(builders: Any, posted: Any) -> None:
    assert answered(builders, posted, view="gpu")["ns-p",] == (1, 5)


def test_unpriced_hours_are_counted_not_free(builders: Any, posted: Any) -> None:
    posted.query("DELETE FROM rate")
    write_ledger(posted, builders.window(0, 60))
    rows = read_spend(posted, builders.window(0, 60), ["namespace"]).to_pylist()
    assert {r["usd"] for r in rows} == {None}
    assert sum(r["unpriced_gpu_hours"] for r in rows) == pytest.approx(4)


@pytest.mark.parametrize(
    ("by", "view", "said"),
    [
        (["planet"], "loaded", "cannot group spend by planet"),
        ([], "loaded", "cannot group spend by nothing"),
        (["team"], "net", "spend has no view 'net'"),
    ],
)
def test_other_groupings_and_views_are_refused(
    builders: Any, tables: Any, by: list[str], view: str, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read_spend(tables, builders.window(0, 60), by, view)
    assert said in str(refused.value)
    assert "legal: " in str(refused.value)


def test_a_headline_of_a_fleet_is_the_sum_of_its_clusters_cents(builders: Any, tables: Any) -> None:
    """Two clusters pay $10.004 each: two bills of $10.00, not one of $20.01."""
    hour = {
        "bucket": builders.at(0), "device": "d", "namespace": "ns", "workload_kind": "Job",
        "workload": "w", "seconds": 3600.0, "gpu_seconds": 3600.0, "priced": True,
    }  # fmt: skip
    tables.put(
        "ledger",
        [
            {**hour, "cluster": cluster, "state": state, "usd": Decimal(usd), "usd_gpu": Decimal(1)}
            for cluster in "ab"
            for state, usd in (("productive", "7.001"), ("idle", "3.003"))
        ],
    )
    now = spend.read_totals(tables, builders.window(0, 60), Filters())
    assert (now.usd, now.used_usd, now.wasted_usd) == (
        Decimal("20.00"),
        Decimal("14.00"),
        Decimal("6.00"),
    )
