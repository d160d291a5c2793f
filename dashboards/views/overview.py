"""One page to forward: paid, used, wasted, saved, how that changed, and what to do now."""

from decimal import Decimal

import streamlit as st

from dashboards import charts, data, filters, links, page
from dashboards.figures import inbox, overview, savings, spend, waste, waterfall
from dashboards.figures.spend import SpendTotals
from dashboards.page import (
    PageRequest,
    escape,
    format_hours,
    format_hours_with_share,
    format_money,
    format_share,
)
from dashboards.text import count
from dashboards.views.spend_waste import COLUMNS
from fallow.models import PLATFORM

TITLE, ICON = "Overview", ":material/home:"
COLUMN_NAMES = (
    "name", "waste_usd", "waste_usd_pct", "idle_usd", "free_usd", "lost_usd", "waste_gpu_hours",
    "busy_pct", "effective_pct",
)  # fmt: skip
WORST, STEPS = 10, 5


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_headline, request)
    page.show_card(show_next_steps, request)
    page.show_card(show_over_time, request)
    page.show_card(show_worst, request)


def show_headline(request: PageRequest) -> None:
    """Show the window in nine figures, the change of each, and how they relate."""
    waterfall_total = data.query(waterfall.compute_waterfall, request.window, request.filters)
    if not waterfall_total.steps:
        page.show_no_data(request)
        return
    stages_reached = data.query(savings.read_stages, request.window, request.filters)
    now = data.query(spend.read_totals, request.window, request.filters)
    before_window = overview.get_window_before(request.window)
    why = data.query(overview.explain_incomparable, request.window, request.filters.cluster)
    before = None if why else data.query(spend.read_totals, before_window, request.filters)
    stages_before = (
        data.query(savings.read_stages, before_window, request.filters) if before else None
    )

    def compare(name: str, rise: str, label: str, about: str) -> page.FigureCell:
        value = getattr(now, name)
        earlier = getattr(before, name) if before else None
        return page.FigureCell(
            label,
            format_money(value),
            about,
            overview.change(value, earlier),
            f"{format_money(earlier)} before" if before else why,
            "bad" if rise == "bad" else "neutral",
        )

    page.show_metrics(
        compare("usd", "neutral", "Paid", format_hours(now.gpu_hours)),
        compare(
            "used_usd",
            "neutral",
            "Used",
            f"{format_share(now.used_gpu_hours, now.gpu_hours)} of hours",
        ),
        compare("wasted_usd", "bad", "Wasted", format_wasted(now)),
        _build_saved_figure(
            "Cash",
            stages_reached.cash_usd,
            "the bill falls by it",
            stages_before.cash_usd if stages_before else None,
            why,
        ),
        _build_saved_figure(
            "Could be saved",
            stages_reached.saveable_usd,
            savings.describe_saveable(stages_reached),
            stages_before.saveable_usd if stages_before else None,
            why,
        ),
        _build_saved_figure(
            "Verified saved",
            stages_reached.verified_usd if stages_reached.verified else Decimal(),
            count(stages_reached.verified, "action"),
            (stages_before.verified_usd or Decimal()) if stages_before else None,
            why,
        ),
        _build_part_figure("Allocated", "allocated_gpu_hours", now, before, why),
        _build_part_figure("Productive hours", "productive_gpu_hours", now, before, why),
        page.format_utilisation(now.effective, now.measured_gpu_hours),
    )
    compared = (
        f"Changes are against {before_window.start:%Y-%m-%d %H:%M} to "
        f"{before_window.end:%Y-%m-%d %H:%M} UTC. "
        if before
        else f"No change is shown: {why}. "
    )
    parts = (
        f"{compared}Paid = used + wasted + unknown; unknown: "
        f"{format_hours_with_share(now.unknown_gpu_hours, now.gpu_hours)} of the hours."
    )
    page.show_reconciliation(request, waterfall_total, now, stages_reached, first=parts)


def format_wasted(now: SpendTotals) -> str:
    """Return the line beside the wasted dollars: their share of the bill, or that of the hours."""
    if now.usd is None:
        return f"{format_share(now.wasted_gpu_hours, now.gpu_hours)} of hours"
    return f"{format_share(now.wasted_usd, now.usd)} of bill"


def _build_saved_figure(
    label: str, usd: Decimal | None, about: str, before: Decimal | None, why: str
) -> page.FigureCell:
    return page.FigureCell(
        label,
        format_money(usd),
        about,
        overview.change(usd, before),
        why if before is None else f"{format_money(before)} before",
        "good" if label == "Verified saved" else "neutral",
    )


def _build_part_figure(
    label: str, name: str, now: SpendTotals, before: SpendTotals | None, why: str
) -> page.FigureCell:
    part = getattr(now, name)
    earlier = getattr(before, name) / before.gpu_hours if before and before.gpu_hours else None
    current = part / now.gpu_hours if now.gpu_hours else None
    return page.FigureCell(
        label,
        format_share(part, now.gpu_hours),
        format_hours(part),
        overview.change(current, earlier),
        why if earlier is None else f"{earlier:.1%} before",
    )


def show_next_steps(request: PageRequest) -> None:
    """Show the five steps that save most now, each with the button that opens its finding."""
    page.show_heading("What to do now, by dollars saved in this window")
    rows = data.query(inbox.list_inbox, request.window, request.filters).to_pylist()
    rows = inbox.choose_steps(rows, STEPS)
    if not rows:
        page.show_no_findings(
            request,
            (),
            "Nothing was found to do here.",
            "`fallow analyze` or `fallow up` find waste and store it.",
        )
        return
    several = filters.has_several_clusters(request)
    for number, row in enumerate(rows):
        owner = [escape(row["team"], 40)] if row["team"] not in (None, PLATFORM) else []
        owner += [f"cluster {escape(row['cluster'], 40)}"] if several else []
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.markdown(
            f"**{format_money(row['usd'])}** {escape(row['verb'] or row['kind'])}: "
            f"{escape(row['workload'])}"
            + (f" ({', '.join(owner)})" if owner else "")
            + f", {escape(row['evidence'])}"
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


def show_over_time(request: PageRequest) -> None:
    """Draw dollars per day and state."""
    rows = data.query(spend.read_daily, request.window, request.filters)
    if rows.num_rows:
        priced = any(usd is not None for usd in rows["usd"].to_pylist())
        unit = "usd" if priced else "gpu_hours"
        page.show_heading("Per day, by what the GPUs did")
        page.chart(
            charts.draw_states_over_time(rows, unit), "Per day, stacked by state of the GPUs"
        )


def show_worst(request: PageRequest) -> None:
    """List the teams with the most waste."""
    rows = data.query(waste.read_by_owner, request.window, request.filters, "team")
    if rows.num_rows:
        page.show_heading("Teams by wasted dollars")
        columns_shown = {name: COLUMNS[name] for name in COLUMN_NAMES}
        top = rows.slice(0, WORST)
        names = top["name"].to_pylist()
        page.show_table(
            top,
            columns_shown,
            table_name="The teams that wasted most",
            open_row=lambda row: links.open_page("chargeback", team=names[row]),
        )
