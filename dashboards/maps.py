"""Draw maps: GPUs as cells, hours of the week, tracks of a timeline.

As in `dashboards.charts`: Altair only, one palette, at most 5,000 points a chart.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import altair as alt

from dashboards.charts import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    SLATE,
    WRAPPED,
    Chart,
    build_state_scale,
    build_values,
)
from dashboards.text import count
from fallow.texts import spell_out

WIDTH_PX = 1080
"""Width of a page on a usual screen; cells are square there."""
LEGEND_PX = 60
"""A legend above a track or a map: a chart's height includes it."""
LABEL_PX, ROW_GAP, NODE_GAP, NARROWEST = 22.0, 0.3, 0.6, 44.0
DIGITS = 3
"""Of a cell's position, in GPUs: less than a pixel."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def draw_cells(
    rows: Sequence[Mapping[str, Any]],
    *,
    colours: alt.Scale | None = None,
    roles: Sequence[tuple[str, str]] = (),
    outlined: str | None = None,
) -> Chart:
    """Draw nodes as strips and their GPUs as cells, pool by pool.

    Rows are sorted by cluster, pool and node: columns of these, state, gpus, usd_h, workload and
    `roles` (column and title of more tooltips). Nodes with a value in the column `outlined` have a
    frame: green if the plan empties them, else amber.
    """
    columns = {"state", "gpus", "usd_h", "workload", "node", "pool", *(name for name, _ in roles)}
    if outlined:
        columns |= {"cluster", outlined}
    tiles, labels, wide, high = _lay_out_cells(rows, columns)
    height = LEGEND_PX + math.ceil(high * WIDTH_PX / wide)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, wide], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[high, 0], nice=False))
    used = {str(row["state"]) for row in rows}
    chart = (
        alt.Chart(build_values(tiles))
        .mark_rect()
        .encode(
            x=x,
            x2="x2:Q",
            y=y,
            y2="y2:Q",
            color=alt.Color(
                "state:N",
                title=None,
                scale=colours or build_state_scale([*used]),
                legend=alt.Legend(orient="top", columns=WRAPPED),
            ),
            tooltip=[
                alt.Tooltip("state:N"),
                alt.Tooltip("gpus:Q", title="GPUs", format=",.2~f"),
                alt.Tooltip("usd_h:Q", title="USD per hour", format=",.2f"),
                alt.Tooltip("workload:N"),
                alt.Tooltip("node:N"),
                alt.Tooltip("pool:N"),
                *(alt.Tooltip(f"{name}:N", title=title) for name, title in roles),
            ],
        )
    )
    heads = (
        alt.Chart(build_values(labels))
        .mark_text(align="left", baseline="bottom", fontSize=12, color=GREY, limit=WIDTH_PX // 2)
        .encode(x=x, y=y, text="text:N")
    )
    framed = _build_frames(tiles, outlined) if outlined else []
    if framed:
        heads = heads + (
            alt.Chart(build_values(framed))
            .mark_rect(filled=False, strokeWidth=2.5)
            .encode(x=x, x2="x2:Q", y=y, y2="y2:Q", stroke=alt.Stroke("colour:N", scale=None))
        )
    both: Chart = (chart + heads).properties(height=height).configure_view(strokeWidth=0)
    return both


def _lay_out_cells(
    rows: Sequence[Mapping[str, Any]], columns: Collection[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float, float]:
    """Return cells and labels with their positions, in GPUs, and the total width and height.

    A cell has the columns `columns`: a browser gets thousands of cells.
    """
    pools = [
        [[*parts] for _, parts in groupby(pool, key=lambda r: r["node"])]
        for _, pool in groupby(rows, key=lambda r: (r["cluster"], r["pool"]))
    ]
    slots = [
        max(math.ceil(sum(r["gpus"] for r in node) - 1e-6) for node in pool) + NODE_GAP
        for pool in pools
    ]
    area = sum(len(pool) * slot for pool, slot in zip(pools, slots, strict=True))
    wide = max(NARROWEST, math.sqrt(2.4 * area * (1 + ROW_GAP)), *slots)
    label = LABEL_PX * wide / WIDTH_PX
    gap = 0.08 if len(rows) < 2000 else 0.0  # noqa: PLR2004  (a pixel; smaller cells touch)
    tiles, labels, y = [], [], 0.0
    is_several = len({row["cluster"] for row in rows}) > 1
    for pool, slot in zip(pools, slots, strict=True):
        first, across = pool[0][0], max(1, int(wide // slot))
        gpus = sum(r["gpus"] for node in pool for r in node)
        cluster = f" in {spell_out(str(first['cluster']))[:40]}" if is_several else ""
        pool_caption = (
            f"{spell_out(str(first['pool']))[:60]}{cluster}  "
            f"({count(len(pool), 'node')}, {count(round(gpus), 'GPU')})"
        )
        y += label
        labels.append({"text": pool_caption, "x": 0.0, "y": y - label * 0.15})
        for n, node in enumerate(pool):
            x, top = (n % across) * slot, y + (n // across) * (1 + ROW_GAP)
            for part in node:
                place = {"x": x, "x2": x + part["gpus"] - gap, "y": top, "y2": top + 1}
                place = {name: round(number, DIGITS) for name, number in place.items()}
                tiles.append({**{n: v for n, v in part.items() if n in columns}, **place})
                x += part["gpus"]
        y += math.ceil(len(pool) / across) * (1 + ROW_GAP) + ROW_GAP
    return tiles, labels, wide, y


def _build_frames(tiles: Sequence[Mapping[str, Any]], role: str) -> list[dict[str, Any]]:
    """Return a frame around each node that has a role."""
    framed = [tile for tile in tiles if tile[role]]
    parts = [[*g] for _, g in groupby(framed, key=lambda t: (t["cluster"], t["node"]))]
    return [
        {
            "x": part[0]["x"],
            "x2": part[-1]["x2"],
            "y": part[0]["y"],
            "y2": part[0]["y2"],
            "colour": GREEN if part[0][role] == "is emptied" else AMBER,
        }
        for part in parts
    ]


def draw_week(rows: Sequence[Mapping[str, Any]], measure: str, title: str, colour: str) -> Chart:
    """Draw the hours of a week: columns weekday (1 = Monday), hour, the measure, and tooltips."""
    day_rows = [{**r, "day": DAYS[r["weekday"] - 1]} for r in rows]
    dollars = measure.endswith("usd")
    chart: alt.Chart = (
        alt.Chart(build_values(day_rows))
        .mark_rect()
        .encode(
            x=alt.X("hour:O", title="hour of the day", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("day:O", title=None, sort=[*DAYS], axis=alt.Axis(labelOverlap=False)),
            color=alt.Color(
                f"{measure}:Q",
                title=title,
                scale=alt.Scale(range=[f"{colour}14", colour], domainMin=0, interpolate="rgb"),
                legend=alt.Legend(
                    orient="top", format="$,.0f" if dollars else ".0f", titleLimit=500
                ),
            ),
            tooltip=[
                alt.Tooltip("day:N"),
                alt.Tooltip("hour:O"),
                alt.Tooltip("productive_pct:Q", title="productive %", format=".1f"),
                alt.Tooltip("idle_pct:Q", title="allocated, idle %", format=".1f"),
                alt.Tooltip("free_pct:Q", title="free %", format=".1f"),
                alt.Tooltip("unknown_pct:Q", title="unknown %", format=".1f"),
                alt.Tooltip("idle_usd:Q", title="idle, USD", format=",.2f"),
                alt.Tooltip("gpu_hours:Q", title="GPU-hours", format=",.1f"),
            ],
        )
        .properties(height=300)
    )
    return chart


LINE_PX = 3
GPU_FORMAT = ",.3~r"
"""Format of an axis of GPUs: whole numbers alone would write 0, 1, 1, 2, 2 below three of them."""


def track(
    rows: Sequence[Mapping[str, Any]],
    lines: Mapping[str, str],
    span: tuple[datetime, datetime],
    *,
    title: str,
    form: str = "~s",
    height: int = 110,
    colours: Sequence[str] = (BLUE, SLATE),
    points: bool = False,
) -> Chart:
    """Draw lines over time: column at, and one column per key of `lines`, with its name.

    `points`: single values between gaps are points.
    """
    palette = dict(zip(lines, colours, strict=False))
    records = [
        {"at": row["at"], "series": name, "value": row[key]}
        for key, name in lines.items()
        for row in rows
    ]
    # Clipping would halve a line at the edge.
    scale = alt.Scale(padding=LINE_PX, domain=[0, 100] if title.endswith(", %") else alt.Undefined)
    chart: alt.Chart = (
        alt.Chart(build_values(records))
        .mark_line(
            interpolate="step-after", invalid="break-paths-filter-domains", clip=True, point=points
        )
        .encode(
            x=_build_time_axis(span),
            y=alt.Y(
                "value:Q",
                title=title,
                axis=alt.Axis(format=form, tickCount=3),
                scale=scale,
            ),
            color=alt.Color(
                "series:N",
                title=None,
                scale=alt.Scale(domain=[*lines.values()], range=[*palette.values()]),
                legend=alt.Legend(orient="top") if len(lines) > 1 else None,
            ),
            tooltip=[
                alt.Tooltip("at:T", title="from", format="%d %b %H:%M"),
                alt.Tooltip("series:N", title="what"),
                alt.Tooltip("value:Q", title=title, format=form),
            ],
        )
        .properties(height=height + (LEGEND_PX if len(lines) > 1 else 0))
    )
    return chart


def mark_stretch(
    drawing: Chart, stretch: tuple[datetime, datetime], span: tuple[datetime, datetime], label: str
) -> Chart:
    """Shade a stretch of time behind a track, cut to the span; `label` is its tooltip."""
    start, end = max(stretch[0], span[0]), min(stretch[1], span[1])
    if start >= end:
        return drawing
    band = (
        alt.Chart(build_values([{"at": start, "later": end, "stretch": label}]))
        .mark_rect(color=AMBER, opacity=0.22)
        .encode(
            x=_build_time_axis(span),
            x2="later:T",
            tooltip=[
                alt.Tooltip("stretch:N", title="marked"),
                alt.Tooltip("at:T", title="from", format="%d %b %H:%M"),
                alt.Tooltip("later:T", title="until", format="%d %b %H:%M"),
            ],
        )
    )
    marked: Chart = alt.layer(band, drawing).resolve_scale(color="independent")
    return marked.properties(height=drawing.height)


def mark_timestamps(
    drawing: Chart,
    timestamps: Sequence[tuple[datetime, str]],
    span: tuple[datetime, datetime],
    *,
    named: bool = True,
    colour: str = GREEN,
) -> Chart:
    """Draw a vertical line through a track at each moment; `named`: with its label above."""
    rows = [{"at": at, "moment": label} for at, label in timestamps if span[0] <= at < span[1]]
    if not rows:
        return drawing
    base = alt.Chart(build_values(rows)).encode(
        x=_build_time_axis(span),
        tooltip=[
            alt.Tooltip("moment:N", title="marked"),
            alt.Tooltip("at:T", title="at", format="%d %b %H:%M"),
        ],
    )
    layers: list[Chart] = [drawing, base.mark_rule(color=colour, strokeWidth=2, strokeDash=[5, 3])]
    if named:
        text = base.mark_text(align="left", dx=5, dy=8, color=colour, fontWeight="bold")
        layers.append(text.encode(y=alt.value(0), text="moment:N"))
    marked: Chart = alt.layer(*layers).resolve_scale(color="independent")
    return marked.properties(height=drawing.height)


def draw_state_track(
    rows: Sequence[Mapping[str, Any]],
    span: tuple[datetime, datetime],
    *,
    value: str,
    title: str,
    form: str = "~s",
    height: int = 150,
) -> Chart:
    """Stack states over time: columns at, later, state and the value's."""
    order = {state: n for n, state in enumerate(build_state_scale().domain)}
    records: list[dict[str, Any]] = []
    for _, step in groupby(rows, key=lambda r: r["at"]):
        low = 0.0
        for row in sorted(step, key=lambda r: order.get(r["state"], 99)):
            high = low + float(row[value] or 0)
            records.append({**row, "low": low, "high": high})
            low = high
    used = {str(row["state"]) for row in rows}
    chart: alt.Chart = (
        alt.Chart(build_values(records))
        .mark_rect()
        .encode(
            x=_build_time_axis(span),
            x2="later:T",
            y=alt.Y("low:Q", title=title, axis=alt.Axis(format=form, tickCount=4)),
            y2="high:Q",
            color=alt.Color(
                "state:N",
                title=None,
                scale=build_state_scale([*used]),
                legend=alt.Legend(orient="top", columns=WRAPPED),
            ),
            tooltip=[
                alt.Tooltip("at:T", title="from", format="%d %b %H:%M"),
                alt.Tooltip("state:N"),
                alt.Tooltip(f"{value}:Q", title=title, format=",.2f"),
            ],
        )
        .properties(height=height + LEGEND_PX)
    )
    return chart


def draw_marks(
    rows: Sequence[Mapping[str, Any]], span: tuple[datetime, datetime], height: int = 150
) -> Chart:
    """Draw events as ticks, a row per kind: columns at, kind, detail."""
    kinds = sorted({spell_out(str(row["kind"])) for row in rows})
    chart: alt.Chart = (
        alt.Chart(build_values(rows))
        .mark_tick(thickness=2, size=14, color=SLATE)
        .encode(
            x=_build_time_axis(span),
            y=alt.Y("kind:N", title=None, sort=kinds, axis=alt.Axis(labelLimit=120)),
            tooltip=[
                alt.Tooltip("at:T", title="at", format="%d %b %H:%M:%S"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("detail:N"),
            ],
        )
        .properties(height=max(60, min(height, 24 * len(kinds) + 40)))
    )
    return chart


def _build_time_axis(span: tuple[datetime, datetime]) -> alt.X:
    ends = [f"{timestamp:%Y-%m-%dT%H:%M:%S}Z" for timestamp in span]
    return alt.X(
        "at:T",
        title=None,
        scale=alt.Scale(type="utc", domain=ends, nice=False),
        axis=alt.Axis(format="%d %b %H:%M", labelOverlap=True),
    )
