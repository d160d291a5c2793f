"""Draw charts with one palette and one style, for pages and reports. Altair only, no page.

Every colour has a contrast of 3 or more on white and on the dark page (a test checks it). No
meaning depends on colour alone: bars have labels, lines have names.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import altair as alt
import pyarrow as pa

from dashboards.text import NO_PRICE, format_three_digits
from fallow.errors import FallowError
from fallow.texts import spell_out

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart

STATE_COLOURS = {
    "productive": "#3877cb",
    "low": "#299dd7",
    "startup": "#347607",
    "idle": "#d37f3c",
    "free": "#8f9597",
    "stranded": "#986e67",
    "lost": "#e00311",
    "unavailable": "#bb2797",
    "unknown": "#7b2bfc",
}
"""One colour for each state of the ledger, the same on every page.

Any two are at least 0.085 apart in OKLab, also as the three colour blindnesses see them; each has a
contrast of at least 3 with both backgrounds (WCAG 2.2, 1.4.11).
"""
BLUE, AMBER, GREY, RED, VIOLET, GREEN, SLATE = (
    "#2f7de1", "#d97706", "#8b93a1", "#dc2626", "#8b5cf6", "#16a34a", "#64748b",
)  # fmt: skip
ALLOCATED = GREEN
"""All states that hold a GPU, as one."""
SERIES = (BLUE, AMBER, "#0d9488", VIOLET, "#db2777", "#64748b", "#0891b2", RED, GREEN, GREY)
DAY: Literal["utcyearmonthdate"] = "utcyearmonthdate"
HOUR: Literal["utcyearmonthdatehours"] = "utcyearmonthdatehours"
LEAST_WITH_SI, LEAST_WHOLE = 10_000, 10
"""Axes of smaller amounts have no SI prefix: m for a thousandth reads as a million."""
MOST_POINTS = 5000
LABEL_PX = 260
"""Widest label of an axis; the whole name is in the tooltip."""
NAMES = alt.Axis(labelLimit=LABEL_PX, labelOverlap=False)
PLAIN_ZERO = "datum.value ? datum.label : replace(datum.label, /[a-zA-Z]$/, '')"
"""Nothing is 0, where thousands are 5k."""
WRAPPED = alt.ExprRef("width < 500 ? 3 : 9")
"""Columns of a legend above a chart: a phone shows three."""


def build_values(rows: pa.Table | Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Return rows as a chart's data: decimals as numbers, timestamps as ISO 8601 with `Z`.

    Raises:
        FallowError: more than `MOST_POINTS` rows: they must be aggregated before.
    """
    records = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    if len(records) > MOST_POINTS:
        raise FallowError(f"a chart of {len(records):,} points is too many for a browser")
    inline = alt.InlineData(values=[])
    # Rows that are set later are not checked against the schema, and a tuple is not copied with
    # each layer of a chart: both took 0.8 s of CPU for 3,000 cells.
    inline["values"] = tuple({k: _convert_value(v) for k, v in row.items()} for row in records)
    return inline


def build_state_scale(states: Sequence[str] | None = None) -> alt.Scale:
    """Return the colours of the ledger's states, in the order of the story."""
    states_chosen = [s for s in STATE_COLOURS if states is None or s in states]
    return alt.Scale(domain=states_chosen, range=[STATE_COLOURS[s] for s in states_chosen])


def draw_states_over_time(rows: pa.Table, unit: str = "usd", height: int = 280) -> Chart:
    """Stack what each state took per day, with the allocated share of the hours as a line.

    Columns: day, state, gpu_hours, usd, allocated_gpu_hours (without it there is no line).
    """
    title, form = ("USD per day", "$,.0f") if unit == "usd" else ("GPU-hours per day", ",.0f")
    order = {state: n for n, state in enumerate(STATE_COLOURS)}
    records = [{**row, "order": order.get(row["state"], 99)} for row in rows.to_pylist()]
    used = {str(row["state"]) for row in records}
    base = alt.Chart(build_values(records)).encode(
        x=alt.X("day:T", title=None, timeUnit=DAY, axis=alt.Axis(format="%d %b"))
    )
    bars = base.mark_bar().encode(
        y=alt.Y(f"{unit}:Q", title=title, axis=alt.Axis(format=form, labelExpr=PLAIN_ZERO)),
        color=alt.Color(
            "state:N",
            title=None,
            scale=build_state_scale([*used]),
            legend=alt.Legend(orient="top", columns=WRAPPED),
        ),
        order=alt.Order("order:Q"),
        tooltip=[
            alt.Tooltip("day:T", title="day", timeUnit=DAY),
            alt.Tooltip("state:N"),
            alt.Tooltip("gpu_hours:Q", title="GPU-hours", format=",.1f"),
            alt.Tooltip("usd:Q", title="USD", format=",.2f"),
        ],
    )
    if "allocated_gpu_hours" not in rows.column_names:
        return bars.properties(height=height)  # type: ignore[no-any-return]
    line = (
        base.transform_aggregate(
            hours="sum(gpu_hours)", held="sum(allocated_gpu_hours)", groupby=["day"]
        )
        .transform_calculate(allocated="datum.held / datum.hours")
        .mark_line(color=SLATE, strokeWidth=2, point={"color": SLATE})
        .encode(
            x=alt.X("day:T", title=None, timeUnit=DAY, bandPosition=0.5),
            y=alt.Y(
                "allocated:Q",
                title="allocated (line)",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", grid=False),
            ),
            tooltip=[
                alt.Tooltip("day:T", title="day", timeUnit=DAY),
                alt.Tooltip("allocated:Q", title="allocated", format=".1%"),
            ],
        )
    )
    layered: Chart = (bars + line).resolve_scale(y="independent").properties(height=height)
    return layered


