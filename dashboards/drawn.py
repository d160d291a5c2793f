"""What charts are drawn from, made of figures: pages and reports draw the same."""

from decimal import Decimal
from typing import Any

from dashboards import charts
from dashboards.figures import bridge, savings, spend, waterfall

BRIDGE = {
    "volume": "GPU-hours that were not wasted, at the average rate before",
    "waste": "idle, lost, free, stranded and broken GPU-hours, at the same rate",
    "mix": "hours moved to dearer or cheaper kinds of capacity",
    "price": "the same kinds of capacity at other rates",
}
"""The steps of the bill bridge, in their order, and what they mean."""


def fall(made: waterfall.Waterfall) -> list[dict[str, Any]]:
    """Return the bars of the GPU-hour waterfall for `charts.fall`."""
    whole = made.gpu_hours
    rows: list[dict[str, Any]] = [
        {"name": "paid", "low": 0.0, "high": whole, "amount": whole, "colour": charts.SLATE}
    ]
    return rows + [
        {
            "name": step.state,
            "low": max(0.0, step.left_gpu_hours - step.gpu_hours),
            "high": step.left_gpu_hours,
            "amount": step.gpu_hours,
            "colour": charts.STATE_COLOURS[step.state],
        }
        for step in made.steps
    ]


def bridged(made: bridge.Bridge) -> list[dict[str, Any]]:
    """Return the bars of the bill bridge for `charts.fall`."""
    at = float(made.usd_before)
    rows = [_bar("before", 0.0, at, at, charts.BLUE)]
    for step in BRIDGE:
        amount = float(getattr(made, step))
        colour = charts.RED if amount > 0 else charts.GREEN
        rows.append(_bar(step, min(at, at + amount), max(at, at + amount), amount, colour))
        at += amount
    after = float(made.usd_after)
    return [*rows, _bar("after", 0.0, after, after, charts.BLUE)]


def staged(made: savings.Stages) -> list[dict[str, Any]]:
    """Return the stages of savings for `charts.funnel`."""
    return [
        _stage("identified", made.identified_usd, charts.GREY),
        _stage("approved", made.approved_usd, charts.VIOLET),
        _stage("acted", made.acted_usd, charts.BLUE),
        _stage("verified", made.verified_usd, charts.GREEN),
    ]


def month(made: spend.Month) -> list[dict[str, Any]]:
    """Return the days of a month for `charts.month_end`."""
    budget = None if made.budget is None else float(made.budget)
    return [
        {**{name: getattr(point, name) for name in point.__struct_fields__}, "budget": budget}
        for point in made.path
    ]


def _bar(name: str, low: float, high: float, amount: float, colour: str) -> dict[str, Any]:
    return {"name": name, "low": low, "high": high, "amount": amount, "colour": colour}


def _stage(name: str, usd: Decimal | None, colour: str) -> dict[str, Any]:
    return {"name": name, "usd": usd or 0, "colour": colour, "said": f"${usd or 0:,.0f}"}
