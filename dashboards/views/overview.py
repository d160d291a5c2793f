"""One page to forward: cash first, what to do now, and how much of what is paid is useful."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import streamlit as st

from dashboards import chart_data, charts, data, filters, links, page
from dashboards.figures import funnel, inbox, overview, savings, spend, waste
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
from dashboards.views import spend_waste
from fallow.models import PLATFORM

TITLE, ICON = "Overview", ":material/home:"
COLUMN_NAMES = (
    "name", "waste_usd", "waste_usd_pct", "idle_usd", "free_usd", "stranded_usd", "lost_usd",
    "unavailable_usd", "busy_pct", "effective_pct",
)  # fmt: skip
STEPS = 5
SIZES = page.read_columns("overview/sizes")


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_headline, request)
    page.show_card(show_next_steps, request)
    page.show_card(show_funnel, request)
    page.show_card(show_over_time, request)
    page.show_card(show_worst, request)


def show_headline(request: PageRequest) -> None:
    """Show the window in five figures, cash first, with the change of each."""
    now = data.query(spend.read_totals, request.window, request.filters)
    if not now.gpu_hours:
        page.show_no_data(request)
        return
    stages_reached = data.query(savings.read_stages, request.window, request.filters)
    before_window = overview.get_window_before(request.window)
    why = data.query(overview.explain_incomparable, request.window, request.filters.cluster)
    before = None if why else data.query(spend.read_totals, before_window, request.filters)
    stages_before = (
        data.query(savings.read_stages, before_window, request.filters) if before else None
    )
    judged = stages_before if stages_before and stages_before.is_whole else None
    unjudged = why or "the last analysis did not judge the period before"

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
        _build_saved_figure(
            "Cash",
            stages_reached.cash_usd,
            "the bill falls by it" + ", at least" * stages_reached.gap.is_material,
            judged.cash_usd if judged else None,
            unjudged,
        ),
        _build_saved_figure(
            "Could be saved",
            stages_reached.saveable_usd,
            savings.describe_saveable(stages_reached),
            judged.saveable_usd if judged else None,
            unjudged,
        ),
        compare("wasted_usd", "bad", "Wasted", format_wasted(now)),
        compare("usd", "neutral", "Paid", format_hours(now.gpu_hours)),
        _build_saved_figure(
            "Verified saved",
            stages_reached.verified_usd if stages_reached.verified else Decimal(),
            count(stages_reached.verified, "action"),
            (stages_before.verified_usd or Decimal()) if stages_before else None,
            why,
        ),
    )
    compared = (
        f"Changes are against {before_window.start:%Y-%m-%d %H:%M} to "
        f"{before_window.end:%Y-%m-%d %H:%M} UTC. "
        if before
        else f"No change is shown: {why}. "
    )
    page.note(
        f"{compared}Paid = {format_money(now.used_usd)} used + wasted + unknown; unknown: "
        f"{format_hours_with_share(now.unknown_gpu_hours, now.gpu_hours)} of the hours."
    )


def show_funnel(request: PageRequest) -> None:
    """Draw what is left of the paid hours at each stage, and the factors by job size."""
    hours = data.query(funnel.read_funnel, request.window, request.filters)
    if not hours.whole.gpu_hours:
        return
    page.show_heading("From paid to useful GPU-hours")
    rows = chart_data.build_funnel_stages(hours.whole)
    page.chart(
        charts.draw_funnel(rows, "share", title="of the paid GPU-hours"),
        "Of the paid GPU-hours: " + ", ".join(f"{row['name']} {row['said']}" for row in rows[1:]),
    )
    whole = hours.whole
    sizes = pa.Table.from_pylist([_build_size(part) for part in hours.by_size])
    page.show_table(
        sizes,
        SIZES,
        table_name="Factors by job size",
        total=page.sum_rows(sizes, ("usd", "gpu_hours"), **_build_factors(whole), size="all jobs"),
    )
    page.note(
        f"Effective share: {format_share(whole.share, 1)} of the paid hours, the product of the "
        "factors. Active: with work, of the allocated hours whose use is known "
        f"({format_hours_with_share(whole.known_gpu_hours, whole.allocated_gpu_hours)}). "
        "Effective: use of what limits the work over its practical peak, where it was measured "
        f"({format_hours_with_share(whole.measured_gpu_hours, whole.busy_gpu_hours)} of the "
        "active). Useful: not lost. A job's size: the GPUs that it held at once."
    )


def _build_size(part: funnel.FunnelPart) -> dict[str, Any]:
    sums = {"size": part.size, "usd": part.usd, "gpu_hours": part.gpu_hours}
    return sums | _build_factors(part)


def _build_factors(part: funnel.FunnelPart) -> dict[str, float | None]:
    """Return the factors of allocated hours and their product, in percent."""
    factors = {
        name: page.compute_percent(part.factors[name], 1) for name in SIZES if name in part.factors
    }
    return factors | {"share": page.compute_percent(part.share_of_allocated, 1)}


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
            f"**{format_money(row['usd'])}**{' cash:' * (row['saving'] == 'cash')} "
            f"{escape(row['verb'] or row['kind'])}: "
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
    rows = data.query(waste.read_statement, request.window, request.filters, "team")
    if rows.num_rows:
        page.show_heading("Teams by wasted dollars")
        names = rows["name"].to_pylist()
        now = data.query(spend.read_totals, request.window, request.filters)
        page.show_table(
            rows,
            {name: spend_waste.COLUMNS[name] for name in COLUMN_NAMES},
            table_name="The teams that wasted most",
            open_row=lambda row: links.open_page("chargeback", team=names[row]),
            total=spend_waste.sum_owners(rows, now),
        )
