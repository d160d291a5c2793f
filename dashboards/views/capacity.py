"""What to buy, give back and move; then fragmentation, node pools, spot and demand."""

from typing import Any

from dashboards import data, links, page, tabs
from dashboards.detail_words import describe_kind, describe_verb
from dashboards.figures import supply
from dashboards.page import PageRequest, format_money
from dashboards.views import (
    capacity_demand,
    capacity_fragmentation,
    capacity_pools,
    capacity_spot,
)

TITLE, ICON = "Capacity", ":material/dns:"
TABS: tabs.Tabs = {
    "Fragmentation": capacity_fragmentation.show,
    "Node pools": capacity_pools.show,
    "Spot": capacity_spot.show,
    "Demand": capacity_demand.show,
}
ANSWERS = page.read_columns("capacity/answers")
HEADINGS = {"buy": "Buy", "give back": "Give back", "move": "Move"}
MOST = 6
"""Rows: the tabs are not far below."""


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_answers, request)
    tabs.show_tabs(TABS, request)


def show_answers(request: PageRequest) -> None:
    """Show what to buy, give back and move, and list the findings that save most."""
    rows = data.query(supply.read_answers, request.window, request.filters)
    page.show_heading("What to buy, give back and move")
    if not rows:
        page.show_no_findings(
            request,
            supply.ANSWERING,
            "Nothing is advised about capacity in this window.",
            "`fallow analyze` judges it again; choose a longer window, or clear a filter.",
        )
        return
    page.show_metrics(*(_build_figure(rows, answer) for answer in HEADINGS))
    listed = [
        {**row, "kind": describe_kind(row["kind"]), "verb": describe_verb(row["verb"])}
        for row in _choose(rows)
    ]
    page.show_table(
        listed,
        ANSWERS,
        table_name="What to buy, give back and move",
        open_row=lambda row: links.open_page("findings", finding=listed[row]["id"]),
        on_phone=("usd", "workload", "verb", "kind"),
    )
    page.note(
        f"{len(listed)} of {len(rows):,} findings: the first of each kind, then those that save "
        "most; the tabs below have all. A click on a row opens its evidence. Unknown: the analyzer "
        "has no price for it, or it ends a wait and saves nothing."
    )


def _choose(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first rows of each answer, then the others, the largest saving first."""
    first: list[dict[str, Any]] = []
    for answer in HEADINGS:
        first += [row for row in rows if row["answer"] == answer][: MOST // len(HEADINGS)]
    return [*first, *(row for row in rows if row not in first)][:MOST]


def _build_figure(rows: list[dict[str, Any]], answer: str) -> tuple[str, str, str]:
    of_it = [row for row in rows if row["answer"] == answer]
    if not of_it:
        return HEADINGS[answer], "nothing", "no finding says so"
    usd = [row["usd"] for row in of_it if row["usd"] is not None]
    saves = (
        f"would save {format_money(sum(usd, page.convert_exact(0)))}"
        if usd
        else "saving unknown: not priced"
    )
    count = len(of_it)
    return HEADINGS[answer], f"{count:,} finding{'s' * (count != 1)}", saves
