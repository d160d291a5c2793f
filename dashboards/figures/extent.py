"""Find which time, clusters, teams and pools the warehouse has."""

from datetime import UTC, datetime, timedelta

import msgspec

from dashboards.figures.query import BY_HOUR, Filters, run_query
from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.window import Window

MOST_NAMES = 1000
"""Names that one filter offers: those of the most GPU-hours."""
MOST_EXAMPLES = 8


class DataExtent(msgspec.Struct, frozen=True):
    """Time from the first to the last sample, and the end of the newest accounted hour."""

    samples: Window
    accounted: datetime | None


def read_extent(views: Views) -> DataExtent | None:
    """Return the time that the warehouse covers; None = no sample of any device."""
    row = run_query(views, ("extent/bounds",), None).to_pylist()[0]
    first, last, hour = row["first_sample"], row["last_sample"], row["last_hour"]
    if first is None or last is None or last <= first:
        return None
    sample_window = Window(first.replace(tzinfo=UTC), last.replace(tzinfo=UTC))
    if hour is None:
        return DataExtent(sample_window, None)
    return DataExtent(
        sample_window, min(hour.replace(tzinfo=UTC) + timedelta(hours=1), sample_window.end)
    )


def read_names(
    views: Views,
    window: Window,
    filters: Filters = Filters(),  # noqa: B008  (frozen)
) -> dict[str, tuple[str, ...]]:
    """Return the names of clusters, teams, namespaces, models and pools, the largest first."""
    rows = run_query(
        views, (*BY_HOUR, "extent/names"), window, filters, most=MOST_NAMES
    ).to_pylist()
    names_by_kind: dict[str, list[str]] = {}
    for row in rows:
        names_by_kind.setdefault(row["key"], []).append(row["name"])
    return {key: tuple(values) for key, values in names_by_kind.items()}


def require_names(views: Views, window: Window, **wanted: str | None) -> None:
    """Check that a cluster, a team, ... held a GPU in this window; None is not checked.

    Raises:
        UsageError: it held none.
    """
    there = {} if set(wanted.values()) == {None} else read_names(views, window)
    for label, name in wanted.items():
        names = there.get(label, ())
        if name is not None and name not in names:
            examples = ", ".join(names[:MOST_EXAMPLES]) + ", ..." * (len(names) > MOST_EXAMPLES)
            raise UsageError(
                f"no {label} {name!r} held a GPU in this window",
                hint=f"{label}s: {examples or 'none'}",
            )
