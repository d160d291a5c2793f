"""Every second of every device in exactly one state, and every cent of its price."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from fallow.window import Window
from warehouse import steps
from warehouse.allocation import write_allocations
from warehouse.ledger import STEPS, build_parameters, write_ledger

pytestmark = pytest.mark.slow

JOBS = st.lists(
    st.tuples(
        st.sampled_from(["d0", "d1"]),
        st.integers(0, 150),
        st.integers(1, 120),
        st.sampled_from([None, 0.25, 0.5, 1.0]),
        st.booleans(),
    ),
    max_size=5,
)
LOOKS = st.lists(
    st.tuples(
        st.sampled_from(["d0", "d1"]),
        st.integers(0, 35),
        st.sampled_from(["", "p0", "p1", "p2"]),
        st.sampled_from(["idle_s", "low_s", "busy_s", "conflict_s", "blind_s"]),
        st.sampled_from([300.0, 299.99, 150.0, 37.5]),
    ),
    max_size=40,
    unique_by=lambda look: (look[0], look[1]),
)


def ledger(tables: Any) -> list[tuple[Any, ...]]:
    return [
        (r["device"], r["bucket"], r["state"], r["workload"], round(r["seconds"], 4))
        for r in tables.rows("ledger", "device, bucket, state, workload")
        if r["seconds"] > 0.001
    ]


def cell_by_cell(tables: Any, window: Window, step: str) -> list[tuple[Any, ...]]:
    """Post once more with no bucket taken for a plain one."""
    plain = f"plain AS (\n{steps.load_step('ledger/plain')}\n)"
    sql = steps.compose_query(STEPS)
    assert plain in sql
    none = sql.replace(
        plain, f"plain AS (SELECT * FROM (\n{steps.load_step('ledger/plain')}\n) LIMIT 0)"
    )
    tables.derive("ledger", none, "true", build_parameters(window, tables.settings, step))
    return ledger(tables)


@tries(max_examples=8)
@given(
    jobs=JOBS, looks=LOOKS, end=st.integers(3, 180), usd=st.sampled_from(["1.861", "0.33333333"])
)
@pytest.mark.parametrize("step", ["1h", "5m"])
def test_states_sum_to_capacity_and_dollars_to_its_price(  # noqa: PLR0917  (hypothesis fills)
    builders: Any, step: str, jobs: Any, looks: Any, end: int, usd: str
) -> None:
    tables = builders.tables()
    tables.put("device", [builders.device("d0", end), builders.device("d1", end)])
    tables.put("rate", [builders.flat_rate(usd)])
    tables.put(
        "rollup_5m",
        [
            row
            for name, slot, pod, state, seconds in looks
            for row in builders.looks(name, slot * 5, slot * 5 + 5, pod, **{state: seconds})
        ],
    )
    tables.put(
        "pod",
        [
            {
                "cluster": "c",
                "uid": f"u{i}",
                "namespace": f"ns-p{i}",
                "pod": f"p{i}",
                "node": "n",
                "gpu_request": share or 1.0,
                "scheduled_at": builders.at(start),
                "finished_at": builders.at(start + length),
                "devices": f'["{name}"]' if listed else None,
            }
            for i, (name, start, length, share, listed) in enumerate(jobs)
        ],
    )
    builders.hourly(tables)
    write_allocations(tables, builders.window(0, 180))
    write_ledger(tables, builders.window(0, 180), step)
    held = tables.query(
        "SELECT max(total) AS most FROM (SELECT sum(b.share) AS total FROM allocation a "
        'JOIN allocation b ON a.device = b.device AND b.start <= a.start AND b."end" > a.start '
        "GROUP BY a.device, a.start, a.pod_uid)"
    ).to_pylist()[0]["most"]
    assert held is None or held <= 1 + 1e-6
    size = 3600 if step == "1h" else 300
    for row in tables.query(
        "SELECT device, bucket, sum(seconds) AS seconds, sum(usd) AS usd, min(seconds) AS least "
        "FROM ledger GROUP BY device, bucket"
    ).to_pylist():
        start = (row["bucket"] - builders.at(0)).total_seconds()
        capacity = min(size, end * 60 - start)
        assert row["seconds"] == pytest.approx(capacity, abs=1e-3)
        assert row["least"] > 0
        price = Decimal(str(capacity)) / 3600 * Decimal(usd)
        assert abs(row["usd"] - price) < Decimal("0.000001")
    total = tables.query("SELECT sum(seconds) AS s FROM ledger").to_pylist()[0]["s"]
    assert total == pytest.approx(2 * end * 60, abs=0.01)


HALVES = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.integers(1, 5),
        st.sampled_from([None, 0.5, 1.0]),
    ),
    max_size=3,
)
HOURS = st.lists(
    st.tuples(
        st.sampled_from(["", "p0", "p1", "p2"]),
        st.sampled_from(["idle_s", "low_s", "busy_s", "blind_s"]),
        st.sampled_from([300.0, 299.99, 150.0, 301.0]),
    ),
    min_size=4,
    max_size=4,
)


@tries(max_examples=8)
@given(halves=HALVES, hours=HOURS, later=st.booleans())
@pytest.mark.parametrize("step", ["1h", "5m"])
def test_plain_buckets_are_counted_like_all_others(
    builders: Any, step: str, halves: Any, hours: Any, *, later: bool
) -> None:
    tables = builders.tables()
    tables.put("device", [builders.device("d", 240, first_seen=builders.at(30 * later))])
    tables.put(
        "rollup_5m",
        [
            row
            for hour, (pod, state, seconds) in enumerate(hours)
            for row in builders.looks("d", hour * 60, hour * 60 + 60, pod, **{state: seconds})
        ],
    )
    tables.put(
        "allocation",
        [
            {
                "cluster": "c",
                "device": "d",
                "pod_uid": f"u{i}",
                "namespace": f"ns-p{i}",
                "pod": f"p{i}",
                "workload_kind": "Job",
                "workload": f"job{i}",
                "start": builders.at(start * 30),
                "end": builders.at(start * 30 + length * 30),
                "share": (share or 1) / (1 + (len(halves) > 1)),
            }
            for i, (start, length, share) in enumerate(halves)
        ],
    )
    builders.hourly(tables)
    write_ledger(tables, builders.window(0, 240), step)
    posted = ledger(tables)
    assert posted == cell_by_cell(tables, builders.window(0, 240), step)
