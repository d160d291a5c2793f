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

import itertools
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from analyzers.idle.findings import decide_kind
from analyzers.idle.rows import read_idle_power
from analyzers.idle.spans import WORKLOAD
from analyzers.queries import compose_steps
from fallow.gpu_models import read_gpu_models
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.signals.runs import Ints
from warehouse.steps import SERVING_LOAD

HOUR_US = 3_600_000_000
HOUR_S = 3600
HOUR_BITS = 32
"""An hour since 1970 and whether a workload was active in it, as in `workload_hours.sql`."""
DAY_H = 24
WEEKEND = 5
"""Weekdays from this number on, Monday = 0, are no workdays."""
THURSDAY = 3
"""The day of the week of 1970-01-01."""

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


class HourReader:
    """The hours of all workloads until a time: each is read once, for all judgements of then."""

    def __init__(self, views: Views, until: datetime) -> None:
        self._views, self._until = views, until
        self._first = until
        self._parts: list[pl.DataFrame] = []

    def read(self, since: datetime, settings: IdleSettings) -> pl.DataFrame:
        """Return the names of `WORKLOAD` and `hours` from a time on, no later than before.

        A workload may have several rows; an item of `hours` is as in `workload_hours.sql`.
        """
        if since < self._first or not self._parts:
            self._parts.append(self._query(since, settings))
            self._first = since
        return pl.concat(self._parts)

    def _query(self, since: datetime, settings: IdleSettings) -> pl.DataFrame:
        table = self._views.query(
            compose_steps(SERVING_LOAD, "idle/workload_hours"),
            {
                **Window(since, self._until).bounds(),
                "before": self._first.astimezone(UTC).replace(tzinfo=None),
                "exit_threshold": max(settings.exit_threshold, settings.threshold),
                "models": [*self._bands_w],
                "limits_w": [watts + settings.power_margin_w for watts in self._bands_w.values()],
            },
        )
        return pl.DataFrame(table)

    @cached_property
    def _bands_w(self) -> dict[str, float]:
        """Idle power by model: what accounting has learned, else what the model's table has."""
        bands_w = {model.gpu_model: model.idle_context_w for model in read_gpu_models()}
        powers = read_idle_power(self._views, [self._until])
        return bands_w | {row.gpu_model: row.band_w for row in powers}


