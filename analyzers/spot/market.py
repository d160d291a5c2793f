"""Estimate the cost of spot nodes by zone, their saving, and how often they are reclaimed.

There are no bids any more: since November 2017 AWS changes spot prices slowly and reclaims nodes
when it needs the capacity, whatever the maximum price. So zones are ranked by the expected price of
an hour of work: the price times the time that interruptions add.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from analyzers.interruptions import list_reasons
from analyzers.spot.rows import (
    InterruptionCount,
    NodePriceSpan,
    read_interruptions,
    read_node_prices,
)
from fallow.checkpointing import compute_hazard, compute_mtbf
from fallow.protocols import Views
from fallow.settings.workloads import SpotSettings
from fallow.spot_advisor import NodeType, read_published_spot
from fallow.window import Window

CLOUDS = ("aws", "gcp", "azure")
LEAST_NODE_HOURS = 100.0
"""Minimum hours of spot nodes for the use of own interruptions."""

Source = Literal["price history", "published mean"]


class InterruptionRisk(msgspec.Struct, frozen=True):
    """Hours until a node of a type is reclaimed: a pessimistic value, and the best estimate."""

    hours: float
    best_hours: float | None
    source: Literal["own events", "published band"]
    facts: dict[str, Any]


class SpotOffer(msgspec.Struct, frozen=True):
    """A spot pool: one type in one zone (empty = somewhere in the region)."""

    zone: str
    usd_per_gpu_hour: float
    list_usd_per_gpu_hour: float
    source: Source
    facts: dict[str, Any]

    @property
    def discount(self) -> float:
        """Share of the list price that is saved before any interruption."""
        return 1 - self.usd_per_gpu_hour / self.list_usd_per_gpu_hour


class SpotMarket:
    """Prices and risks of the window, by provider, region and instance type."""

    def __init__(self, views: Views, window: Window, settings: SpotSettings) -> None:
        self._settings = settings
        self._listed: dict[NodeType, NodePriceSpan] = {}
        self._spot: dict[NodeType, list[NodePriceSpan]] = {}
        for row in read_node_prices(views, window):
            key = row.provider, row.region, row.instance_type
            if row.term == "spot":
                self._spot.setdefault(key, []).append(row)
            else:
                self._listed[key] = row
        self._seen: dict[tuple[str | None, ...], InterruptionCount] = {
            (row.provider, row.region, row.instance_type): row
            for row in read_interruptions(views, window, list_reasons("spot"))
        }

    def offers(self, key: NodeType) -> list[SpotOffer]:
        """Return the spot pools of a type in a region with a price, discounted or not."""
        listed = self._listed.get(key)
        if listed is None or not listed.gpu_count:
            return []
        full = listed.usd_h / listed.gpu_count
        offers = [
            SpotOffer(
                zone=row.zone,
                usd_per_gpu_hour=row.usd_h / listed.gpu_count,
                list_usd_per_gpu_hour=full,
                source="price history",
                facts={
                    "prices_seen": row.prices,
                    "low_usd_h": row.low_usd_h,
                    "high_usd_h": row.high_usd_h,
                    "last_usd_h": row.last_usd_h,
                    "as_of": _format_day(row.as_of),
                    "reference": row.reference,
                },
            )
            for row in self._spot.get(key, ())
        ]
        published = read_published_spot().get(key)
        if offers or published is None:
            return offers
        share = published.savings_pct / 100
        return [
            SpotOffer(
                zone="",
                usd_per_gpu_hour=full * (1 - share),
                list_usd_per_gpu_hour=full,
                source="published mean",
                facts={"as_of": published.as_of, "reference": published.source},
            )
        ]

    def risk(self, key: NodeType) -> InterruptionRisk | None:
        """Return how long a node of a type runs: by own events, else by the published band."""
        seen = self._seen.get(key)
        if seen is not None and seen.node_hours >= LEAST_NODE_HOURS:
            measured = compute_mtbf(seen.interruptions, seen.node_hours)
            facts: dict[str, Any] = {
                "interruptions": seen.interruptions,
                "node_hours": round(seen.node_hours, 1),
                "mtbf_hours": _format_hours(measured.mean_h),
                "mtbf_hours_95": [_format_hours(measured.low_h), _format_hours(measured.high_h)],
            }
            return InterruptionRisk(measured.low_h, measured.mean_h, "own events", facts)
        published = read_published_spot().get(key)
        if published is None:
            return None
        low = published.low_pct_per_month / 100
        high = published.high_pct_per_month
        best = 1 / compute_hazard(high / 100 if high else low)
        cautious = self._settings.assumed_mtbf.total_seconds() / 3600
        facts = {
            "band_pct_per_month": f"{low:.0%}-{high}%" if high else f">{low:.0%}",
            "as_of": published.as_of,
            "reference": published.source,
            "assumed_mtbf_hours": cautious,
        }
        return InterruptionRisk(min(cautious, best), best, "published band", facts)


def _format_day(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d}"


def _format_hours(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
