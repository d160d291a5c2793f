"""One page to forward: what was paid, used and wasted, and what was done about it."""

from decimal import Decimal

from dashboards import charts, data, page
from dashboards.figures import savings, spend, waste, waterfall
from dashboards.page import PageRequest, hours, hours_of, money, share
from dashboards.views.spend_waste import COLUMNS

TITLE, ICON = "Overview", ":material/home:"
COLUMN_NAMES = (
    "name", "waste_usd", "waste_usd_pct", "idle_usd", "free_usd", "lost_usd", "waste_gpu_hours",
    "waste_pct", "busy_pct", "effective_pct",
)  # fmt: skip
WORST = 10


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.card(headline, request)
    page.card(over_time, request)
    page.card(worst, request)


def headline(request: PageRequest) -> None:
    """Show the window in five figures, and how they relate."""
    waterfall_total = data.query(waterfall.waterfall, request.window, request.filters)
    stages_reached = data.query(savings.stages, request.window, request.filters)
    if not waterfall_total.steps:
        page.show_no_data(request)
        return
    paid = data.query(spend.totals, request.window, request.filters)
    state = {step.state: step for step in waterfall_total.steps}
    wasted = [state[name] for name in waste.STATES if name in state]
    lost = sum(step.gpu_hours for step in wasted)
    usd = sum((step.usd for step in wasted if step.usd is not None), page.exact(0))
    worked = state["productive"].gpu_hours if "productive" in state else 0.0
    page.metrics(
        ("Paid", money(waterfall_total.usd), hours(waterfall_total.gpu_hours)),
        ("Productive", share(worked, waterfall_total.gpu_hours), hours(worked)),
        page.utilised(paid.effective, paid.measured_gpu_hours),
        (
            "Wasted",
            money(None if waterfall_total.usd is None else usd),
            wasted_of(waterfall_total, usd, lost),
        ),
        (
            "Could be saved",
            money(stages_reached.identified_usd)
            if stages_reached.identified
            else money(page.exact(0)),
            f"{stages_reached.identified} findings",
        ),
    )
    page.reconciled(request, waterfall_total, stages_reached)


def wasted_of(waterfall_total: waterfall.GpuHourWaterfall, usd: Decimal, gpu_hours: float) -> str:
    """Return the line under the wasted dollars: their share, then the hours and their share."""
    of_hours = hours_of(gpu_hours, waterfall_total.gpu_hours)
    return (
        of_hours
        if waterfall_total.usd is None
        else f"{share(usd, waterfall_total.usd)} of the bill; {of_hours}"
    )


def over_time(request: PageRequest) -> None:
    """Draw dollars per day and state."""
    rows = data.query(spend.daily, request.window, request.filters)
    if rows.num_rows:
        priced = any(usd is not None for usd in rows["usd"].to_pylist())
        unit = "usd" if priced else "gpu_hours"
        page.chart(charts.states_over_time(rows, unit), "Per day, stacked by state of the GPUs")


def worst(request: PageRequest) -> None:
    """List the teams with the most waste."""
    rows = data.query(waste.by_owner, request.window, request.filters, "team")
    if rows.num_rows:
        page.heading("Who could save most")
        columns_shown = {name: COLUMNS[name] for name in COLUMN_NAMES}
        page.table(rows.slice(0, WORST), columns_shown, table_name="The teams that wasted most")
