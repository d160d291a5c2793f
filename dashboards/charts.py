"""Charts: one palette, one look, for pages and reports. Altair only; nothing here draws a page.

Every colour has a contrast of 3 or more on white and on the dark page (a test says so), and no
meaning hangs on colour alone: bars are labelled, lines are named.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import altair as alt
import pyarrow as pa

from fallow.errors import FallowError

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart

STATE_COLOURS = {
    "productive": "#2f7de1",
    "low": "#0891b2",
    "startup": "#0d9488",
    "idle": "#d97706",
    "free": "#8b93a1",
    "stranded": "#64748b",
    "lost": "#dc2626",
    "unavailable": "#db2777",
    "unknown": "#8b5cf6",
}
"""Used blue and its neighbours, held idle amber, free grey, thrown away red, unknown violet."""
BLUE, AMBER, GREY, RED, VIOLET, GREEN = (
    "#2f7de1", "#d97706", "#8b93a1", "#dc2626", "#8b5cf6", "#16a34a",
)  # fmt: skip
SERIES = (BLUE, AMBER, "#0d9488", VIOLET, "#db2777", "#64748b", "#0891b2", RED, GREEN, GREY)
DAY: Literal["utcyearmonthdate"] = "utcyearmonthdate"
MOST_POINTS = 5000
LABEL_PX = 260
"""Widest label of an axis; the whole name is in the tooltip."""


def values(rows: pa.Table | Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Return rows as a chart's data: decimals as numbers, moments as ISO 8601 with `Z`.

    Raises:
        FallowError: more than `MOST_POINTS` rows: they must be aggregated before.
    """
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    if len(listed) > MOST_POINTS:
        raise FallowError(f"a chart of {len(listed):,} points is too many for a browser")
    return alt.InlineData(values=[{k: _value(v) for k, v in row.items()} for row in listed])


def state_scale(states: Sequence[str] | None = None) -> alt.Scale:
    """Return the colours of the ledger's states, in the order the story tells them."""
    chosen = [s for s in STATE_COLOURS if states is None or s in states]
    return alt.Scale(domain=chosen, range=[STATE_COLOURS[s] for s in chosen])


def states_over_time(rows: pa.Table, unit: str = "usd", height: int = 280) -> alt.Chart:
    """Stack what each state took per day: columns day, state and the unit's."""
    title, form = ("USD per day", "$,.0f") if unit == "usd" else ("GPU-hours per day", ",.0f")
    order = {state: n for n, state in enumerate(STATE_COLOURS)}
    listed = [{**row, "order": order.get(row["state"], 99)} for row in rows.to_pylist()]
    drawn: alt.Chart = (
        alt.Chart(values(listed))
        .mark_bar()
        .encode(
            x=alt.X("day:T", title=None, timeUnit=DAY, axis=alt.Axis(format="%d %b")),
            y=alt.Y(f"{unit}:Q", title=title, axis=alt.Axis(format=form)),
            color=alt.Color("state:N", title=None, scale=state_scale(), sort=[*STATE_COLOURS]),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("day:T", title="day", timeUnit=DAY),
                alt.Tooltip("state:N"),
                alt.Tooltip("gpu_hours:Q", title="GPU-hours", format=",.1f"),
                alt.Tooltip("usd:Q", title="USD", format=",.2f"),
            ],
        )
        .properties(height=height)
    )
    return drawn


def ranked_bars(
    rows: Sequence[Mapping[str, Any]],
    value: str = "usd",
    *,
    title: str = "USD",
    colour: str = BLUE,
    part: str | None = None,
    most: int = 15,
) -> Chart:
    """Draw the largest names as bars; `part` is a column whose share of the bar is amber."""
    listed = [*rows][:most]
    names = [str(row["name"]) for row in listed]
    base = alt.Chart(values(listed)).encode(
        y=alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelLimit=LABEL_PX)),
        tooltip=[
            alt.Tooltip("name:N"),
            alt.Tooltip(f"{value}:Q", title=title, format=",.2f"),
            *([alt.Tooltip(f"{part}:Q", title="of it idle", format=",.2f")] if part else []),
        ],
    )
    bars: Chart = base.mark_bar(color=colour).encode(
        x=alt.X(f"{value}:Q", title=title, axis=alt.Axis(format="~s"))
    )
    if part:
        bars = bars + base.mark_bar(color=AMBER).encode(x=alt.X(f"{part}:Q"))
    return bars.properties(height=max(120, 26 * len(listed) + 40))


def _value(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case datetime():
            return value.replace(tzinfo=None).isoformat() + "Z"
        case date():
            return value.isoformat()
        case _:
            return value
