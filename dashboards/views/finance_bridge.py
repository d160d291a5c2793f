"""Why this window cost more or less than the one before: volume, waste, mix, price."""

from datetime import timedelta

from dashboards import charts, data, drawn, page
from dashboards.figures import bridge
from dashboards.page import Asked, hours, money
from fallow.window import Window

TITLE, ICON, ORDER = "Bill bridge", ":material/stacked_bar_chart:", 20


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(steps, asked)


def steps(asked: Asked) -> None:
    """Draw the way from one bill to the next, and list its steps."""
    made = data.ask(bridge.bridge, asked.window, asked.filters)
    if made is None:
        _nothing(asked)
        return
    change = made.usd_after - made.usd_before
    page.metrics(
        ("Before", money(made.usd_before), spoken(made.before)),
        ("After", money(made.usd_after), spoken(made.after)),
        ("Change", money(change), page.share(change, made.usd_before)),
        (
            "Wasted GPU-hours",
            hours(made.waste_after),
            f"{hours(made.waste_before)} before",
        ),
    )
    page.chart(
        charts.fall(drawn.bridged(made), "USD"),
        f"From {made.usd_before:,.0f} to {made.usd_after:,.0f} US dollars by volume "
        f"{made.volume:+,.0f}, waste {made.waste:+,.0f}, mix {made.mix:+,.0f}, "
        f"price {made.price:+,.0f}",
    )
    rows = [
        {"step": step, "usd": getattr(made, step), "told": told}
        for step, told in drawn.BRIDGE.items()
    ]
    rows = [
        {"step": "before", "usd": made.usd_before, "told": spoken(made.before)},
        *rows,
        {"step": "after", "usd": made.usd_after, "told": spoken(made.after)},
    ]
    columns = {"step": page.name("step", "small"), "usd": page.usd("USD")}
    page.table(rows, {**columns, "told": page.name("what it is", "large")}, called="Bill bridge")
    page.note(
        "Hours without a price are in neither bill. The four steps sum to the change exactly."
    )


def spoken(window: Window) -> str:
    """Write a window in a few characters."""
    form = "%d %b" if window.seconds % 86400 == 0 else "%d %b %H:%M"
    return f"{window.start:{form}} to {window.end:{form}}"


def _nothing(asked: Asked) -> None:
    held = asked.extent.looks
    longest = (held.end - held.start) / 2
    half = int(longest / timedelta(hours=1))
    page.nothing(
        "There is no bill before this window to compare with.",
        f"The data begin {held.start:%Y-%m-%d %H:%M} UTC: a window of {half}h or less has one "
        "before it, once filters name somebody who was there.",
    )