def draw_kinds_over_time(
    rows: pa.Table, kind: str, value: str, *, title: str, height: int = 180
) -> alt.Chart:
    """Stack the kinds per day: columns day, the kind's and the value's."""
    kinds = sorted({*rows[kind].to_pylist()})
    chart: alt.Chart = (
        alt.Chart(build_values(rows))
        .mark_bar()
        .encode(
            x=alt.X("day:T", title=None, timeUnit=DAY, axis=alt.Axis(format="%d %b")),
            y=alt.Y(f"{value}:Q", title=title, axis=alt.Axis(tickMinStep=1)),
            color=alt.Color(
                f"{kind}:N",
                title=None,
                scale=alt.Scale(domain=kinds, range=[*SERIES[: len(kinds)]]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("day:T", title="day", timeUnit=DAY),
                alt.Tooltip(f"{kind}:N"),
                alt.Tooltip(f"{value}:Q", title=title, format=",.3~g"),
            ],
        )
        .properties(height=height)
    )
    return chart


def draw_ranked_bars(
    rows: Sequence[Mapping[str, Any]],
    value: str = "usd",
    *,
    title: str = "USD",
    colour: str = BLUE,
    part: str | None = None,
    most: int = 15,
) -> Chart:
    """Draw the largest names as bars; `part` is a column of what of each was idle."""
    records = [*rows][:most]
    names = [spell_out(str(row["name"])) for row in records]
    base = alt.Chart(build_values(records)).encode(
        y=alt.Y("name:N", title=None, sort=names, axis=NAMES),
        tooltip=[
            alt.Tooltip("name:N"),
            alt.Tooltip(f"{value}:Q", title=title, format=",.2f"),
            *([alt.Tooltip(f"{part}:Q", title="of it idle", format=",.2f")] if part else []),
        ],
    )
    form = _choose_axis_format([row[value] for row in records])
    bars = base.mark_bar(color=colour).encode(
        x=alt.X(f"{value}:Q", title=title, axis=alt.Axis(format=form, labelExpr=PLAIN_ZERO))
    )
    chart: Chart = bars
    if part:
        paint = _build_legend({"of it idle": AMBER, "the rest": colour})
        idle = base.mark_bar().encode(x=alt.X(f"{part}:Q"))
        chart = paint(bars, "the rest") + paint(idle, "of it idle")
    return chart.properties(height=max(120, 26 * len(records) + (80 if part else 40)))


def cost_histogram(
    rows: Sequence[Mapping[str, Any]], title: str, noun: str, height: int = 180
) -> Chart:
    """Draw how many units cost how much: columns low, high, units, colour and said."""
    form = _choose_axis_format([row["high"] for row in rows])
    chart: alt.Chart = (
        alt.Chart(build_values(rows))
        .mark_bar(color=BLUE)
        .encode(
            # The bins are computed already: bars stand on the axis.
            x=alt.X(
                "low:Q",
                bin="binned",
                title=title,
                axis=alt.Axis(format=f"${form}", labelExpr=PLAIN_ZERO),
            ),
            x2="high:Q",
            y=alt.Y("units:Q", title=noun, axis=alt.Axis(format="~s", tickMinStep=1)),
            color=alt.Color("colour:N", scale=None),
            tooltip=[
                alt.Tooltip("low:Q", title="from, USD", format=",.2f"),
                alt.Tooltip("said:N", title="to, USD"),
                alt.Tooltip("units:Q", title=noun),
            ],
        )
        .properties(height=height)
    )
    return chart


def draw_waterfall(steps: Sequence[Mapping[str, Any]], title: str, height: int = 340) -> Chart:
    """Draw a waterfall: columns name, low, high, amount, colour; a bar goes from low to high."""
    order = [str(step["name"]) for step in steps]
    wide = alt.Axis(
        labelAngle=alt.ExprRef("width < 500 ? -55 : 0"),
        labelAlign=alt.ExprRef("width < 500 ? 'right' : 'center'"),
        labelLimit=110,
        labelOverlap=False,
    )
    base = alt.Chart(
        build_values([{**s, "said": _format_amount(s["amount"])} for s in steps])
    ).encode(
        x=alt.X("name:N", sort=order, title=None, axis=wide),
        tooltip=[
            alt.Tooltip("name:N"),
            alt.Tooltip("amount:Q", title=title, format=",.2f"),
            alt.Tooltip("low:Q", title="from", format=",.2f"),
            alt.Tooltip("high:Q", title="to", format=",.2f"),
        ],
    )
    # Bars have their amounts: lines of the grid would cross them.
    amounts = alt.Axis(format="~s", labelExpr=PLAIN_ZERO, grid=False)
    bars = base.mark_bar().encode(
        y=alt.Y("low:Q", title=title, axis=amounts),
        y2="high:Q",
        color=alt.Color("colour:N", scale=None),
    )
    text = base.mark_text(dy=-7, fontSize=11, color=GREY).encode(y="high:Q", text="said:N")
    chart: Chart = (bars + text).properties(height=height)
    return chart


def draw_stacked_bars(
    rows: Sequence[Mapping[str, Any]], *, names: Sequence[str], title: str, most: int = 15
) -> Chart:
    """Stack states per name: columns name, state, usd; `names` is their order."""
    names_wanted = [*names][:most]
    labels = [spell_out(name) for name in names_wanted]
    records = [row for row in rows if row["name"] in set(names_wanted)]
    form = _choose_axis_format([row["usd"] for row in records])
    used = {str(row["state"]) for row in records}
    chart: alt.Chart = (
        alt.Chart(build_values(records))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", title=None, sort=labels, axis=NAMES),
            x=alt.X("usd:Q", title=title, axis=alt.Axis(format=f"${form}", labelExpr=PLAIN_ZERO)),
            color=alt.Color("state:N", title=None, scale=build_state_scale([*used])),
            tooltip=["name:N", "state:N", alt.Tooltip("usd:Q", title="USD", format=",.2f")],
        )
        .properties(height=max(120, 26 * len(labels) + 40))
    )
    return chart


