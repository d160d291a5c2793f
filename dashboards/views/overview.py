"""One page to forward: paid, used, wasted, saved, how that changed, and what to do now."""

from decimal import Decimal

import streamlit as st

from dashboards import charts, data, links, page
from dashboards.figures import inbox, overview, queues, savings, spend, waste, waterfall
from dashboards.figures.overview import PeriodTotals
from dashboards.page import PageRequest, hours, hours_of, money, plain, share
from dashboards.views.spend_waste import COLUMNS
from fallow.models import PLATFORM
from fallow.window import format_duration

TITLE, ICON = "Overview", ":material/home:"
COLUMN_NAMES = (
    "name", "waste_usd", "waste_usd_pct", "idle_usd", "free_usd", "lost_usd", "waste_gpu_hours",
    "waste_pct", "busy_pct", "effective_pct",
)  # fmt: skip
WORST, STEPS = 10, 5
QUOTAS = {
    "name": page.name("quota"),
    "used_pct": page.percent("used, of the quota"),
    "nominal": page.number("quota, GPUs"),
    "used": page.number("used, GPUs"),
    "borrowed": page.number("borrowed, GPUs"),
    "waiting": page.number("requested and pending, GPUs"),
    "kind": page.name("kind", "small"),
    "cluster": page.name("cluster", "small"),
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.card(headline, request)
    page.card(next_steps, request)
    page.card(over_time, request)
    page.card(worst, request)
    page.card(quotas, request)


def headline(request: PageRequest) -> None:
    """Show the window in eight figures, the change of each, and how they relate."""
    waterfall_total = data.query(waterfall.waterfall, request.window, request.filters)
    if not waterfall_total.steps:
        page.show_no_data(request)
        return
    stages_reached = data.query(savings.stages, request.window, request.filters)
    now = data.query(overview.totals, request.window, request.filters)
    paid = data.query(spend.totals, request.window, request.filters)
    before_window = overview.window_before(request.window)
    before: PeriodTotals | None = data.query(overview.totals, before_window, request.filters)
    why = "no data before"
    if before is None or before_window.start < request.extent.samples.start:
        before = None
    stages_before = data.query(savings.stages, before_window, request.filters) if before else None

    def compare(name: str, rise: str, label: str, about: str) -> page.FigureCell:
        value = getattr(now, name)
        earlier = getattr(before, name) if before else None
        return page.FigureCell(
            label,
            money(value),
            about,
            overview.change(value, earlier),
            f"{money(earlier)} before" if before else why,
            "bad" if rise == "bad" else "neutral",
        )

    page.metrics(
        compare("usd", "neutral", "Paid", hours(now.gpu_hours)),
        compare(
            "used_usd",
            "neutral",
            "Used",
            f"{share(now.used_gpu_hours, now.gpu_hours)} of hours",
        ),
        compare("wasted_usd", "bad", "Wasted", wasted_of(now)),
        _saved(
            "Could be saved",
            stages_reached.identified_usd if stages_reached.identified else Decimal(),
            f"{stages_reached.identified:,} findings",
            stages_before.identified_usd if stages_before else None,
            why,
        ),
        _saved(
            "Verified saved",
            stages_reached.verified_usd if stages_reached.verified else Decimal(),
            f"{stages_reached.verified:,} actions",
            (stages_before.verified_usd or Decimal()) if stages_before else None,
            why,
        ),
        _part("Allocated", "allocated_gpu_hours", now, before, why),
        _part("Productive hours", "productive_gpu_hours", now, before, why),
        page.utilised(paid.effective, paid.measured_gpu_hours),
    )
    compared = (
        f"Changes are against {before_window.start:%Y-%m-%d %H:%M} to "
        f"{before_window.end:%Y-%m-%d %H:%M} UTC. "
        if before
        else f"No change is shown: no data of the {format_duration(before_window.seconds)} before. "
    )
    page.note(
        f"{compared}Paid = used + wasted + unknown; unknown: "
        f"{hours_of(now.unknown_gpu_hours, now.gpu_hours)}."
    )
    page.reconciled(request, waterfall_total, stages_reached)


def wasted_of(now: PeriodTotals) -> str:
    """Return the line beside the wasted dollars: their share of the bill, or that of the hours."""
    if now.usd is None:
        return f"{share(now.wasted_gpu_hours, now.gpu_hours)} of hours"
    return f"{share(now.wasted_usd, now.usd)} of bill"


def _saved(
    label: str, usd: Decimal | None, about: str, before: Decimal | None, why: str
) -> page.FigureCell:
    return page.FigureCell(
        label,
        money(usd),
        about,
        overview.change(usd, before),
        why if before is None else f"{money(before)} before",
        "good" if label == "Verified saved" else "neutral",
    )


def _part(
    label: str, name: str, now: PeriodTotals, before: PeriodTotals | None, why: str
) -> page.FigureCell:
    part = getattr(now, name)
    earlier = getattr(before, name) / before.gpu_hours if before and before.gpu_hours else None
    current = part / now.gpu_hours if now.gpu_hours else None
    return page.FigureCell(
        label,
        share(part, now.gpu_hours),
        hours(part),
        overview.change(current, earlier),
        why if earlier is None else f"{earlier:.1%} before",
    )


def next_steps(request: PageRequest) -> None:
    """Show the five steps that save most now, each with the button that opens its finding."""
    page.heading("Five things to do now, by dollars saved in this window")
    rows = data.query(inbox.list_inbox, request.window, request.filters).to_pylist()
    rows = sorted((row for row in rows if row["usd"] is not None), key=lambda row: -row["usd"])
    # Of several findings about one workload the first is shown: its page has the others.
    rows = [*{(row["cluster"], row["workload"]): row for row in reversed(rows)}.values()][::-1]
    if not rows:
        page.show_no_findings(
            request,
            (),
            "Nothing was found to do here.",
            "`fallow analyze` or `fallow up` find waste and store it.",
        )
        return
    for number, row in enumerate(rows[:STEPS]):
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.markdown(
            f"**{money(row['usd'])}** {plain(row['verb'] or row['kind'])}: "
            f"{plain(row['workload'])}"
            + (f" ({plain(row['team'], 40)})" if row["team"] not in (None, PLATFORM) else "")
            + f", {plain(row['evidence'])}"
        )
        # Each button has a name of its own: five buttons "Open" say nothing to a screen reader.
        if right.button(
            f"Open {number + 1}",
            key=f"step-{number}",
            icon=":material/arrow_forward:",
            help=f"Open the finding {row['id']}: why, how, and the buttons that act",
        ):
            links.open_page("findings", finding=row["id"])
            st.rerun()


def over_time(request: PageRequest) -> None:
    """Draw dollars per day and state."""
    rows = data.query(spend.daily, request.window, request.filters)
    if rows.num_rows:
        priced = any(usd is not None for usd in rows["usd"].to_pylist())
        unit = "usd" if priced else "gpu_hours"
        page.chart(charts.states_over_time(rows, unit), "Per day, stacked by state of the GPUs")


def worst(request: PageRequest) -> None:
    """List the teams with the most waste."""
    rows = data.query(waste.by_owner, request.window, request.filters, "team")
    if rows.num_rows:
        page.heading("Teams by wasted dollars")
        columns_shown = {name: COLUMNS[name] for name in COLUMN_NAMES}
        top = rows.slice(0, WORST)
        names = top["name"].to_pylist()
        page.table(
            top,
            columns_shown,
            table_name="The teams that wasted most",
            open_row=lambda row: links.open_page("chargeback", team=names[row]),
        )


def quotas(request: PageRequest) -> None:
    """List the quotas beside their use."""
    rows = data.query(queues.quotas, request.window, request.filters).to_pylist()
    page.heading("Quota against use")
    rows = [
        row | {"used_pct": None if row["used"] is None else 100 * row["used"] / row["nominal"]}
        for row in rows
        if row["nominal"]
    ]
    if not rows:
        page.show_nothing(
            "No quota of GPUs was seen on the window's last day.",
            "The Kubernetes collector reads ResourceQuota, ElasticQuota and queues where they are.",
        )
        return
    page.table(rows[:WORST], QUOTAS, table_name="Quotas of GPUs and their use")
