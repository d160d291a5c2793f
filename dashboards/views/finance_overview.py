"""One page to forward: what was paid, what grew, what lay fallow, what was done about it."""

from dashboards import charts, data, page
from dashboards.figures import savings, spend, waste, waterfall
from dashboards.page import Asked, hours, money, share
from dashboards.views.finance_waste import COLUMNS

TITLE, ICON, ORDER = "Overview", ":material/home:", 0
SHOWN = ("name", "waste_usd", "waste_pct", "idle_usd", "free_usd", "lost_usd", "waste_gpu_hours")
WORST = 10


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(headline, asked)
    page.card(over_time, asked)
    page.card(worst, asked)


def headline(asked: Asked) -> None:
    """Say the window in four figures."""
    made = data.ask(waterfall.waterfall, asked.window, asked.filters)
    done = data.ask(savings.stages, asked.window, asked.filters)
    if not made.steps:
        page.nobody(asked)
        return
    state = {step.state: step for step in made.steps}
    wasted = [state[name] for name in waste.STATES if name in state]
    lost = sum(step.gpu_hours for step in wasted)
    usd = sum((step.usd for step in wasted if step.usd is not None), page.exact(0))
    worked = state["productive"].gpu_hours if "productive" in state else 0.0
    page.metrics(
        ("Paid", money(made.usd), hours(made.gpu_hours)),
        ("Productive", share(worked, made.gpu_hours), hours(worked)),
        (
            "Wasted",
            money(None if made.usd is None else usd),
            f"{hours(lost)}, {share(lost, made.gpu_hours)}",
        ),
        (
            "Could be saved",
            money(done.identified_usd) if done.identified else money(page.exact(0)),
            f"{done.identified} findings",
        ),
    )


def over_time(asked: Asked) -> None:
    """Draw dollars per day and state."""
    rows = data.ask(spend.daily, asked.window, asked.filters)
    if rows.num_rows:
        priced = any(usd is not None for usd in rows["usd"].to_pylist())
        unit = "usd" if priced else "gpu_hours"
        page.chart(charts.states_over_time(rows, unit), "Per day, stacked by state of the GPUs")


def worst(asked: Asked) -> None:
    """List the teams that wasted most."""
    rows = data.ask(waste.by_owner, asked.window, asked.filters, "team")
    if rows.num_rows:
        page.heading("Who could save most")
        shown = {name: COLUMNS[name] for name in SHOWN}
        page.table(rows.slice(0, WORST), shown, called="The teams that wasted most")
