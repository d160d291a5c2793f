"""Build series from the ledger's hours: spend and waste of each team and namespace, where known."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analyzers.anomalies.control_chart import BESIDE, WEEK
from analyzers.arrays import Doubles, Ints
from analyzers.queries import load_sql
from analyzers.query_cache import cache_query
from fallow.protocols import Views
from fallow.settings.anomalies import AnomaliesSettings
from fallow.window import Window

GPU_HOUR = 3_600_000_000
"""GPU-microseconds of one GPU-hour: the unit of the sums."""
DOLLAR = 100_000_000
WARM = WEEK
"""Hours before the window with which the CUSUM starts, so that windows agree on onsets."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("allocated", "wasted", "unknown", "unpriced", "usd", "wasted_usd")


class SeriesKey(NamedTuple):
    """The subject of a series: a team of a cluster, or a namespace (the other is empty)."""

    cluster: str
    team: str
    namespace: str

    @property
    def name(self) -> str:
        """The subject's name for people."""
        return self.team or self.namespace

    @property
    def column(self) -> str:
        """The column that selects its rows."""
        return "team" if self.team else "namespace"


class HourAxis(NamedTuple):
    """The columns of a grid: hours since 1970."""

    begin: int
    judged: int
    """Scores are computed from this column on."""
    window: int
    end: int

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.end - self.begin

    def get_time(self, hour: int) -> datetime:
        """Return the start of an hour."""
        return _EPOCH + timedelta(hours=hour)


class SeriesGrid(msgspec.Struct, frozen=True):
    """Series (rows) by hour (columns), and the ledger rows behind them."""

    hours: HourAxis
    keys: tuple[SeriesKey, ...]
    values: Mapping[str, Doubles]
    """By measure, spend and waste: dollars, or GPU-hours where `priced` is false; NaN = no data."""
    priced: npt.NDArray[np.bool_]
    rows: pl.DataFrame
    blind: Mapping[str, npt.NDArray[np.bool_]]
    """By cluster, hours with too little data."""
    allocated: Mapping[str, Ints]
    """By cluster, the allocated GPU-microseconds of the ledger."""


@cache_query
def read_series(views: Views, window: Window, settings: AnomaliesSettings) -> SeriesGrid:
    """Read the window and the weeks before it; an hour that has not ended yet is left out."""
    start = -(-int((window.start - _EPOCH).total_seconds()) // 3600)
    end = max(int((window.end - _EPOCH).total_seconds()) // 3600, start)
    judged = start - WARM
    hours = HourAxis(judged - settings.weeks * WEEK - BESIDE, judged, start, end)
    bounds = {
        "since": hours.get_time(hours.begin).replace(tzinfo=None),
        "until": hours.get_time(hours.end).replace(tzinfo=None),
    }
    arrow: Any = pl.from_arrow(views.query(load_sql("anomalies/ledger_hours"), bounds))
    rows: pl.DataFrame = arrow
    blind, allocated = _find_blind_hours(rows, hours, settings.coverage)
    owned = rows.filter(pl.col("namespace") != "")
    grids = [_sum_series(owned, column, hours, settings) for column in ("team", "namespace")]
    keys = tuple(key for series_keys, _ in grids for key in series_keys)
    sums = {c: np.concatenate([series_keys[c] for _, series_keys in grids]) for c in _COLUMNS}
    priced = (sums["unpriced"] == 0).all(axis=1)
    unseen = np.array([blind[k.cluster] for k in keys], dtype=bool).reshape(len(keys), hours.width)
    doubtful = sums["unknown"] > (1 - settings.coverage) * sums["allocated"]
    values = {}
    for measure, usd, time, hidden in (
        ("spend", "usd", "allocated", unseen),
        ("waste", "wasted_usd", "wasted", unseen | doubtful),
    ):
        amounts = np.where(priced[:, None], sums[usd] / DOLLAR, sums[time] / GPU_HOUR)
        values[measure] = np.where(hidden, np.nan, amounts)
    return SeriesGrid(hours, keys, values, priced, owned, blind, allocated)


def _find_blind_hours(
    rows: pl.DataFrame, hours: HourAxis, coverage: float
) -> tuple[dict[str, npt.NDArray[np.bool_]], dict[str, Ints]]:
    """Return by cluster the hours with incomplete data.

    In such an hour nothing was written, less than usual was written, or too much is unknown. Usual
    is the median of the week up to the hour. A fleet that shrank is complete again half a week
    later; a fleet whose collector stopped never is.
    """
    blind, allocated = {}, {}
    for cluster, some in rows.partition_by("cluster", as_dict=True).items():
        at = some["hour"].to_numpy() - hours.begin
        total, unknown, owned = (np.zeros(hours.width, dtype=np.int64) for _ in range(3))
        np.add.at(total, at, some["allocated"].to_numpy())
        np.add.at(unknown, at, some["unknown"].to_numpy())
        np.add.at(owned, at, np.where(some["namespace"].to_numpy() == "", 0, some["allocated"]))
        in_ledger = np.where(total > 0, total, np.nan)
        behind = np.concatenate([np.full(WEEK - 1, np.nan), in_ledger])
        weeks = np.sort(np.lib.stride_tricks.sliding_window_view(behind, WEEK), axis=1)
        count = np.maximum(np.isfinite(weeks).sum(axis=1), 1)
        usual = np.take_along_axis(weeks, ((count - 1) // 2)[:, None], axis=1)[:, 0]
        seen = np.where(total > 0, total - unknown, 0)
        name = str(cluster[0])
        blind[name] = ~((seen >= coverage * usual) & (total > 0))
        allocated[name] = owned
    return blind, allocated


def _sum_series(
    rows: pl.DataFrame, column: str, hours: HourAxis, settings: AnomaliesSettings
) -> tuple[list[SeriesKey], dict[str, Ints]]:
    """Sum the rows by series and hour; series too small for any finding are left out."""
    now = pl.col("hour") >= hours.judged
    large = (
        rows.filter((pl.col(column) != "") & now)
        .group_by("cluster", column)
        .agg(pl.col("usd", "allocated", "unpriced").sum())
        .filter(
            (pl.col("usd") >= int(settings.min_usd) * DOLLAR)
            | (
                (pl.col("unpriced") > 0)
                & (pl.col("allocated") >= settings.min_gpu_hours * GPU_HOUR)
            )
        )
        .select("cluster", column)
        .sort("cluster", column)
        .with_row_index("row")
    )
    mine = rows.join(large, on=["cluster", column])
    at = (mine["row"].cast(pl.Int64) * hours.width + mine["hour"] - hours.begin).to_numpy()
    by_column = {}
    for name in _COLUMNS:
        sums = np.zeros(large.height * hours.width, dtype=np.int64)
        np.add.at(sums, at, mine[name].to_numpy())
        by_column[name] = sums.reshape(large.height, hours.width)
    keys = [
        SeriesKey(cluster, name, "") if column == "team" else SeriesKey(cluster, "", name)
        for _, cluster, name in large.iter_rows()
    ]
    return keys, by_column
