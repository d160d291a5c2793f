"""What there is to look at: from when to when, whose, and whether the books balance."""

from datetime import UTC, datetime, timedelta

import msgspec

from dashboards.figures.asking import Filters, ask
from fallow.seams import Views
from fallow.window import Window

MOST_NAMES = 1000
"""Names that one filter offers: those of the most GPU-hours."""


class Extent(msgspec.Struct, frozen=True):
    """From the first look to the end of the last, and the end of the newest accounted hour."""

    looks: Window
    accounted: datetime | None


def extent(views: Views) -> Extent | None:
    """Return what the warehouse holds; None = no look at any device."""
    row = ask(views, ("extent/held",), None).to_pylist()[0]
    first, last, hour = row["first_look"], row["last_look"], row["last_hour"]
    if first is None or last is None or last <= first:
        return None
    looks = Window(first.replace(tzinfo=UTC), last.replace(tzinfo=UTC))
    if hour is None:
        return Extent(looks, None)
    return Extent(looks, min(hour.replace(tzinfo=UTC) + timedelta(hours=1), looks.end))


def names(views: Views, window: Window) -> dict[str, tuple[str, ...]]:
    """Return the names of clusters, teams, namespaces, models and pools, the largest first."""
    rows = ask(views, ("paid", "extent/names"), window, Filters(), most=MOST_NAMES).to_pylist()
    made: dict[str, list[str]] = {}
    for row in rows:
        made.setdefault(row["key"], []).append(row["name"])
    return {key: tuple(values) for key, values in made.items()}
