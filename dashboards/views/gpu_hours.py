"""From the paid GPU-hours to the productive ones, and the hours of the week."""

from dashboards import chart_data, charts, data, page, tabs
from dashboards.figures import savings as savings_ledger
from dashboards.figures import spend, waterfall
from dashboards.page import PageRequest, format_hours, format_money, format_share
from dashboards.views import gpu_hours_week

TITLE, ICON = "GPU-hours", ":material/waterfall_chart:"

STATES = page.read_columns("gpu_hours/states")
SAVINGS = page.read_columns("gpu_hours/savings")


def show(request: PageRequest) -> None:
    """Draw the page."""
    tabs.show_tabs(TABS, request)


def show_waterfall(request: PageRequest) -> None:
    """Draw the tab of the waterfall."""
    page.show_card(show_states, request)
    page.show_card(show_savings, request)


def show_states(request: PageRequest) -> None:
    """Draw the stages of the paid hours, state by state."""
    waterfall_total = data.query(waterfall.compute_waterfall, request.window, request.filters)
    if not waterfall_total.steps:
        page.show_no_data(request)
        return
    worked = next((s for s in waterfall_total.steps if s.state == "productive"), None)
    paid = data.query(spend.read_totals, request.window, request.filters)
    page.show_metrics(
        (
            "Paid GPU-hours",
            format_hours(waterfall_total.gpu_hours),
            format_money(waterfall_total.usd),
        ),
        (
            "Productive hours",
            format_share(worked.gpu_hours if worked else 0, waterfall_total.gpu_hours),
            format_hours(worked.gpu_hours if worked else 0),
        ),
        ("A paid GPU-hour", format_money(paid.usd_per_gpu_hour), "average of all states"),
        (
            "A productive GPU-hour",
            format_money(paid.usd_per_productive_gpu_hour),
            "bill over working hours",
        ),
    )
    page.chart(
        charts.draw_waterfall(chart_data.build_waterfall_bars(waterfall_total), "GPU-hours"),
        "GPU-hours that were paid, less each state in which nothing grew",
    )
    rows = [
        {
            "state": s.state,
            "meaning": s.meaning,
            "gpu_hours": s.gpu_hours,
            "share_pct": 100 * s.gpu_hours / waterfall_total.gpu_hours,
            "usd": s.usd,
        }
        for s in waterfall_total.steps
    ]
    page.show_table(rows, STATES, table_name="GPU-hours by state")
    page.show_reconciliation(
        request,
        waterfall_total,
        data.query(spend.read_totals, request.window, request.filters),
        data.query(savings_ledger.read_stages, request.window, request.filters),
    )


def show_savings(request: PageRequest) -> None:
    """List what findings would save, each hour once."""
    page.show_heading("What could be saved")
    waterfall_total = data.query(waterfall.compute_waterfall, request.window, request.filters)
    if not waterfall_total.savings:
        page.show_no_findings(
            request,
            (),
            "No finding touches this window.",
            "`fallow analyze` or `fallow up` find waste and store it; then it stands here.",
        )
        return
    rows = [
        {
            **{name: getattr(s, name) for name in s.__struct_fields__},
            "share_pct": 100 * s.gpu_hours / waterfall_total.gpu_hours
            if waterfall_total.gpu_hours
            else 0.0,
        }
        for s in waterfall_total.savings
    ]
    page.show_table(rows, SAVINGS, table_name="What findings would save")
    newest = max(s.found_at for s in waterfall_total.savings)
    page.note(
        f"As the last analysis found it, until {newest:%Y-%m-%d %H:%M} UTC. No GPU-hour is saved "
        f"twice; {format_hours(waterfall_total.kept_gpu_hours)} would stay as they are. Cash: "
        "the bill "
        "falls; "
        "capacity: others get the GPUs; commitment: paid for whatever happens."
    )


TABS: tabs.Tabs = {"Waterfall": show_waterfall, "Hours of the week": gpu_hours_week.show}
