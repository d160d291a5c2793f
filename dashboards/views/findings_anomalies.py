"""Hours that cost more than usual, and the rises that the last analysis found."""

import json

from dashboards import charts, data, page
from dashboards.figures import anomalies
from dashboards.page import PageRequest

RISE_COLUMNS = {
    "name": page.name("whose"),
    "kind": page.name("what", "small"),
    "usd": page.usd("more than usual, USD"),
    "gpu_hours": page.number("GPU-hours more"),
    "why": page.name("why", "large"),
    "reasons": page.name("because"),
    "start": page.time_column("since"),
    "end": page.time_column("until"),
    "weeks_compared": page.number("weeks compared"),
    "id": page.name("finding", "small"),
}


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.card(usual, request)
    page.card(rises, request)


def usual(request: PageRequest) -> None:
    """Draw each hour beside the same hour of the weeks before."""
    rows = data.query(anomalies.usual, request.window, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    recent = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(charts.usual_lines(recent), "Dollars per hour beside what is usual in that hour")
    weeks = max(rows["weeks"].to_pylist())
    if not weeks:
        page.note("There is no week before this window yet, so nothing is called usual.")


def rises(request: PageRequest) -> None:
    """List the rises of the last analysis."""
    page.heading("Rises of spend and waste")
    rows = data.query(anomalies.list_rises, request.window, request.filters).to_pylist()
    if not rows:
        page.show_no_findings(
            request,
            ("anomalies",),
            "No rise was found in this window.",
            "The analyzer needs three weeks before an hour to call it unusual; planned changes "
            "belong into `anomalies.known_changes`.",
        )
        return
    page.table(
        [{**r, "reasons": _reason_text(r["reasons"])} for r in rows],
        RISE_COLUMNS,
        table_name="Rises",
    )


def _reason_text(text: str | None) -> str:
    parts = json.loads(text) if text else {}
    return ", ".join(f"{name} {value:+,.2f}" for name, value in parts.items())
