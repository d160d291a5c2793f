"""Turn figures into chart data: pages and reports draw the same."""

from decimal import Decimal
from typing import Any

from dashboards import charts
from dashboards.figures import bridge, funnel, savings, spend, waterfall
from dashboards.text import format_share

BRIDGE = {
    "volume": "GPU-hours that were not wasted, at the average rate before",
    "waste": "idle, lost, free, stranded and broken GPU-hours, at the same rate",
    "mix": "hours moved to dearer or cheaper kinds of capacity",
    "price": "the same kinds of capacity at other rates",
}
"""The steps of the bill bridge in their order, with their meaning."""


def build_waterfall_bars(waterfall_total: waterfall.GpuHourWaterfall) -> list[dict[str, Any]]:
    """Return the bars of the GPU-hour waterfall for `charts.draw_waterfall`."""
    total = waterfall_total.gpu_hours
    rows: list[dict[str, Any]] = [
        {"name": "paid", "low": 0.0, "high": total, "amount": total, "colour": charts.SLATE}
    ]
    return rows + [
        {
            "name": step.state,
            "low": max(0.0, step.left_gpu_hours - step.gpu_hours),
            "high": step.left_gpu_hours,
            "amount": step.gpu_hours,
            "colour": charts.STATE_COLOURS[step.state],
        }
        for step in waterfall_total.steps
    ]


def bridge_bars(bill_bridge: bridge.Bridge) -> list[dict[str, Any]]:
    """Return the bars of the bill bridge for `charts.draw_waterfall`."""
    at = float(bill_bridge.usd_before)
    rows = [_build_bar("before", 0.0, at, at, charts.BLUE)]
    for step in BRIDGE:
        amount = float(getattr(bill_bridge, step))
        colour = charts.RED if amount > 0 else charts.GREEN
        rows.append(_build_bar(step, min(at, at + amount), max(at, at + amount), amount, colour))
        at += amount
    after = float(bill_bridge.usd_after)
    return [*rows, _build_bar("after", 0.0, after, after, charts.BLUE)]


def build_savings_stages(savings_stages: savings.Stages) -> list[dict[str, Any]]:
    """Return the stages of savings for `charts.funnel`."""
    return [
        _stage("identified", savings_stages.identified_usd, charts.GREY),
        _stage("approved", savings_stages.approved_usd, charts.VIOLET),
        _stage("acted", savings_stages.acted_usd, charts.BLUE),
        _stage("verified", savings_stages.verified_usd, charts.GREEN),
    ]


def build_funnel_stages(whole: funnel.FunnelPart) -> list[dict[str, Any]]:
    """Return the stages of the paid hours for `charts.draw_funnel`, up to the last known one."""
    rows = [{"name": "paid", "share": 1.0, "colour": charts.SLATE, "said": ""}]
    before = "paid"
    for name, factor, left in whole.stages:
        label = format_share(left, 1)
        if before != "paid":
            label += f" ({format_share(factor, 1)} of {before})"
        rows.append({"name": name, "share": left, "colour": charts.BLUE, "said": label})
        before = name
    return [row for row in rows if row["share"] is not None]


def build_month_days(month_spend: spend.Month) -> list[dict[str, Any]]:
    """Return the days of a month for `charts.month_end`."""
    budget = None if month_spend.budget is None else float(month_spend.budget)
    return [
        {**{name: getattr(point, name) for name in point.__struct_fields__}, "budget": budget}
        for point in month_spend.path
    ]


def _build_bar(name: str, low: float, high: float, amount: float, colour: str) -> dict[str, Any]:
    return {"name": name, "low": low, "high": high, "amount": amount, "colour": colour}


def _stage(name: str, usd: Decimal | None, colour: str) -> dict[str, Any]:
    return {"name": name, "usd": usd or 0, "colour": colour, "said": f"${usd or 0:,.0f}"}
