"""Latencies and steps: new nouns in a warehouse that was there before them, kept and archived."""

from datetime import datetime, timedelta

import pytest

from fallow.errors import WarehouseError
from fallow.settings import Settings
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.tiers import move_to_cold

NOUNS = ("latency_sample", "step_sample")


def latencies(ts: datetime, n: int = 3) -> Batch:
    return Batch.of(
        "latency_sample",
        {
            "cluster": ["c"] * n,
            "ts": [ts.replace(tzinfo=None)] * n,
            "namespace": ["ns"] * n,
            "pod": [f"p-{i}" for i in range(n)],
            "metric": ["e2e"] * n,
            "source": ["vllm:e2e_request_latency_seconds"] * n,
            "count": [10.0] * n,
            "bounds": [[0.5, 1.0]] * (n - 1) + [[]],
            "counts": [[4.0, 5.0, 1.0]] * (n - 1) + [[]],
        },
    )


def test_a_warehouse_of_before_gets_the_nouns_and_keeps_its_rows(
    settings: Settings, now: datetime
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as old:
        node = {"cluster": ["c"], "node": ["n"], "last_seen": [now.replace(tzinfo=None)]}
        old.ingest([Batch.of("node", node)])
        with old.transaction() as cursor:
            for noun in NOUNS:
                cursor.execute(f'DROP TABLE "{noun}"')
    with (
        pytest.raises(WarehouseError, match=r"last written by an older Fallow \(it lacks latency"),
        Warehouse.open(settings),
    ):
        pass
    with Warehouse.open(settings, write=True, clock=lambda: now) as new:
        assert new.ingest([latencies(now)]).added == 3
        assert new.query("SELECT node FROM node").to_pylist() == [{"node": "n"}]


def test_histograms_are_stored_once_and_read_alike_from_the_cold_tier(
    settings: Settings, now: datetime
) -> None:
    old = now - timedelta(days=30)
    wanted = "SELECT pod, bounds, counts FROM latency_sample ORDER BY pod"
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        assert wh.ingest([latencies(old)]).added == 3
        assert wh.ingest([latencies(old)]).duplicates == 3
        hot = wh.query(wanted).to_pylist()
        assert move_to_cold(wh, now).rows == 3
        assert wh.query(wanted).to_pylist() == hot
        assert hot[0]["counts"] == [4.0, 5.0, 1.0]
        assert hot[2]["bounds"] == []
        assert wh.ingest([latencies(old)]).added == 0
