"""What a training run, a million requests or tokens, and an hour that worked cost."""

from typing import Any

import pyarrow as pa

from dashboards import charts, data, page
from dashboards.figures import units
from dashboards.page import PageRequest, money
from fallow.models import PLATFORM

TITLE, ICON = "Unit cost", ":material/straighten:"
LISTED = 1000
"""Rows of a table: a browser would need too long for tens of thousands."""

OWNERS = {
    "name": page.name("name"),
    "usd_per_productive_gpu_hour": page.usd("per productive GPU-hour"),
    "usd_per_gpu_hour": page.usd("per paid GPU-hour"),
    "usd": page.usd("USD"),
    "productive_gpu_hours": page.number("productive GPU-hours"),
    "gpu_hours": page.number("GPU-hours"),
}
RUNS = {
    "workload": page.name("run", "large"),
    "team": page.name("team", "small"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
    "productive_gpu_hours": page.number("productive"),
    "began": page.time_column("first hour"),
    "last_hour": page.time_column("last hour"),
}
SERVED = {
    "workload": page.name("workload", "large"),
    "team": page.name("team", "small"),
    "usd_per_million_requests": page.usd("per 1M requests"),
    "usd_per_million_tokens": page.usd("per 1M tokens"),
    "usd": page.usd("USD"),
    "requests": page.number("requests"),
    "tokens": page.number("tokens"),
    "gpu_hours": page.number("GPU-hours"),
}
TRAINED = {
    "workload": page.name("workload", "large"),
    "team": page.name("team", "small"),
    "work": page.name("what its metric counts"),
    "usd_per_million": page.usd("per million of them"),
    "amount": page.number("amount"),
    "usd": page.usd("USD"),
    "gpu_hours": page.number("GPU-hours"),
}


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.card(owners, request)
    page.card(runs, request)
    page.card(served, request)
    page.card(trained, request)


def owners(request: PageRequest) -> None:
    """Show the cost of a working hour, by owner."""
    page.heading("A productive GPU-hour")
    key = page.by(units.KEYS)
    rows = data.query(units.by_owner, request.window, request.filters, key)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    bars = [
        r for r in rows.to_pylist() if r["usd_per_productive_gpu_hour"] and r["name"] != PLATFORM
    ]
    if bars:
        bars = sorted(bars, key=lambda r: -r["usd_per_productive_gpu_hour"])
        page.chart(
            charts.ranked_bars(
                bars, "usd_per_productive_gpu_hour", title="USD per productive GPU-hour", most=10
            ),
            f"Dollars per productive GPU-hour by {key}",
        )
    page.table(rows, OWNERS, table_name=f"Cost of a productive GPU-hour by {key}")


def runs(request: PageRequest) -> None:
    """List training and batch runs."""
    page.heading("A training or batch run")
    rows = data.query(units.runs, request.window, request.filters)
    if not rows.num_rows:
        page.show_nothing("No run held a GPU here.", "Jobs of any operator count as runs.")
        return
    usd_known = sorted(usd for usd in rows["usd"].to_pylist() if usd is not None)
    middle = usd_known[len(usd_known) // 2] if usd_known else None
    page.note(
        f"{rows.num_rows:,} runs, the median {money(middle)}, the most expensive "
        f"{money(usd_known[-1] if usd_known else None)}. A run that goes beyond the window is "
        "shown in part."
    )
    _table(rows, RUNS, "Training and batch runs")


def served(request: PageRequest) -> None:
    """List services by the cost of their requests and tokens."""
    page.heading("A million requests or tokens")
    _show_rows(
        data.query(units.served, request.window, request.filters),
        SERVED,
        "Services by unit cost",
        "No service tells how much it served.",
        "Collect its request rate and latencies: `docs/prometheus.md` names the metrics.",
    )


def trained(request: PageRequest) -> None:
    """List jobs by the cost of the work that they report."""
    page.heading("A million samples or tokens trained on")
    _show_rows(
        data.query(units.trained, request.window, request.filters),
        TRAINED,
        "Training by unit cost",
        "No job tells its throughput.",
        "`prometheus.step_metrics` names metrics of samples or tokens per second.",
    )


def _show_rows(
    rows: pa.Table, columns: dict[str, Any], table_name: str, none: str, then: str
) -> None:
    """Show rows; if there are none, show that and what to do."""
    if rows.num_rows:
        _table(rows, columns, table_name)
    else:
        page.show_nothing(none, then)


def _table(rows: pa.Table, columns: dict[str, Any], table_name: str) -> None:
    """Show the most expensive rows, and how many more there are."""
    page.table(rows.slice(0, LISTED), columns, table_name=table_name)
    if rows.num_rows > LISTED:
        many = f"{rows.num_rows:,}; `fallow spend --by workload` has all"
        page.note(f"The {LISTED:,} most expensive of {many}.")
