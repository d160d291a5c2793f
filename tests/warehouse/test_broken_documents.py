"""A document that is no JSON costs itself: the engine would end every pass at it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.lake import Warehouse

START = datetime(2026, 3, 2, tzinfo=UTC)
END = START + timedelta(hours=1)


def build_batches(cluster: str, **documents: str) -> list[Batch]:
    """Return an hour of a busy GPU of a cluster, its pod and its node."""
    times = [START.replace(tzinfo=None) + timedelta(minutes=n) for n in range(60)]
    who = {"cluster": [cluster], "node": ["n"]}
    seen = {"first_seen": [times[0]], "last_seen": [END.replace(tzinfo=None)]}
    pod: dict[str, Any] = {
        "uid": [f"u-{cluster}"], "namespace": ["ml"], "pod": ["p"], "gpu_request": [1.0],
        "scheduled_at": [times[0]],
    }  # fmt: skip
    rows: dict[str, Any] = {
        "cluster": [cluster] * 60, "ts": times, "device": [f"GPU-{cluster}"] * 60,
        "node": ["n"] * 60, "namespace": ["ml"] * 60, "pod": ["p"] * 60,
        "interval_s": [60.0] * 60, "gpu_util_pct": [90.0] * 60,
    }  # fmt: skip
    return [
        Batch.of("node", {**who, **seen, "gpu_count": [1]}),
        Batch.of("pod", {**who, **seen, **pod, **{k: [v] for k, v in documents.items()}}),
        Batch.of("sample", rows),
    ]


@pytest.mark.parametrize("text", ["x", "", '{"fallow.dev/unreadable":', "[" * 9_000])
def test_a_broken_document_of_one_cluster_ends_no_pass_and_is_listed(
    settings: Settings, text: str
) -> None:
    documents = dict.fromkeys(("annotations", "labels", "devices"), text)
    with Warehouse.open_in_memory(settings, clock=lambda: END) as warehouse:
        warehouse.ingest([*build_batches("a"), *build_batches("b", **documents)])
        pipeline.account(warehouse, Window(START, END))
        hours = warehouse.query(
            "SELECT cluster, sum(seconds) / 3600 AS h FROM ledger GROUP BY ALL ORDER BY ALL"
        ).to_pylist()
        assert [(row["cluster"], row["h"]) for row in hours] == [("a", 1.0), ("b", 1.0)]
        listed = warehouse.query("SELECT uid, field FROM rejection").to_pylist()
        assert {row["uid"] for row in listed} == {"u-b"}
        assert {row["field"] for row in listed} == set(documents)
