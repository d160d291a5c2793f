"""What was paid, by any dimension; forecast and budget, the change, commitments, waste."""

from dashboards import charts, data, filters, links, page, tabs
from dashboards.figures import spend
from dashboards.page import PageRequest
from dashboards.views import spend_bridge, spend_commitments, spend_forecast, spend_waste
from warehouse import restatements

TITLE, ICON = "Spend", ":material/payments:"

COLUMNS = page.read_columns("spend/columns")

SUMS = ("usd", "gpu_hours", "share_pct", "idle_usd", "unknown_gpu_hours", "unpriced_gpu_hours")


def show(request: PageRequest) -> None:
    """Draw the page."""
    tabs.show_tabs(TABS, request)


def show_dimensions(request: PageRequest) -> None:
    """Draw the tab of spend by any dimension of the ledger."""
    page.show_card(spend_forecast.show_figures, request)
    page.show_card(show_by_name, request)
    page.show_card(show_over_time, request)


def show_over_time(request: PageRequest) -> None:
    """Draw dollars per day and state."""
    rows = data.query(spend.read_daily, request.window, request.filters)
    if not rows.num_rows:
        page.show_no_data(request)
        return
    priced = any(usd is not None for usd in rows["usd"].to_pylist())
    page.show_heading("What was paid, by what the GPUs did")
    unit = "usd" if priced else "gpu_hours"
    page.chart(charts.draw_states_over_time(rows, unit), "Per day, stacked by state of the GPUs")
    cluster = request.filters.cluster
    for line in data.query(restatements.write_notes, request.window, cluster):
        page.note(line)


def show_by_name(request: PageRequest) -> None:
    """List the spend by name."""
    page.show_heading("Who spent it")
    key = page.choose_by(spend.KEYS)
    rows = data.query(spend.read_statement, request.window, request.filters, key)
    if rows.num_rows:
        names, clusters = rows["name"].to_pylist(), rows["cluster"].to_pylist()
        now = data.query(spend.read_totals, request.window, request.filters)
        page.show_table(
            rows,
            filters.add_cluster_of_workloads(COLUMNS, request, key),
            table_name=f"Spend by {key}",
            in_csv=() if now.unpriced_gpu_hours else ("unpriced_gpu_hours",),
            open_row=lambda row: links.open_owner(key, names[row], clusters[row]),
            total=page.sum_rows(
                rows,
                SUMS,
                name="total",
                busy_pct=page.compute_percent(now.busy, 1),
                effective_pct=page.compute_percent(now.effective, 1),
            ),
        )
        page.note(links.OPENS)
    else:
        page.show_no_data(request)


TABS: tabs.Tabs = {
    "By dimension": show_dimensions,
    "Forecast and budget": spend_forecast.show,
    "Bridge": spend_bridge.show,
    "Commitments": spend_commitments.show,
    "Waste by owner": spend_waste.show,
}
