"""Read the size of the fleet, the base of budgets in percent."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from actions.policy.budgets import BudgetUsage, FleetSize, build_usage
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.window import Window
from warehouse.pricing import derive_device_rates

LOOKBACK = timedelta(hours=1)


def read_fleet(views: Views, now: datetime) -> BudgetUsage:
    """Return the GPUs, workloads, owners and dollars per hour of the hour before a given time.

    Of the whole fleet, and of each cluster with devices.
    """
    parameters = {"since": now - LOOKBACK, "until": now}
    rows = views.query(read_text("actions.facts", "fleet.sql").strip(), parameters).to_pylist()
    rates = derive_device_rates(views, Window(now - LOOKBACK, now))
    latest = (
        rates.filter(pc.equal(rates["to_at"], pc.max(rates["to_at"]))) if rates.num_rows else rates
    )
    prices = _sum_by_cluster(views, latest, parameters) if latest.num_rows else {}
    sizes = {row["cluster"]: _build_size(row, prices) for row in rows}
    fleet = sizes.pop(None)
    return build_usage(fleet, sizes)


def _build_size(
    row: Mapping[str, Any], prices: Mapping[str | None, tuple[float, float | None]]
) -> FleetSize:
    total, largest = prices.get(row["cluster"], (None, None))
    return FleetSize(
        gpus=row["gpus"],
        workloads=row["workloads"],
        owners=row["owners"],
        usd_per_hour=_sum_dollars(total),
        largest_node_gpus=row["largest_node_gpus"],
        largest_node_usd_per_hour=_sum_dollars(largest),
    )


def _sum_by_cluster(
    views: Views, latest: pa.Table, parameters: Mapping[str, Any]
) -> dict[str | None, tuple[float, float | None]]:
    """Return dollars per hour, and those of the most expensive node, by cluster; None = of all.

    The second is None where no priced device is on a node.
    """
    rows = views.query(
        "SELECT DISTINCT cluster, device, node FROM device "
        "WHERE node IS NOT NULL AND first_seen < $until AND last_seen >= $since",
        parameters,
    )
    priced = pl.DataFrame(latest.select(["cluster", "device", "loaded_usd_h"])).with_columns(
        pl.col("loaded_usd_h").cast(pl.Float64)
    )
    nodes = pl.DataFrame(rows).join(priced, on=["cluster", "device"])
    by_node = nodes.group_by("cluster", "node").agg(pl.col("loaded_usd_h").sum())
    totals = priced.group_by("cluster").agg(pl.col("loaded_usd_h").sum())
    largest = by_node.group_by("cluster").agg(pl.col("loaded_usd_h").max())
    prices: dict[str | None, tuple[float, float | None]] = {
        cluster: (total, most)
        for cluster, total, most in totals.join(
            largest, on="cluster", how="left", suffix="_most"
        ).iter_rows()
    }
    most = by_node["loaded_usd_h"].max()
    prices[None] = sum(total for total, _ in prices.values()), most  # type: ignore[assignment]
    return prices


def _sum_dollars(value: float | Decimal | None) -> Decimal | None:
    return None if value is None else Decimal(str(round(float(value), 6)))
