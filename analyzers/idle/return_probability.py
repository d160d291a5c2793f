"""Estimate the probability that an idle workload is used again soon.

There are two sources of evidence, both in hours. The first is the idle times of other workloads of
its kind (of finding, and of Kubernetes object) that had lasted as long, or as long minus one
horizon: how many of them ended by themselves within the horizon after that age (the kind's survival
curve). The second is the workload's own days of the same type (workday or weekend) on which it was
idle when these hours began: was it active in them? On a day on which it was active before, it did
not return. Where none of these shows a return, the horizons that this idle time itself has lasted
through are exposures too. People return in working hours: where the horizon includes them, an idle
time counts only if more than half of its own horizon was in them. For n exposures with r returns
the estimate is (r + 1/2) / (n + 1), Jeffreys' for a proportion. Where its own days show returns,
the estimate from these alone is used if it is higher.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from analyzers.idle.findings import decide_kind
from analyzers.idle.spans import WORKLOAD
from analyzers.queries import load_sql
from fallow.idle_settings import IdleSettings
from fallow.protocols import Views
from fallow.window import Window
from warehouse.signals.runs import Ints

HOUR_US = 3_600_000_000
HOUR_S = 3600
DAY_H = 24
WEEKEND = 5
"""Weekdays from this number on, Monday = 0, are no workdays."""
THURSDAY = 3
"""The day of the week of 1970-01-01."""

IdleTimes = tuple[Ints, Ints, Ints, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]
"""Columns of idle times in hours: workload, first hour, hour after the last, ended by itself."""


def add_return_probability(
    views: Views, window: Window, rows: pl.DataFrame, settings: IdleSettings, *, lasts_us: int
) -> pl.DataFrame:
    """Add `wanted` (0-1) and `exposures`, `returns`, `own_days` and `own_returns` behind it.

    `rows` have row, the names of `WORKLOAD`, kind, state, start, end and at (microseconds). The
    columns are null for workloads that are not idle, for stretches that ended more than `lasts_us`
    before their time, and where the settings have no horizon.
    """
    horizon = settings.min_expected_rest
    lasting = rows.filter((pl.col("state") == "idle") & (pl.col("end") >= pl.col("at") - lasts_us))
    if horizon is None or lasting.is_empty():
        return rows.with_columns(
            wanted=pl.lit(None, dtype=pl.Float64),
            **{name: pl.lit(None, dtype=pl.Int64) for name in COUNTS},
        )
    begin = Window(window.start - settings.history, window.end)
    hours = pl.DataFrame(
        views.query(
            load_sql("idle/workload_hours"),
            {
                **begin.bounds(),
                "exit_threshold": max(settings.exit_threshold, settings.threshold),
            },
        )
    )
    owners = pl.concat([rows.select(*WORKLOAD), hours.select(*WORKLOAD)]).unique(
        maintain_order=True
    )
    owners = owners.with_row_index("number").with_columns(pl.col("number").cast(pl.Int64))
    kinds = rows.select(*WORKLOAD, "kind").unique(WORKLOAD)
    owners = owners.join(kinds, on=WORKLOAD, how="left", nulls_equal=True, maintain_order="left")
    # A RayCluster that is kept running does not return as a training job does between two epochs.
    by_kind = [
        (kind or decide_kind(workload_kind, served=False, notebook=False), workload_kind or "")
        for kind, workload_kind in owners.select("kind", "workload_kind").iter_rows()
    ]
    codes = {kind: n for n, kind in enumerate(sorted(set(by_kind)))}
    kind_of_owner = np.array([codes[kind] for kind in by_kind], dtype=np.int64)
    hours = hours.join(owners.select("number", *WORKLOAD), on=WORKLOAD, nulls_equal=True)
    hours = hours.sort("number", "hour")
    activity_hours = ActivityHours(
        hours["number"].to_numpy(),
        (hours["hour"] // HOUR_US).to_numpy(),
        hours["active"].to_numpy().astype(bool),
        kind_of_owner,
        WorkClock(settings.working_hours, settings.time_zone),
    )
    ahead = max(1, round(horizon / timedelta(hours=1)))
    mine = lasting.select("row", "start", "at", *WORKLOAD).join(
        owners.select("number", *WORKLOAD), on=WORKLOAD, nulls_equal=True
    )
    answers = [
        (
            row,
            *activity_hours.exposures(
                owner, now, activity_hours.rest_since(owner, now, -(-start // HOUR_US)), ahead
            ),
        )
        for row, owner, start, now in mine.select(
            "row", "number", "start", pl.col("at") // HOUR_US
        ).iter_rows()
    ]
    estimates = pl.DataFrame(
        answers, schema={"row": pl.Int64, **dict.fromkeys(COUNTS, pl.Int64)}, orient="row"
    )
    pooled = (pl.col("returns") + 0.5) / (pl.col("exposures") + 1)
    own = (pl.col("own_returns") + 0.5) / (pl.col("own_days") + 1)
    estimates = estimates.with_columns(
        wanted=pl.when(pl.col("own_returns") > 0)
        .then(pl.max_horizontal(pooled, own))
        .otherwise(pooled)
        .round(4)
    )
    return rows.join(estimates, on="row", how="left")


COUNTS = ("exposures", "returns", "own_days", "own_returns")


class WorkClock:
    """The working hours: Monday to Friday, in the local time of a site."""

    def __init__(self, working: tuple[int, int], zone: str) -> None:
        self._working, self._zone = working, ZoneInfo(zone)
        self._counts: dict[tuple[int, int], int] = {}

    def working(self, hours: Ints, ahead: int) -> Ints:
        """Return how many of the `ahead` hours from each hour on are working hours."""
        each, of = np.unique(hours, return_inverse=True)
        counts: Ints = np.array([self._count(int(hour), ahead) for hour in each], dtype=np.int64)
        return counts[of]

    def _count(self, hour: int, ahead: int) -> int:
        key = hour, ahead
        if key not in self._counts:
            opens, closes = self._working
            local = [datetime.fromtimestamp((hour + n) * HOUR_S, self._zone) for n in range(ahead)]
            self._counts[key] = sum(
                at.weekday() < WEEKEND and opens <= at.hour < closes for at in local
            )
        return self._counts[key]


class ActivityHours:
    """The hours of all workloads, sorted by workload and hour, and the idle times in them."""

    def __init__(
        self,
        owner: Ints,
        hour: Ints,
        active: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
        kind: Ints,
        clock: WorkClock,
    ) -> None:
        self._owner, self._hour, self._active, self._kind = owner, hour, active, kind
        self._clock = clock
        self._cache: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._own_cache: dict[tuple[int, int], tuple[int, int]] = {}
        idle_times = self._find_idle_times()
        self._by_kind = {
            int(code): tuple(column[kind[idle_times[0]] == code] for column in idle_times)
            for code in np.unique(kind)
        }

    def rest_since(self, owner: int, now: int, start: int) -> int:
        """Return the hour since which a workload has been inactive, as known at `now`.

        If the window begins after the idle time did, `start`, the stretch's first hour, is too
        late.
        """
        low = int(np.searchsorted(self._owner, owner, side="left"))
        high = int(np.searchsorted(self._owner, owner, side="right"))
        high = low + int(np.searchsorted(self._hour[low:high], now, side="left"))
        active = np.flatnonzero(self._active[low:high])
        if len(active):
            return int(self._hour[low + active[-1]]) + 1
        return min(start, int(self._hour[low])) if high > low else start

    def exposures(self, owner: int, now: int, begin: int, ahead: int) -> tuple[int, int, int, int]:
        """Return exposures, returns, own days and own returns of an idle time from hour `begin`."""
        age = max(now - begin, 1)
        kind = int(self._kind[owner])
        key = (owner, now, age)
        if key not in self._cache:
            self._cache[key] = self._of_kind(owner, kind, now, age, ahead)
        if (owner, now) not in self._own_cache:
            self._own_cache[owner, now] = self._own(owner, now, ahead)
        others, returned = self._cache[key]
        days, own = self._own_cache[owner, now]
        lasted = 0 if returned or own else self._lasted(now, begin, ahead)
        return others + days + lasted, returned + own, days, own

    def _lasted(self, now: int, begin: int, ahead: int) -> int:
        """Count the consecutive horizons before `now` that an idle time lasted through."""
        since = np.arange(now - ahead, begin - 1, -ahead, dtype=np.int64)
        if len(since) and self._clock.working(np.array([now]), ahead)[0]:
            since = since[2 * self._clock.working(since, ahead) > ahead]
        return len(since)

    def _find_idle_times(self) -> IdleTimes:
        """Return runs of hours without activity: owner, begin, end (exclusive), ended by itself."""
        rest = ~self._active
        if not len(rest):
            none = np.empty(0, dtype=np.int64)
            return none, none, none, np.empty(0, dtype=bool)
        same = np.concatenate(
            [
                [False],
                (self._owner[1:] == self._owner[:-1]) & (self._hour[1:] == self._hour[:-1] + 1),
            ]
        )
        begins = np.flatnonzero(rest & ~(same & np.concatenate([[False], rest[:-1]])))
        after = np.concatenate([(same & rest)[1:], [False]])
        ends = np.flatnonzero(rest & ~after)
        following = np.minimum(ends + 1, len(rest) - 1)
        itself = (ends + 1 < len(rest)) & same[following] & self._active[following]
        return self._owner[begins], self._hour[begins], self._hour[ends] + 1, itself

    def _of_kind(self, owner: int, kind: int, now: int, age: int, ahead: int) -> tuple[int, int]:
        """Count others' idle times that had lasted this long, and those of them that then ended.

        Two ages count, so that their horizons do not overlap: `age`, and one horizon less, which is
        known a horizon earlier. An age less than half as long is no evidence for this one.
        """
        ages = [each for each in (age, age - ahead) if 2 * each >= age]
        counts = [self._at_age(owner, kind, now, each, ahead) for each in ages]
        return sum(n for n, _ in counts), sum(r for _, r in counts)

    def _at_age(self, owner: int, kind: int, now: int, age: int, ahead: int) -> tuple[int, int]:
        """Count others' idle times that had lasted `age` hours, and those that then ended.

        Only horizons whose result is known at hour `now` count: a complete one, or a return.
        """
        owners, begin, end, itself = self._by_kind[kind]
        reached = begin + age
        if self._clock.working(np.array([now]), ahead)[0]:
            same = 2 * self._clock.working(reached, ahead) > ahead
            owners, begin, end, itself, reached = (
                column[same] for column in (owners, begin, end, itself, reached)
            )
        known_end = np.minimum(end, now)
        old = (owners != owner) & (known_end >= reached) & (reached < now)
        ended = old & itself & (end < now) & (end < reached + ahead)
        # An idle time that lasted through the horizon, as known at `now`.
        stayed = old & (known_end >= reached + ahead)
        return int(ended.sum() + stayed.sum()), int(ended.sum())

    def _own(self, owner: int, now: int, ahead: int) -> tuple[int, int]:
        """Count earlier days of the same type on which it was idle before these hours, and returns.

        A day counts only with rows in the hour before and in these hours.
        """
        low = int(np.searchsorted(self._owner, owner, side="left"))
        high = int(np.searchsorted(self._owner, owner, side="right"))
        if low == high:
            return 0, 0
        hour, active = self._hour[low:high], self._active[low:high]
        first = int(hour[0])
        days = returned = 0
        for days_ago in range(1, (now - first) // DAY_H + 1):
            begin = now - days_ago * DAY_H
            if _is_weekend(begin) != _is_weekend(now):
                continue
            before, at, until = np.searchsorted(hour, [begin - 1, begin, min(begin + ahead, now)])
            if at == before or active[before] or until - at < min(ahead, now - begin):
                continue
            days += 1
            returned += bool(active[at:until].any())
        return days, returned


def _is_weekend(hour: int) -> bool:
    return (hour // DAY_H + THURSDAY) % 7 >= WEEKEND
