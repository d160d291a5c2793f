"""What a training run, a million requests or tokens, and an hour that worked cost."""

from typing import Any

import pyarrow as pa

from dashboards import charts, data, page
from dashboards.figures import units
from dashboards.figures.asking import PLATFORM
from dashboards.page import Asked, money

TITLE, ICON, ORDER = "Unit economics", ":material/straighten:", 70
LISTED = 1000
"""Rows of a table: tens of thousands would take a browser longer than people wait."""

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
    "began": page.moment("first hour"),
    "last_hour": page.moment("last hour"),
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


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(owners, asked)
    page.card(runs, asked)
    page.card(served, asked)
    page.card(trained, asked)


def owners(asked: Asked) -> None:
    """Say what an hour that worked cost, by whom."""
    page.heading("A productive GPU-hour")
    key = page.by(units.KEYS)
    rows = data.ask(units.by_owner, asked.window, asked.filters, key)
    if not rows.num_rows:
        page.nobody(asked)
        return
    drawn = [
        r for r in rows.to_pylist() if r["usd_per_productive_gpu_hour"] and r["name"] != PLATFORM
    ]
    if drawn:
        drawn = sorted(drawn, key=lambda r: -r["usd_per_productive_gpu_hour"])
        page.chart(
            charts.ranked_bars(
                drawn, "usd_per_productive_gpu_hour", title="USD per productive GPU-hour", most=10
            ),
            f"Dollars per productive GPU-hour by {key}",
        )
    page.table(rows, OWNERS, called=f"Cost of a productive GPU-hour by {key}")


def runs(asked: Asked) -> None:
    """List training and batch runs."""
    page.heading("A training or batch run")
    rows = data.ask(units.runs, asked.window, asked.filters)
    if not rows.num_rows:
        page.nothing("No run held a GPU here.", "Jobs of any operator count as runs.")
        return
    known = sorted(usd for usd in rows["usd"].to_pylist() if usd is not None)
    middle = known[len(known) // 2] if known else None
    page.note(
        f"{rows.num_rows:,} runs, the one in the middle {money(middle)}, the dearest "
        f"{money(known[-1] if known else None)}. A run that goes beyond the window is told in part."
    )
    _table(rows, RUNS, "Training and batch runs")


def served(asked: Asked) -> None:
    """List services by what their requests and tokens cost."""
    page.heading("A million requests or tokens")
    _listed(
        data.ask(units.served, asked.window, asked.filters),
        SERVED,
        "Services by unit cost",
        "No service tells how much it served.",
        "Collect its request rate and latencies: `docs/prometheus.md` names the metrics.",
    )


def trained(asked: Asked) -> None:
    """List jobs by what the work they tell of cost."""
    page.heading("A million samples or tokens trained on")
    _listed(
        data.ask(units.trained, asked.window, asked.filters),
        TRAINED,
        "Training by unit cost",
        "No job tells its throughput.",
        "`prometheus.step_metrics` names metrics of samples or tokens per second.",
    )


def _listed(rows: pa.Table, columns: dict[str, Any], called: str, none: str, then: str) -> None:
    """Show rows; where there are none, say so and what to do about it."""
    if rows.num_rows:
        _table(rows, columns, called)
    else:
        page.nothing(none, then)


def _table(rows: pa.Table, columns: dict[str, Any], called: str) -> None:
    """Show the dearest rows, and say so where there are more."""
    page.table(rows.slice(0, LISTED), columns, called=called)
    if rows.num_rows > LISTED:
        many = f"{rows.num_rows:,}; `fallow spend --by workload` has all"
        page.note(f"The {LISTED:,} dearest of {many}.")
