"""Find where relative windows end, and measure how many of their hours have data."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.tables import Batch, get_schema
from fallow.window import (
    Window,
    format_duration,
    get_month_start,
    parse_duration,
    parse_timestamp,
)
from warehouse.steps import load_step

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
MONTH, LAST_MONTH = MONTHS = ("month", "last-month")
"""Windows that are calendar months: this one so far, and the whole one before it."""
STALE = 3
"""Intervals after which data are stale. One late scrape must not make them stale."""


MOST_NODES = 5
"""Nodes with unseen GPUs that one line names."""


class NewestHour(msgspec.Struct, frozen=True):
    """The end of the newest hour that every cluster has, except the clusters that are too late.

    `behind`: the late clusters, each with the end of its own newest hour.
    """

    end: datetime
    behind: dict[str, datetime]


class LateCluster(msgspec.Struct, frozen=True):
    """A cluster that is too far behind: the end of its hours, and how many are in the window."""

    cluster: str
    end: datetime
    hours_with_data: int


class WindowCoverage(msgspec.Struct, frozen=True):
    """How many hours a window has, how many of them have data, and which clusters lack the rest.

    `hours_with_data` have data of every cluster that has any in the window and is not late.
    `absent`: the warehouse's other clusters, which have none.
    """

    hours: int
    hours_with_data: int
    behind: tuple[LateCluster, ...] = ()
    clusters: dict[str, int] = {}
    """By cluster how many hours have its data."""
    absent: tuple[str, ...] = ()

    @property
    def spoken(self) -> str:
        """Return a sentence about how many hours have data, and of which clusters."""
        late, count = {cluster.cluster for cluster in self.behind}, self._count_clusters()
        counted = len(self.clusters.keys() - late)
        scope = f" of all {count} clusters" if self._list_lacking() else ""
        if counted < count:
            scope = f" of {counted} of {count} clusters"
        return f"{self.hours_with_data} of {self.hours} h have data{scope}"

    def _count_clusters(self) -> int:
        late = {cluster.cluster for cluster in self.behind}
        return len(self.clusters.keys() | late | {*self.absent})

    def _list_lacking(self) -> list[tuple[str, int]]:
        """Return the clusters with fewer hours than the window, where there are several."""
        late = {cluster.cluster for cluster in self.behind}
        hours = {**self.clusters, **dict.fromkeys(self.absent, 0)}
        lacking = [item for item in hours.items() if item[0] not in late]
        several = self._count_clusters() > 1
        return [item for item in lacking if several and item[1] < self.hours]

    def late(self, now: datetime, name: Callable[[str], str] = str) -> list[str]:
        """Name each cluster that is behind, with its last hour and the hours that the total lacks.

        `name` escapes a name from outside, so that the place that shows the line treats it as text.
        """
        return [
            f"cluster {name(late_cluster.cluster)} is behind: its last hour ended "
            f"{late_cluster.end:%Y-%m-%d %H:%M} UTC, "
            f"{format_duration((now - late_cluster.end).total_seconds())} ago; "
            f"{late_cluster.hours_with_data} of {self.hours} h have data, "
            "and the totals lack the others"
            for late_cluster in self.behind
        ] + [
            f"cluster {name(cluster)}: {hours} of {self.hours} h have data, "
            "and the totals lack the others"
            for cluster, hours in self._list_lacking()
        ]


class ClusterAge(msgspec.Struct, frozen=True):
    """When a cluster's newest sample ended (UTC), and the interval of its samples."""

    cluster: str
    newest: datetime
    interval: timedelta

    def stale(self, now: datetime, every: timedelta) -> bool:
        """Return whether the newest sample is older than three intervals, or than three `every`."""
        return now - self.newest > STALE * max(self.interval, every)


def find_extent(views: Views, cluster: str | None = None) -> Window | None:
    """Return the time from the first sample of any device to the last; None = no sample."""
    row = views.query(load_step("coverage/extent"), {"cluster": cluster}).to_pylist()[0]
    if row["first"] is None or row["last"] is None or row["last"] <= row["first"]:
        return None
    return Window(row["first"].replace(tzinfo=UTC), row["last"].replace(tzinfo=UTC))