def draw_usual_lines(rows: pa.Table, height: int = 260) -> Chart:
    """Draw each hour's dollars over the usual: columns hour, usd, usual_usd."""
    names = {"usd": "paid", "usual_usd": "usual in this hour", "wasted_usd": "of it idle or lost"}
    base = alt.Chart(build_values(rows)).transform_fold([*names], as_=["key", "value"])
    chart: Chart = (
        base.transform_filter("isValid(datum.value)")
        .transform_calculate(series=f"{json.dumps(names)}[datum.key]")
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("hour:T", title=None, timeUnit=HOUR, axis=alt.Axis(format="%d %b %H:%M")),
            y=alt.Y("value:Q", title="USD per hour"),
            color=alt.Color(
                "series:N",
                title=None,
                scale=alt.Scale(domain=[*names.values()], range=[BLUE, GREY, AMBER]),
                legend=alt.Legend(orient="top"),
            ),
            strokeDash=alt.StrokeDash(
                "series:N",
                legend=None,
                scale=alt.Scale(domain=[*names.values()], range=[[1, 0], [6, 4], [1, 0]]),
            ),
            tooltip=[
                alt.Tooltip("hour:T", timeUnit=HOUR, title="hour"),
                alt.Tooltip("series:N", title="what"),
                alt.Tooltip("value:Q", title="USD", format=",.2f"),
            ],
        )
        .properties(height=height)
    )
    return chart


def draw_coverage_lines(rows: pa.Table, height: int = 220) -> Chart:
    """Draw how much of an hour has samples: columns hour, coverage_pct, conflict_pct."""
    base = alt.Chart(build_values(rows)).encode(
        x=alt.X("hour:T", title=None, timeUnit=HOUR, axis=alt.Axis(format="%d %b %H:%M")),
        tooltip=[
            alt.Tooltip("hour:T", timeUnit=HOUR, title="hour"),
            alt.Tooltip("coverage_pct:Q", title="scrapes %", format=".1f"),
            alt.Tooltip("conflict_pct:Q", title="in conflict %", format=".2f"),
            alt.Tooltip("blind_pct:Q", title="blind %", format=".2f"),
            alt.Tooltip("devices:Q", title="devices, about"),
        ],
    )
    scale = alt.Scale(domain=[0, 100])
    paint = _build_legend({"succeeded": BLUE, "signals in conflict": VIOLET})
    area = base.mark_area(opacity=0.35, line={"color": BLUE}).encode(
        y=alt.Y("coverage_pct:Q", title="% of expected scrapes", scale=scale)
    )
    odd = base.mark_line().encode(y="conflict_pct:Q")
    area, odd = paint(area, "succeeded"), paint(odd, "signals in conflict")
    layered: Chart = (area + odd).properties(height=height)
    return layered


