"""From the GPU-hours that were paid to those that grew, and what could be saved of the rest."""

from dashboards import charts, data, drawn, page
from dashboards.figures import waterfall
from dashboards.page import Asked, hours, money, share

TITLE, ICON, ORDER = "GPU-hour waterfall", ":material/waterfall_chart:", 30

STATES = {
    "state": page.name("state", "small"),
    "meaning": page.name("meaning"),
    "gpu_hours": page.number("GPU-hours"),
    "share_pct": page.percent("of the paid"),
    "usd": page.usd("USD"),
}
SAVINGS = {
    "analyzer": page.name("found by", "small"),
    "evidence": page.name("evidence", "small"),
    "saving": page.name("saves", "small"),
    "findings": page.number("findings"),
    "gpu_hours": page.number("GPU-hours"),
    "share_pct": page.percent("of the paid"),
    "usd": page.usd("USD"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(states, asked)
    page.card(savings, asked)


def states(asked: Asked) -> None:
    """Draw how the paid hours fall, state by state."""
    made = data.ask(waterfall.waterfall, asked.window, asked.filters)
    if not made.steps:
        page.nobody(asked)
        return
    worked = next((s for s in made.steps if s.state == "productive"), None)
    rate = None if made.usd is None or not made.gpu_hours else made.usd / page.exact(made.gpu_hours)
    page.metrics(
        ("Paid", hours(made.gpu_hours), money(made.usd)),
        (
            "Productive",
            share(worked.gpu_hours if worked else 0, made.gpu_hours),
            hours(worked.gpu_hours if worked else 0),
        ),
        ("A paid GPU-hour", money(rate), "average of all states"),
        (
            "A productive one",
            money(
                None if made.usd is None or not worked else made.usd / page.exact(worked.gpu_hours)
            ),
            "bill over working hours",
        ),
    )
    page.chart(
        charts.fall(drawn.fall(made), "GPU-hours"),
        "GPU-hours that were paid, less each state in which nothing grew",
    )
    rows = [
        {
            "state": s.state,
            "meaning": s.meaning,
            "gpu_hours": s.gpu_hours,
            "share_pct": 100 * s.gpu_hours / made.gpu_hours,
            "usd": s.usd,
        }
        for s in made.steps
    ]
    page.table(rows, STATES, called="GPU-hours by state")


def savings(asked: Asked) -> None:
    """List what findings would save, each hour once."""
    page.heading("What could be saved")
    made = data.ask(waterfall.waterfall, asked.window, asked.filters)
    if not made.savings:
        page.none(
            asked,
            (),
            "No finding touches this window.",
            "`fallow analyze` or `fallow up` find waste and store it; then it stands here.",
        )
        return
    rows = [
        {
            **{name: getattr(s, name) for name in s.__struct_fields__},
            "share_pct": 100 * s.gpu_hours / made.gpu_hours if made.gpu_hours else 0.0,
        }
        for s in made.savings
    ]
    page.table(rows, SAVINGS, called="What findings would save")
    found = max(s.found_at for s in made.savings)
    page.note(
        f"As the last analysis found it, until {found:%Y-%m-%d %H:%M} UTC. No GPU-hour is saved "
        f"twice; {hours(made.kept_gpu_hours)} would stay as they are. Cash: the bill falls; "
        "capacity: others get the GPUs; commitment: paid for whatever happens."
    )