def list_clusters(views: Views, *, has_telemetry: bool = False) -> list[str]:
    """Return the clusters that have telemetry (or else an inventory), by name."""
    rows = views.query(load_step("coverage/clusters")).to_pylist()
    return [str(row["cluster"]) for row in rows if row["has_telemetry"] or not has_telemetry]


def require_cluster(views: Views, cluster: str | None) -> None:
    """Check that a cluster has data, if any has; None is not checked.

    Raises:
        UsageError: it has none.
    """
    names = list_clusters(views) if cluster is not None else []
    if names and cluster not in names:
        raise UsageError(f"no data of cluster {cluster!r}", hint=f"clusters: {', '.join(names)}")


def require_data(window: Window, extent: Window, cluster: str | None = None) -> None:
    """Check that a window touches the data.

    Raises:
        UsageError: it lies before or after them.
    """
    if window.start < extent.end and window.end > extent.start:
        return
    last = Window(max(extent.start, extent.end - WEEK), extent.end)
    times = (last.start, last.end + timedelta(seconds=59))
    start, end = (at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M") for at in times)
    scope = f" of cluster {cluster!r}" if cluster else ""
    raise UsageError(
        f"no data{scope} from {format_span(window)}; data are from {format_span(extent)}",
        hint=f"their last days: --window {start}/{end}",
    )


def format_span(window: Window) -> str:
    """Return the start and end of a window as a short text."""
    return f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"


def sum_covered_hours(views: Views, window: Window, cluster: str | None = None) -> float:
    """Return how many hours of a window are accounted, the first and the newest in part."""
    step = load_step("coverage/covered_hours")
    sql = f"SELECT coalesce(sum(covered_s), 0) / 3600 AS hours FROM ({step})"
    parameters = {**window.whole().bounds(), "cluster": cluster}
    return float(views.query(sql, parameters)["hours"][0].as_py())


def read_ages(views: Views, cluster: str | None = None) -> tuple[ClusterAge, ...]:
    """Return how old each cluster's samples are."""
    rows = views.query(load_step("coverage/ages"), {"cluster": cluster}).to_pylist()
    return tuple(
        ClusterAge(
            row["cluster"],
            row["newest"].replace(tzinfo=UTC),
            timedelta(seconds=row["interval_s"] or 0),
        )
        for row in rows
        if row["newest"] is not None
    )


def name_stale(
    ages: Sequence[ClusterAge], now: datetime, every: timedelta, name: Callable[[str], str] = str
) -> list[str]:
    """Name each cluster whose data are stale, and since when.

    `every`: how often samples are collected. `name`: as in `WindowCoverage.late`.
    """
    return [
        f"the data of cluster {name(age.cluster)} are stale: the newest sample is "
        f"{format_duration((now - age.newest).total_seconds())} old "
        f"({age.newest:%Y-%m-%d %H:%M} UTC), more than three intervals"
        for age in ages
        if age.stale(now, every)
    ]


def build_history_mark(cluster: str, since: datetime, now: datetime) -> Batch:
    """Return the `cursor` row that says: a cluster's history from `since` to `now` is read."""
    source = f"{_name_history(cluster)}{since:%Y-%m-%dT%H:%MZ}"
    row = {"source": [source], "done_until": [now.replace(tzinfo=None)]}
    return Batch("cursor", pa.table(row, get_schema("cursor")))


def _name_history(cluster: str) -> str:
    """Return how the names of the cursors begin that say from when a cluster's history is read."""
    return f"history of cluster {cluster} since "


def describe_unread_history(views: Views, cluster: str, wanted: timedelta) -> str | None:
    """Say that a cluster's history is not read yet, and what reads it; None = it is."""
    parameters = {"cluster": cluster, "prefix": _name_history(cluster)}
    first = views.query(load_step("coverage/unread_since"), parameters)["first"][0].as_py()
    if first is None:
        return None
    return (
        f"hours before {first:%Y-%m-%d %H:%M} UTC are not read yet: fallow up reads "
        f"{format_duration(wanted.total_seconds())} of its Prometheus, newest first"
    )


def count_unseen_gpus(views: Views, window: Window, cluster: str | None = None) -> int:
    """Return how many GPUs are paid and shown by no exporter, in the newest hour of a window."""
    return int(
        next(row for row in _read_unseen(views, window, cluster) if row["node"] is None)["unseen"]
    )


def _read_unseen(views: Views, window: Window, cluster: str | None) -> list[dict[str, Any]]:
    """Return the rows of the nodes with unseen GPUs, and one of all nodes (node null)."""
    parameters = {**window.bounds(), "cluster": cluster}
    rows: list[dict[str, Any]] = views.query(
        load_step("coverage/unseen_gpus"), parameters
    ).to_pylist()
    return rows


def describe_unseen_gpus(
    views: Views, window: Window, cluster: str | None = None, name: Callable[[str], str] = str
) -> str | None:
    """Say how many GPUs are paid, how many seen, and on which nodes the others are; None = all.

    `name`: as in `WindowCoverage.late`.
    """
    rows = _read_unseen(views, window, cluster)
    nodes = [
        f"{name(row['node'])}: {row['unseen']} without telemetry"
        + (f", held by {', '.join(map(name, row['holders']))}" if row["holders"] else "")
        for row in rows
        if row["node"] is not None
    ]
    whole = next(row for row in rows if row["node"] is None)
    if not nodes:
        return None
    more = f"; {len(nodes) - MOST_NODES} more nodes" if len(nodes) > MOST_NODES else ""
    seen = whole["paid"] - whole["unseen"]
    return f"{whole['paid']} GPUs paid, {seen} seen; {'; '.join(nodes[:MOST_NODES])}{more}"


def find_newest(views: Views, lag: timedelta, cluster: str | None = None) -> NewestHour | None:
    """Return where relative windows end: clusters more than `lag` behind do not count.

    None = the ledger has no hour.
    """
    rows = views.query(load_step("coverage/newest"), {"cluster": cluster}).to_pylist()
    ends = {row["cluster"]: row["hour"].replace(tzinfo=UTC) + HOUR for row in rows}
    if not ends:
        return None
    last = max(ends.values())
    near = [end for end in ends.values() if last - end <= lag]
    # Hours are whole: a five-minute bucket in the ledger means that its hour has data.
    end = min(near).replace(minute=0, second=0, microsecond=0)
    return NewestHour(end, {name: at for name, at in ends.items() if last - at > lag})


def measure_coverage(
    views: Views, window: Window, behind: dict[str, datetime], cluster: str | None = None
) -> WindowCoverage:
    """Return how many hours of a window have data, in total and per late cluster."""
    whole = window.whole()
    late = {name: end for name, end in behind.items() if end < whole.end}
    rows = views.query(
        load_step("coverage/hours"), {**whole.bounds(), "cluster": cluster, "late": [*late]}
    ).to_pylist()
    hours_by_cluster = {row["cluster"]: row["hours"] for row in rows}
    clusters = {name: hours for name, hours in hours_by_cluster.items() if name is not None}
    others = list_clusters(views, has_telemetry=True) if cluster is None else []
    return WindowCoverage(
        hours=round(whole.seconds / HOUR.total_seconds()),
        hours_with_data=hours_by_cluster.get(None, 0),
        behind=tuple(
            LateCluster(name, end, hours_by_cluster.get(name, 0)) for name, end in late.items()
        )
        if clusters.keys() - late
        else (),
        clusters=clusters,
        absent=tuple(name for name in others if name not in clusters and name not in late),
    )


def parse_window(text: str, now: datetime, end: datetime) -> Window:
    """Read `7d` (this long until `end`), a month or `START/END`.

    `month`: the calendar month (UTC) of `end`, until `end`; `last-month`: the whole one before it.
    START and END: timestamps, `now`, or durations ago.

    Raises:
        UsageError: the text is none of these, or the window is empty.
    """
    if text in MONTHS:
        first = _find_month(end)
        return Window(first, end) if text == MONTH else Window(_find_month(first), first)
    if "/" not in text:
        try:
            return Window.last(parse_duration(text), now=end)
        except UsageError as error:
            months = ", ".join(MONTHS)
            hint = f"windows: 7d and other durations, {months}, 2026-11-01/2026-11-16 (UTC)"
            raise UsageError(error.message, hint=hint) from error
    start, _, until = text.partition("/")
    return Window(parse_timestamp(start, now=now), parse_timestamp(until or "now", now=now))


def _find_month(end: datetime) -> datetime:
    """Return the first midnight of the month that ends at a time or is not over yet."""
    return get_month_start(end - timedelta(microseconds=1))
