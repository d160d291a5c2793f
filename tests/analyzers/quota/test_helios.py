"""A real week of sixteen static virtual clusters (Helios "Earth"): what their walls cost."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analyzers.quota.analyzer import QuotaAnalyzer
from fallow.tables import Batch
from fallow.window import Window

pytestmark = pytest.mark.real_data
START = datetime(2020, 5, 4, tzinfo=UTC)


@pytest.fixture
def week(views: Any, shared_data: Callable[[str], Path]) -> tuple[Any, Window]:
    """Put the week as quotas that lend nothing, and its idle GPUs as free hours of the ledger."""
    path = shared_data("helios/earth_vc_week_2020-05-04_dev.csv.zst")
    rows = pl.read_csv(path).with_columns(pl.col("time").str.to_datetime(time_unit="us"))
    quota = rows.select(
        cluster=pl.lit("earth"),
        ts="time",
        kind=pl.lit("ResourceQuota"),
        namespace="vc",
        name=pl.lit("gpus"),
        resource=pl.lit("nvidia.com/gpu"),
        nominal=pl.col("total_gpu_num").cast(pl.Float64),
        used=pl.col("running_gpu_num").cast(pl.Float64),
        waiting=pl.col("pending_gpu_num").cast(pl.Float64),
    )
    free = rows.group_by(bucket=pl.col("time").dt.truncate("1h")).agg(
        gpu_seconds=pl.col("idle_gpu_num").sum() * 60.0
    )
    ledger = free.with_columns(
        cluster=pl.lit("earth"), device=pl.lit("all"), state=pl.lit("free"), namespace=pl.lit(""),
        workload_kind=pl.lit(""), workload=pl.lit(""), priced=pl.lit(value=False),
    )  # fmt: skip
    for table, frame in (("quota", quota), ("ledger", ledger)):
        views.put(Batch.of(table, {c: frame[c].to_list() for c in frame.columns}))
    return views, Window(START, START + timedelta(days=7))


def test_the_week_adds_up(week: tuple[Any, Window]) -> None:
    result = QuotaAnalyzer().summary(*week)["groups"]["earth/ResourceQuota/nvidia.com/gpu"]
    hours = 7 * 24
    used = sum(m["used_gpus"] for m in result["members"]) * hours
    entitled = sum(m["entitled_gpus"] for m in result["members"]) * hours
    wanted = sum(m["demand_gpus"] for m in result["members"]) * hours
    assert used / entitled == pytest.approx(0.5270, abs=5e-5)
    assert entitled - used == pytest.approx(68_023.5, abs=2)
    assert wanted - used == pytest.approx(6_333.1, abs=2)
    # What waits either has room under its own quota (a gang that fits no node) or is walled in.
    walled = result["blocked_gpu_hours"] + result["starved_gpu_hours"]
    assert walled == pytest.approx(6_333.1, abs=0.1)


def test_whoever_was_walled_in_could_have_had_what_others_left(week: tuple[Any, Window]) -> None:
    found = {f.kind: f for f in QuotaAnalyzer().find(*week)}
    stranded = found["stranded_quota"]
    assert stranded.gpu_hours == pytest.approx(stranded.details["blocked_gpu_hours"], abs=0.1)
    assert stranded.details["proposal"]["moves"] == []  # a week of history makes no donor
    pooled = found["unpooled_quota"].details
    assert pooled["pooled_gpus"] < pooled["static_gpus"] <= pooled["entitled_gpus"] + 1e3