def draw_funnel(
    rows: Sequence[Mapping[str, Any]], value: str = "usd", *, title: str = "USD"
) -> Chart:
    """Draw stages as bars, one below the other: columns name, the value's, colour, said.

    A `share` is of one, in percent; another value is dollars.
    """
    order = [str(row["name"]) for row in rows]
    scale = alt.Scale(domain=[0, 1]) if value == "share" else alt.Undefined
    form = "%" if value == "share" else f"${_choose_axis_format([row[value] for row in rows])}"
    axis = alt.Axis(format=form, tickCount=5, labelExpr=PLAIN_ZERO)
    base = alt.Chart(build_values(rows)).encode(
        y=alt.Y("name:N", sort=order, title=None),
        x=alt.X(f"{value}:Q", title=title, axis=axis, scale=scale),
        tooltip=["name:N", alt.Tooltip("said:N", title=title)],
    )
    bars = base.mark_bar().encode(color=alt.Color("colour:N", scale=None))
    text = base.mark_text(align="left", dx=6, color=GREY).encode(text="said:N")
    chart: Chart = (bars + text).properties(height=44 * len(rows) + 30)
    return chart


def draw_month_end(rows: Sequence[Mapping[str, Any]], height: int = 240) -> Chart:
    """Draw a month: columns day, paid (so far, summed), expected, low, high, budget."""
    base = alt.Chart(build_values(rows)).encode(
        x=alt.X("day:T", title=None, timeUnit=DAY, axis=alt.Axis(format="%d %b"))
    )
    money = alt.Axis(format="$~s", labelExpr=PLAIN_ZERO)
    band = base.mark_area(color=BLUE, opacity=0.2).encode(
        y=alt.Y("low:Q", title="USD since the month began", axis=money), y2="high:Q"
    )
    tooltips = [alt.Tooltip("day:T", timeUnit=DAY)]
    paid = base.mark_line(color=BLUE, strokeWidth=2.5).encode(
        y="paid:Q", tooltip=[*tooltips, alt.Tooltip("paid:Q", title="paid", format=",.2f")]
    )
    expected = base.mark_line(color=BLUE, strokeDash=[5, 4]).encode(
        y="expected:Q",
        tooltip=[*tooltips, alt.Tooltip("expected:Q", title="expected", format=",.2f")],
    )
    budget = base.mark_line(color=RED, strokeDash=[2, 3]).encode(y="budget:Q")
    chart: Chart = (band + paid + expected + budget).properties(height=height)
    return chart


def _choose_axis_format(amounts: Sequence[float | Decimal | None]) -> str:
    """Return the format of an axis of amounts: 15k; below ten thousand 1,500; below ten 0.15.

    SI would write 1.5k of 200 as 0.2k, and 0.15 as 150m.
    """
    largest = max((abs(float(amount)) for amount in amounts if amount is not None), default=0.0)
    if largest >= LEAST_WITH_SI:
        return "~s"
    return ",~f" if largest >= LEAST_WHOLE else ".3~g"


def _build_legend(colours: Mapping[str, str]) -> Callable[[alt.Chart, str], alt.Chart]:
    """Return what colours a layer by its name, with one legend of all layers above the chart."""
    scale = alt.Scale(domain=[*colours], range=[*colours.values()])
    colour = alt.Color("layer:N", title=None, scale=scale, legend=alt.Legend(orient="top"))

    def paint(layer: alt.Chart, name: str) -> alt.Chart:
        return layer.transform_calculate(layer=json.dumps(name)).encode(color=colour)

    return paint


LEAST_AMOUNT = 0.005
"""Dollars or GPU-hours; less is what a sum of parts leaves over."""


def _format_amount(amount: float | Decimal | None) -> str:
    if amount is None:
        return NO_PRICE
    return format_three_digits(0 if abs(float(amount)) < LEAST_AMOUNT else amount, units=True)


def _convert_value(value: Any) -> Any:
    match value:
        case str():
            return spell_out(value)
        case Decimal():
            return float(value)
        case datetime():
            return value.replace(tzinfo=None).isoformat() + "Z"
        case date():
            return value.isoformat()
        case _:
            return value