def add_return_probability(
    hours: HourReader, begin: datetime, rows: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add `wanted` (0-1) and `exposures`, `returns`, `own_days` and `own_returns` behind it.

    `rows` have row, the names of `WORKLOAD`, kind, state, start, end, at and slack_us
    (microseconds); `begin` is that of the history. The columns are null for workloads that are
    not idle, for stretches that ended more than their slack before their time, and where the
    settings have no horizon.
    """
    horizon = settings.min_expected_rest
    lasts = pl.col("end") >= pl.col("at") - pl.col("slack_us")
    lasting = rows.filter((pl.col("state") == "idle") & lasts)
    if horizon is None or lasting.is_empty():
        return rows.with_columns(
            wanted=pl.lit(None, dtype=pl.Float64),
            **{name: pl.lit(None, dtype=pl.Int64) for name in COUNTS},
        )
    owners, activity_hours = _read_activity_hours(hours.read(begin, settings), rows, settings)
    ahead = max(1, round(horizon / timedelta(hours=1)))
    mine = lasting.select("row", "start", "at", *WORKLOAD).join(
        owners.select("number", *WORKLOAD), on=WORKLOAD, nulls_equal=True
    )
    owner, now = mine["number"].to_numpy(), (mine["at"] // HOUR_US).to_numpy()
    since = activity_hours.rest_since(owner, now, -(-mine["start"] // HOUR_US).to_numpy())
    counts = activity_hours.count_exposures(owner, now, since, ahead)
    estimates = pl.DataFrame(
        {"row": mine["row"], **{name: counts[:, n] for n, name in enumerate(COUNTS)}}
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


def _read_activity_hours(
    hours: pl.DataFrame, rows: pl.DataFrame, settings: IdleSettings
) -> "tuple[pl.DataFrame, ActivityHours]":
    """Return the workloads (`number`, names) and all their hours, those of the history too."""
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
    each = hours.select("number", "hours").explode("hours")
    number_and_hour = np.sort((each["number"].to_numpy() << HOUR_BITS) + each["hours"].to_numpy())
    hour_and_activity = number_and_hour & ((1 << HOUR_BITS) - 1)
    activity_hours = ActivityHours(
        number_and_hour >> HOUR_BITS,
        hour_and_activity >> 1,
        hour_and_activity & 1 != 0,
        kind_of_owner,
        WorkClock(settings.working_hours, settings.time_zone),
    )
    return owners, activity_hours


COUNTS = ("exposures", "returns", "own_days", "own_returns")

MOST_PAIRS = 2_000_000
"""Pairs of a question and an idle time of its own workload that are compared at once."""


class WorkClock:
    """The working hours: Monday to Friday, in the local time of a site."""

    def __init__(self, working: tuple[int, int], zone: str) -> None:
        self._working, self._zone = working, ZoneInfo(zone)
        self._hours: dict[int, bool] = {}

    def working(self, hours: Ints, ahead: int) -> Ints:
        """Return how many of the `ahead` hours from each hour on are working hours."""
        if not len(hours):
            return hours
        first = int(hours.min())
        span = range(first, int(hours.max()) + ahead)
        sums = np.cumsum([0, *map(self._is_working, span)], dtype=np.int64)
        counts: Ints = sums[hours - first + ahead] - sums[hours - first]
        return counts

    def _is_working(self, hour: int) -> bool:
        if hour not in self._hours:
            opens, closes = self._working
            at = datetime.fromtimestamp(hour * HOUR_S, self._zone)
            self._hours[hour] = at.weekday() < WEEKEND and opens <= at.hour < closes
        return self._hours[hour]


class IdleTimes(NamedTuple):
    """Runs of hours without activity, as columns: the longest first, or by workload."""

    owner: Ints
    begin: Ints
    end: Ints
    """The hour after the last."""
    itself: Flags
    """Whether activity ended it, not the end of the rows."""

    def select(self, chosen: "Flags | Ints | slice") -> "IdleTimes":
        """Return the chosen rows."""
        return IdleTimes(
            self.owner[chosen], self.begin[chosen], self.end[chosen], self.itself[chosen]
        )


class _Hours(NamedTuple):
    """Facts about each hour from `first` on, for one horizon."""

    first: int
    extent: int
    workday: Flags
    """Whether any of the horizon's hours is a working hour."""
    working: Flags
    """Whether more than half of them are."""
    horizons: Ints
    """How many of this hour and the ones before it, each a horizon apart, are `working`."""


class ActivityHours:
    """The hours of all workloads, sorted by workload and hour, and the idle times in them.

    Questions are arrays of equal length. An answer costs the same for few and for many idle times:
    they are counted once per kind and age, for all hours.
    """

    def __init__(
        self, owner: Ints, hour: Ints, active: Flags, kind: Ints, clock: WorkClock
    ) -> None:
        self._owner, self._hour, self._active, self._kind = owner, hour, active, kind
        self._clock = clock
        self._origin = int(hour.min()) if len(hour) else 0
        self._wide = int(hour.max()) - self._origin + 2 if len(hour) else 1
        self._key = owner * self._wide + hour - self._origin
        self._idle_times = self._find_idle_times()

    def rest_since(self, owner: Ints, now: Ints, start: Ints) -> Ints:
        """Return the hour since which workloads have been inactive, as known at `now`.

        If the window begins after the idle time did, `start`, the stretch's first hour, is too
        late.
        """
        if not len(self._hour):
            return start
        low, high = np.searchsorted(self._owner, owner), self._find_row(owner, now)
        place = np.minimum(low, len(self._hour) - 1)
        last = np.maximum.accumulate(np.where(self._active, np.arange(len(self._hour)), -1))
        latest = np.where(high > low, last[np.maximum(high - 1, 0)], -1)
        earliest = np.where(high > low, np.minimum(start, self._hour[place]), start)
        since: Ints = np.where(latest >= low, self._hour[np.maximum(latest, 0)] + 1, earliest)
        return since

    def count_exposures(self, owner: Ints, now: Ints, begin: Ints, ahead: int) -> Ints:
        """Return exposures, returns, own days and own returns of idle times from `begin` on.

        One row per question, in the columns of `COUNTS`.
        """
        if not len(owner):
            return np.zeros((0, len(COUNTS)), dtype=np.int64)
        facts = self._describe_hours(now, begin, ahead)
        age = np.maximum(now - begin, 1)
        others = self._count_others(owner, now, age, ahead, facts)
        # Two ages count, so that their horizons do not overlap: the second is known a horizon
        # earlier. An age less than half as long is no evidence for this one.
        also = np.flatnonzero(2 * (age - ahead) >= age)
        others[also] += self._count_others(owner[also], now[also], age[also] - ahead, ahead, facts)
        own = self._count_own_days(owner, now, ahead)
        lasted = _count_lasted(now, begin, ahead, facts)
        alone = (others[:, 1] == 0) & (own[:, 1] == 0)
        exposures = others[:, 0] + own[:, 0] + np.where(alone, lasted, 0)
        counts: Ints = np.column_stack([exposures, others[:, 1] + own[:, 1], own])
        return counts

    def _find_row(self, owner: Ints, hour: Ints) -> Ints:
        """Return the first row of each workload from an hour on."""
        inside = np.clip(hour - self._origin, 0, self._wide - 1)
        return np.searchsorted(self._key, owner * self._wide + inside)

    def _find_idle_times(self) -> IdleTimes:
        rest = ~self._active
        if not len(rest):
            none = np.empty(0, dtype=np.int64)
            return IdleTimes(none, none, none, np.empty(0, dtype=bool))
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
        return IdleTimes(self._owner[begins], self._hour[begins], self._hour[ends] + 1, itself)

    def _describe_hours(self, now: Ints, begin: Ints, ahead: int) -> _Hours:
        rows = [self._origin] if len(self._hour) else []
        first = min(*rows, int(begin.min()), int(now.min())) - ahead
        count = max(self._origin + self._wide, int(now.max())) - first + ahead + 1
        working = self._clock.working(np.arange(first, first + count), ahead)
        mostly = 2 * working > ahead
        horizons = np.pad(mostly.astype(np.int64), (0, -count % ahead)).reshape(-1, ahead)
        return _Hours(first, count, working > 0, mostly, horizons.cumsum(axis=0).ravel())

    def _count_others(self, owner: Ints, now: Ints, age: Ints, ahead: int, facts: _Hours) -> Ints:
        """Count others' idle times of the kind that had lasted `age` hours, and those that ended.

        Only horizons whose result is known at hour `now` count: a complete one, or a return.
        Columns: exposures, returns.
        """
        counts = np.zeros((len(owner), 2), dtype=np.int64)
        filtered = facts.workday[now - facts.first]
        group = (self._kind[owner] * 2 + filtered) * facts.extent + age
        order = np.argsort(group, kind="stable")
        begins = np.flatnonzero(np.diff(group[order], prepend=-1))
        by_kind: dict[int, IdleTimes] = {}
        for low, high in itertools.pairwise([*begins, len(order)]):
            chosen, first = order[low:high], order[low]
            kind = int(self._kind[owner[first]])
            if kind not in by_kind:
                by_kind[kind] = self._sort_by_length(kind)
            counts[chosen] = _count_at_age(
                by_kind[kind], now[chosen], int(age[first]), ahead, facts, filtered=filtered[first]
            )
        return counts - self._count_own_times(owner, now, age, ahead, facts)

    def _sort_by_length(self, kind: int) -> IdleTimes:
        times = self._idle_times.select(self._kind[self._idle_times.owner] == kind)
        return times.select(np.argsort(times.begin - times.end, kind="stable"))

    def _count_own_times(
        self, owner: Ints, now: Ints, age: Ints, ahead: int, facts: _Hours
    ) -> Ints:
        """Count the same of the workloads themselves."""
        counts = np.zeros((len(owner), 2), dtype=np.int64)
        times = self._idle_times
        low = np.searchsorted(times.owner, owner)
        size = np.searchsorted(times.owner, owner, side="right") - low
        total = np.cumsum(size)
        for part in np.split(
            np.arange(len(owner)), np.flatnonzero(np.diff(total // MOST_PAIRS)) + 1
        ):
            chosen = np.repeat(part, size[part])
            within = np.arange(len(chosen)) - np.repeat(
                np.cumsum(size[part]) - size[part], size[part]
            )
            each = times.select(low[chosen] + within)
            old = each.end - each.begin >= age[chosen]
            reached = np.where(old, each.begin + age[chosen], facts.first)
            old &= ~facts.workday[now[chosen] - facts.first] | facts.working[reached - facts.first]
            late = each.end - each.begin >= age[chosen] + ahead
            ended = old & each.itself & ~late & (each.end < now[chosen])
            stayed = old & late & (reached + ahead <= now[chosen])
            counts[:, 0] += np.bincount(chosen[ended | stayed], minlength=len(owner))
            counts[:, 1] += np.bincount(chosen[ended], minlength=len(owner))
        return counts

    def _count_own_days(self, owner: Ints, now: Ints, ahead: int) -> Ints:
        """Count earlier days of the same type on which it was idle before these hours, and returns.

        A day counts only with rows in the hour before and in these hours. Columns: days, returns.
        """
        counts = np.zeros((len(owner), 2), dtype=np.int64)
        if not len(self._hour):
            return counts
        # A horizon of more than a day is cut at `now`: these days are counted one by one.
        cut_days = (ahead - 1) // DAY_H
        for days_ago in range(1, cut_days + 1):
            begin = now - days_ago * DAY_H
            before = self._find_row(owner, begin - 1)
            place = np.minimum(before, len(self._hour) - 1)
            there = (self._owner[place] == owner) & (self._hour[place] == begin - 1)
            day, returned = self._judge_days(place, begin, np.minimum(begin + ahead, now))
            day &= there & (_is_weekend(begin) == _is_weekend(now))
            counts += np.column_stack([day, day & returned])
        begin = self._hour + 1
        day, returned = self._judge_days(np.arange(len(begin)), begin, begin + ahead)
        wide = self._wide // DAY_H + 2

        def number(of: Ints, hour: Ints, weekend: Flags) -> Ints:
            days = np.clip((hour - self._origin) // DAY_H + 1, 0, wide - 1)
            return ((of * DAY_H + hour % DAY_H) * 2 + weekend) * wide + days

        key = number(self._owner, begin, _is_weekend(begin))
        order = np.argsort(key, kind="stable")
        last = now - (cut_days + 1) * DAY_H
        high = np.searchsorted(key[order], number(owner, last, _is_weekend(now)), side="right")
        low = np.searchsorted(key[order], number(owner, last, _is_weekend(now)) // wide * wide)
        for column, flags in enumerate((day, day & returned)):
            total = np.concatenate([[0], np.cumsum(flags[order])])
            counts[:, column] += total[high] - total[low]
        return counts

    def _judge_days(self, before: Ints, begin: Ints, until: Ints) -> tuple[Flags, Flags]:
        """Return whether the hours from `begin` on are a day, and whether it returned in them.

        `before` is the row of the hour before.
        """
        owner = self._owner[before]
        end = self._find_row(owner, until)
        total = np.concatenate([[0], np.cumsum(self._active)])
        whole = end - before - 1 >= until - begin
        return ~self._active[before] & whole, total[end] - total[before + 1] > 0


def _count_at_age(
    times: IdleTimes, now: Ints, age: int, ahead: int, facts: _Hours, *, filtered: bool
) -> Ints:
    """Count idle times, the longest first, that had lasted `age`; see `_count_others`."""
    length = times.begin - times.end
    high = int(np.searchsorted(length, -age, side="right"))
    middle = int(np.searchsorted(length, -age - ahead, side="right"))
    lasted, ended = times.select(slice(0, middle)), times.select(slice(middle, high))
    ended = ended.select(ended.itself)
    if filtered:
        lasted, ended = (
            part.select(facts.working[part.begin + age - facts.first]) for part in (lasted, ended)
        )
    stayed = _count_until(lasted.begin + age + ahead, facts)
    returned = _count_until(ended.end + 1, facts)
    at = now - facts.first
    return np.column_stack([stayed[at] + returned[at], returned[at]])


def _count_until(hour: Ints, facts: _Hours) -> Ints:
    """Return, for each hour, how many of the given ones are not after it."""
    counted: Ints = np.cumsum(np.bincount(hour - facts.first, minlength=facts.extent))
    return counted


def _count_lasted(now: Ints, begin: Ints, ahead: int, facts: _Hours) -> Ints:
    """Count the consecutive horizons before `now` that an idle time lasted through."""
    count = np.maximum((now - begin) // ahead, 0)
    last, first = now - ahead - facts.first, now - ahead * (count + 1) - facts.first
    mostly = facts.horizons[last] - facts.horizons[first]
    workday = facts.workday[now - facts.first]
    lasted: Ints = np.where(count == 0, 0, np.where(workday, mostly, count))
    return lasted


def _is_weekend(hour: Ints) -> Flags:
    weekend: Flags = (hour // DAY_H + THURSDAY) % 7 >= WEEKEND
    return weekend
