"""What a run, a million requests or tokens, and a productive GPU-hour cost: medians first."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dashboards import charts, data, filters, links, page, tabs
from dashboards.figures import units
from dashboards.page import PageRequest, format_money
from fallow.models import PLATFORM

TITLE, ICON = "Unit cost", ":material/straighten:"
BARS, NAMED = 10, 5
"""Bars of a chart, and outliers that are named below it."""
LISTED = 1000
"""Rows of a table: a browser would need too long for tens of thousands."""

OWNERS = page.read_columns("unit_cost/owners")
RUNS = page.read_columns("unit_cost/runs")
SERVED = page.read_columns("unit_cost/served")
TRAINED = page.read_columns("unit_cost/trained")


def show(request: PageRequest) -> None:
    """Draw the page."""
    tabs.show_tabs(TABS, request)


def show_runs(request: PageRequest) -> None:
    """Draw the tab of runs."""
    page.show_card(draw_runs, request)


def show_owners(request: PageRequest) -> None:
    """Draw the tab of productive GPU-hours."""
    page.show_card(draw_owners, request)


def show_served(request: PageRequest) -> None:
    """Draw the tab of requests and tokens."""
    page.show_card(list_served, request)


def show_trained(request: PageRequest) -> None:
    """Draw the tab of training."""
    page.show_card(list_trained, request)


def draw_owners(request: PageRequest) -> None:
    """Show the cost of a productive hour, by owner."""
    key = page.choose_by(units.KEYS)
    rows = data.query(units.read_by_owner, request.window, request.filters, key)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    records = [row for row in rows.to_pylist() if row["name"] != PLATFORM]
    _show_distribution(
        records, "usd_per_productive_gpu_hour", "USD per productive GPU-hour", f"{key}s"
    )
    names = rows["name"].to_pylist()
    page.show_table(
        rows,
        OWNERS,
        table_name=f"Cost of a productive GPU-hour by {key}",
        open_row=lambda row: links.open_owner(key, names[row]),
    )
    _note_least(f"{units.LEAST_PRODUCTIVE_GPU_HOURS:g} productive GPU-hour")


def draw_runs(request: PageRequest) -> None:
    """Show what training and batch runs cost, and list them."""
    rows = data.query(units.read_runs, request.window, request.filters)
    if not rows.num_rows:
        page.show_nothing("No run had a GPU here.", "Jobs of any operator count as runs.")
        return
    records = [row | {"name": row["workload"]} for row in rows.to_pylist()]
    costs = data.query(units.read_run_costs, request.window, request.filters)
    _show_distribution(records, "usd", "USD per run", "runs", costs)
    page.note(
        f"{rows.num_rows:,} runs. Of a run that goes beyond the window only its part in the window "
        "is counted."
    )
    _show_table(request, rows, RUNS, "Training and batch runs")


def list_served(request: PageRequest) -> None:
    """List services by the cost of their requests and tokens."""
    rows = data.query(units.read_served, request.window, request.filters)
    records = [row | {"name": row["workload"]} for row in rows.to_pylist()]
    _show_distribution(records, "usd_per_million_tokens", "USD per million tokens", "services")
    _show_distribution(records, "usd_per_million_requests", "USD per million requests", "services")
    _show_rows(
        request,
        rows,
        SERVED,
        "Services by unit cost",
        (
            "No service reports how much it served.",
            "Collect its request rate and latencies: `docs/prometheus.md` names the metrics.",
        ),
    )
    _note_least(f"{units.LEAST_COUNTED:,}")


def list_trained(request: PageRequest) -> None:
    """List jobs by the cost of the work that they report."""
    rows = data.query(units.read_trained, request.window, request.filters)
    records = [row | {"name": row["workload"]} for row in rows.to_pylist()]
    _show_distribution(records, "usd_per_million", "USD per million", "jobs")
    _show_rows(
        request,
        rows,
        TRAINED,
        "Training by unit cost",
        (
            "No job reports its throughput.",
            "`prometheus.step_metrics` names metrics of samples or tokens per second.",
        ),
    )
    _note_least(f"{units.LEAST_COUNTED:,}")


def _show_distribution(
    records: Sequence[Mapping[str, Any]],
    value: str,
    title: str,
    plural: str,
    costs: units.Distribution | None = None,
) -> None:
    """Show median and 90th percentile of a cost, the costs up to the cap, and the outliers."""
    priced = [row for row in records if row[value] is not None]
    costs = costs or units.measure_distribution([float(row[value]) for row in priced])
    if costs is None:
        return
    page.show_metrics(
        ("Median", _format_dollars(costs.median), title),
        ("90th percentile", _format_dollars(costs.p90), f"of {costs.count:,} with a price"),
        ("Most expensive", _format_dollars(costs.most), title),
        ("Outliers", f"{costs.outliers:,}", f"above {_format_dollars(costs.fence)}"),
    )
    ranked = sorted(priced, key=lambda row: -float(row[value]))
    if len(ranked) > BARS:
        bins = units.bin_costs([float(row[value]) for row in ranked], costs.fence)
        bars = [
            {
                "low": low,
                "high": high,
                "units": count,
                "colour": charts.BLUE if high <= costs.fence * (1 + 1e-9) else charts.AMBER,
                "said": f"{high:,.2f}" if high <= costs.fence * (1 + 1e-9) else "any cost above",
            }
            for low, high, count in bins
        ]
        drawing = charts.cost_histogram(bars, title, plural)
    else:
        capped = [{"name": r["name"], value: min(float(r[value]), costs.fence)} for r in ranked]
        drawing = charts.draw_ranked_bars(capped, value, title=f"{title}, capped", most=BARS)
    page.chart(drawing, f"How {plural} cost, in {title}, capped at {costs.fence:,.2f}")
    above = [row for row in ranked if float(row[value]) > costs.fence]
    if above:
        page.note(
            f"Drawn up to {_format_dollars(costs.fence)}; outliers: "
            + "; ".join(
                f"{page.escape(row['name'])} {_format_dollars(float(row[value]))}"
                for row in above[:NAMED]
            )
            + (f"; and {len(above) - NAMED:,} more in the table." if len(above) > NAMED else ".")
        )


def _note_least(least: str) -> None:
    page.note(
        f"A cost per unit is unknown where there is no price, or fewer than {least}: too few."
    )


def _format_dollars(usd: float) -> str:
    return format_money(page.convert_exact(usd))


def _show_rows(
    request: PageRequest,
    rows: pa.Table,
    columns: dict[str, Any],
    table_name: str,
    missing: tuple[str, str],
) -> None:
    """Show rows; if there are none, show that and what to do."""
    if rows.num_rows:
        _show_table(request, rows, columns, table_name)
    else:
        page.show_nothing(*missing)


def _show_table(
    request: PageRequest, rows: pa.Table, columns: dict[str, Any], table_name: str
) -> None:
    """Show the most expensive rows, and how many more there are."""
    most_expensive = rows.slice(0, LISTED)
    subjects = most_expensive.select(["cluster", "workload"]).to_pylist()
    page.show_table(
        most_expensive,
        filters.add_cluster(columns, request),
        table_name=table_name,
        open_row=lambda row: links.open_timeline(**subjects[row]),
        on_phone=("usd", "workload"),
    )
    if rows.num_rows > LISTED:
        many = f"{rows.num_rows:,}; `fallow spend --by workload` has all"
        page.note(f"The {LISTED:,} most expensive of {many}.")


TABS: tabs.Tabs = {
    "Runs": show_runs,
    "Productive GPU-hour": show_owners,
    "Requests and tokens": show_served,
    "Training": show_trained,
}
