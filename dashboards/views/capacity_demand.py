"""Demand: head-room, reservations and forecasts that the analyzer of demand judged."""

from typing import Any

from dashboards import data, links, page
from dashboards.detail_words import describe_kind, describe_verb
from dashboards.figures import supply
from dashboards.page import PageRequest

ADVICE = page.read_columns("capacity_demand/advice")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_advised, request)


def show_advised(request: PageRequest) -> None:
    """List the advice about demand, head-room and reservations."""
    page.show_heading("Head-room, reservations and demand above capacity")
    rows = data.query(supply.read_advised, request.window, request.filters, supply.DEMAND)
    if not rows:
        page.show_no_findings(
            request,
            supply.DEMAND,
            "Nothing is advised about demand in this window.",
            "`fallow analyze demand` judges it again; forecasts need 21 days of history.",
        )
        return
    page.show_table([_add_link(row) for row in rows], ADVICE, table_name="Advice about demand")


def _add_link(row: dict[str, Any]) -> dict[str, Any]:
    cells = {name: value for name, value in row.items() if name != "details"}
    cells |= {"kind": describe_kind(row["kind"]), "verb": describe_verb(row["verb"])}
    return {**cells, **links.build_finding_link(row["id"])}
