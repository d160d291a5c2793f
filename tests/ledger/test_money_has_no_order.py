"""The same rows have the same dollars in whatever order, homes and threads they are read."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st

from warehouse.ledger import write_ledger
from warehouse.spend import read_spend

pytestmark = pytest.mark.slow

MINUTES = 120
DEVICES = [(cluster, f"{cluster}{n}") for cluster in "ab" for n in range(3)]
BY = ("namespace", "node", "state")
PODS = st.lists(
    st.tuples(
        st.sampled_from(DEVICES),
        st.integers(0, 3),
        st.integers(0, MINUTES * 6_000_000).map(lambda n: n / 6_000_000),  # of 10 microseconds
        st.sampled_from([17.123, 60.0, 123.456789]),
        st.sampled_from([1 / 3, 1 / 7, 0.25, 1.0]),
    ),
    min_size=15,
    max_size=30,
)
SEED = st.integers(0, 1000)


def build_rows(builders: Any, pods: Any, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Return devices that pods share, their five-minute rollups and prices that change."""
    draw = random.Random(seed)
    wanted: dict[str, list[Any]] = {"weight": [1.0, 1 / 7, 3 / 7], "node": ["m", "n"]}
    rollups = [
        row | {"cluster": cluster}
        for cluster, name in DEVICES
        for minute in range(0, MINUTES, 5)
        for pod in draw.sample(["", "p0", "p1", "p2"], 2)
        for busy in [draw.choice([300.0, 299.99, 100.1, 0.0])]
        for row in builders.looks(name, minute, minute + 5, pod, busy_s=busy, idle_s=300 - busy)
    ]
    held = [
        {
            "cluster": cluster, "device": name, "pod_uid": f"u{n}", "namespace": f"ns-p{pod}",
            "pod": f"p{pod}", "workload_kind": "Job", "workload": f"job{n % 2}", "team": f"t{n}",
            "start": builders.at(start), "end": builders.at(start + length), "share": share,
        }
        for n, ((cluster, name), pod, start, length, share) in enumerate(pods)
    ]  # fmt: skip
    return {
        "device": [
            builders.device(name, MINUTES, cluster=cluster)
            | {column: draw.choice(values) for column, values in wanted.items()}
            for cluster, name in DEVICES
        ],
        "rollup_5m": rollups,
        "allocation": held,
        "rate": [
            builders.flat_rate(usd, cluster=c, valid_from=builders.at(start), reference=usd)
            for c in "ab"
            for start, usd in ((-9e5, "1.8"), (70.1, "0.33333333"), (90.7, "1.861"))
        ],
    }


def post(
    builders: Any,
    rows: dict[str, list[dict[str, Any]]],
    clusters: Iterable[str] = "ab",
    seed: int | None = None,
    threads: int = 1,
) -> list[list[dict[str, Any]]]:
    """Return the ledger of a home with these clusters, and its spend with the shared bill."""
    tables = builders.tables()
    tables.query(f"SET threads = {threads}")
    for table, listed in rows.items():
        kept = [row for row in listed if row["cluster"] in clusters]
        if seed is not None:
            random.Random(seed).shuffle(kept)
        tables.put(table, kept)
    builders.hourly(tables)
    window = builders.window(0, MINUTES)
    write_ledger(tables, window)
    spend = read_spend(tables, window, ("cluster", *BY), share_unallocated=True)
    money = [n for n in spend.column_names if "gpu_hours" not in n and "pct" not in n]
    return [
        tables.rows("ledger"),
        spend.select(money).sort_by([(n, "ascending") for n in money]).to_pylist(),
    ]


@tries(max_examples=5)
@given(pods=PODS, world=SEED, seed=SEED, threads=st.sampled_from([1, 4]))
def test_order_homes_and_threads_change_no_second_and_no_cent(
    builders: Any, pods: Any, world: int, seed: int, threads: int
) -> None:
    rows = build_rows(builders, pods, world)
    whole = post(builders, rows)
    assert post(builders, rows, seed=seed, threads=threads) == whole
    homes = [post(builders, rows, cluster, seed) for cluster in "ab"]
    for kind, merged in enumerate(whole):
        parts = [row for home in homes for row in home[kind]]
        key = lambda row: [str(value) for value in row.values()]  # noqa: E731
        assert sorted(parts, key=key) == sorted(merged, key=key)
