"""Why this window cost more or less than the one before it: volume, waste, mix, price."""

from datetime import timedelta

from dashboards import chart_data, charts, data, page
from dashboards.figures import bridge, overview, spend
from dashboards.page import PageRequest, format_hours, format_money
from fallow.window import Window, format_duration
from warehouse import coverage


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_steps, request)


def show_steps(request: PageRequest) -> None:
    """Draw the steps from one bill to the next, and list them."""
    bill_bridge = data.query(bridge.bridge, request.window, request.filters)
    if bill_bridge is None:
        _show_nothing(request)
        return
    change = bill_bridge.change
    page.show_metrics(
        ("Before", format_money(bill_bridge.usd_before), format_window(bill_bridge.before)),
        ("After", format_money(bill_bridge.usd_after), format_window(bill_bridge.after)),
        ("Change", format_money(change), page.format_share(change, bill_bridge.usd_before)),
        (
            "Wasted GPU-hours",
            format_hours(bill_bridge.waste_after),
            f"{format_hours(bill_bridge.waste_before)} before",
        ),
    )
    page.chart(
        charts.draw_waterfall(chart_data.bridge_bars(bill_bridge), "USD"),
        f"From {bill_bridge.usd_before:,.0f} to {bill_bridge.usd_after:,.0f} US dollars by volume "
        f"{bill_bridge.volume:+,.0f}, waste {bill_bridge.waste:+,.0f}, mix "
        f"{bill_bridge.mix:+,.0f}, "
        f"price {bill_bridge.price:+,.0f}",
    )
    rows = [
        {"step": step, "usd": getattr(bill_bridge, step), "meaning": meaning}
        for step, meaning in chart_data.BRIDGE.items()
    ]
    rows = [
        {
            "step": "before",
            "usd": bill_bridge.usd_before,
            "meaning": format_window(bill_bridge.before),
        },
        *rows,
        {
            "step": "after",
            "usd": bill_bridge.usd_after,
            "meaning": format_window(bill_bridge.after),
        },
    ]
    columns = {"step": page.name("step", "small"), "usd": page.configure_usd("USD", cents=True)}
    page.show_table(
        rows, {**columns, "meaning": page.name("what it is", "large")}, table_name="Bill bridge"
    )
    page.note(
        f"Compared with {overview.describe_window_before(request.window)}. Hours without a price "
        "are in neither bill. The four steps sum to the change exactly."
        + describe_difference(request, bill_bridge)
    )


def describe_difference(request: PageRequest, bill_bridge: bridge.Bridge) -> str:
    """Return what makes the two windows differ besides their use: days, and hours without data."""
    before, after = bill_bridge.before, bill_bridge.after
    text = ""
    if before.seconds != after.seconds:
        text = (
            f" {format_duration(after.seconds)} against {format_duration(before.seconds)}: the "
            "difference in days is part of volume."
        )
    covered = data.query(coverage.measure_coverage, before, {}, request.filters.cluster)
    if covered.hours_with_data < covered.hours:
        text += (
            f" Only {covered.hours_with_data:,} of {covered.hours:,} h before have data: the hours "
            "without data are part of volume too."
        )
    return text


def format_window(window: Window) -> str:
    """Return a window in a few characters."""
    form = "%d %b" if window.seconds % 86400 == 0 else "%d %b %H:%M"
    return f"{window.start:{form}} to {window.end:{form}}"


def _show_nothing(request: PageRequest) -> None:
    data_window = request.extent.samples
    start = data.query(spend.find_comparable_start, data_window, request.filters.cluster)
    half = (data_window.end - start) // timedelta(hours=2) * 3600
    words = overview.describe_window_before(request.window)
    page.show_nothing(
        f"There is no bill of the same clusters in {words} to compare with.",
        f"The data of every cluster begin {start:%Y-%m-%d %H:%M} UTC: "
        f"a window of {format_duration(half)} or less has one before it, once filters name "
        "somebody who was there.",
    )
