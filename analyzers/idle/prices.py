"""Compute the dollars of pieces as known at each time; the cost per device is accumulated once."""

from typing import Any

import numpy as np
import polars as pl

from fallow.protocols import Views
from fallow.window import Window
from warehouse.pricing import derive_device_rates
from warehouse.signals.runs import MICRO, Ints


class CostMeter:
    """The cumulative cost of each device at any time, and the time with a known price."""

    def __init__(self, views: Views, window: Window, devices: pl.DataFrame) -> None:
        rates = pl.DataFrame(derive_device_rates(views, window))
        self.empty = rates.is_empty()
        if self.empty:
            return
        named = rates.join(
            devices.select("number", "cluster", "device"), on=["cluster", "device"]
        ).select(
            "number",
            pl.col("from_at").dt.epoch("us"),
            pl.col("to_at").dt.epoch("us"),
            rate=pl.col("loaded_usd_h").cast(pl.Float64),
        )
        named = named.drop_nulls("rate").sort("number", "from_at")
        self._from = named["from_at"].to_numpy()
        self._to = named["to_at"].to_numpy()
        self._rate = named["rate"].to_numpy()
        self._number = named["number"].to_numpy()
        self._origin = int(self._from.min()) if len(self._from) else 0
        self._wide = (int(self._to.max()) - self._origin + 2) if len(self._from) else 2
        self._key = self._number * self._wide + self._from - self._origin
        long = self._to - self._from
        self._cost = np.concatenate([[0.0], np.cumsum(long * self._rate)])
        self._time = np.concatenate([[0], np.cumsum(long)])

    def dollars(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Return row, usd of pieces (row, number, start, end, share, seen); null = no price.

        If a part of a row has no price, the row has none.

        A microsecond may be lost where two rates meet.
        """
        if self.empty or not len(self._key):
            return pieces.select("row").unique().with_columns(usd=pl.lit(None, dtype=pl.Float64))
        number = pieces["number"].to_numpy()
        cost, priced_us = (
            late - early
            for late, early in zip(
                self._until(number, pieces["end"].to_numpy()),
                self._until(number, pieces["start"].to_numpy()),
                strict=True,
            )
        )
        piece_costs = pieces.select(
            "row",
            length_us=pl.col("end") - pl.col("start"),
            priced_us=pl.Series(priced_us),
            usd=pl.Series(cost) * pl.col("share") * pl.col("seen") / (3600 * MICRO),
        )
        sums = piece_costs.group_by("row", maintain_order=True).agg(
            pl.col("length_us", "priced_us", "usd").sum()
        )
        priced = pl.col("priced_us") >= pl.col("length_us") - 1000
        return sums.select("row", usd=pl.when(priced).then("usd"))

    def _until(self, number: Ints, at: Ints) -> tuple[Any, Any]:
        """Return the cumulative cost at each time, including that of all devices before."""
        inside = np.clip(at - self._origin, 0, self._wide - 1)
        row = np.searchsorted(self._key, number * self._wide + inside, side="right") - 1
        safe = np.maximum(row, 0)
        same = (row >= 0) & (self._number[safe] == number)
        # Before the first price of all devices no time has elapsed.
        elapsed = np.maximum(np.minimum(at, self._to[safe]) - self._from[safe], 0) * same
        # Before a device's first price, the sum of all devices before it.
        return (
            self._cost[np.where(same, row, row + 1)] + elapsed * self._rate[safe],
            self._time[np.where(same, row, row + 1)] + elapsed,
        )
