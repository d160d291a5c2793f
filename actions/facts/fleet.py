"""Read the size of the fleet, the base of budgets in percent."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from actions.policy.budgets import BudgetUsage
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.window import Window
from warehouse.pricing import derive_device_rates

LOOKBACK = timedelta(hours=1)


def read_fleet(views: Views, now: datetime) -> BudgetUsage:
    """Return the GPUs, workloads, owners and dollars per hour of the hour before a given time."""
    sql = read_text("actions.facts", "fleet.sql").strip()
    since = now - LOOKBACK
    row = views.query(sql, {"since": since, "until": now}).to_pylist()[0]
    rates = derive_device_rates(views, Window(since, now))
    latest = (
        rates.filter(pc.equal(rates["to_at"], pc.max(rates["to_at"]))) if rates.num_rows else rates
    )
    usd = pc.sum(latest["loaded_usd_h"]).as_py() if latest.num_rows else None
    largest = (
        _find_largest(views, latest, {"since": since, "until": now}) if usd is not None else None
    )
    return BudgetUsage(
        fleet_gpus=row["gpus"],
        fleet_workloads=row["workloads"],
        fleet_owners=row["owners"],
        fleet_usd_per_hour=_sum_dollars(usd),
        largest_node_gpus=row["largest_node_gpus"],
        largest_node_usd_per_hour=_sum_dollars(largest),
    )


def _find_largest(views: Views, rates: pa.Table, parameters: dict[str, Any]) -> float | None:
    """Return the dollars per hour of the most expensive node; None = no priced device is on one."""
    rows = views.query(
        "SELECT DISTINCT cluster, device, node FROM device "
        "WHERE node IS NOT NULL AND first_seen < $until AND last_seen >= $since",
        parameters,
    )
    devices: Any = pl.DataFrame(rows)
    priced: Any = pl.DataFrame(rates.select(["cluster", "device", "loaded_usd_h"]))
    sums = (
        devices.join(priced, on=["cluster", "device"])
        .group_by("cluster", "node")
        .agg(pl.col("loaded_usd_h").cast(pl.Float64).sum())
    )
    largest: float | None = sums["loaded_usd_h"].max()
    return largest


def _sum_dollars(value: float | Decimal | None) -> Decimal | None:
    return None if value is None else Decimal(str(round(float(value), 6)))
