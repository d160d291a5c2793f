"""Can the rest be relied upon: collectors up, coverage, lag, audits of the ledger."""

from datetime import UTC, datetime

from dashboards import charts, data, page
from dashboards.figures import quality, standing
from dashboards.page import Asked, hours, share
from fallow.window import format_duration

TITLE, ICON, ORDER = "Data quality", ":material/fact_check:", 110

COLLECTORS = {
    "collector": page.name("collector"),
    "cluster": page.name("cluster", "small"),
    "up_pct": page.percent("looks that succeeded"),
    "last_success": page.moment("last success"),
    "lag_min": page.number("minutes ago", "before now"),
    "targets": page.number("targets"),
    "targets_failed": page.number("targets that failed"),
    "looks": page.number("looks"),
    "samples": page.number("values read"),
    "rejected": page.number("values refused"),
    "seconds": page.number("seconds a look"),
    "error": page.name("last error", "large"),
}
GAP = 90.0
"""Percent of the expected looks below which an hour has a gap."""


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(standing_of, asked)
    page.card(coverage, asked)
    page.card(collectors, asked)


def standing_of(asked: Asked) -> None:
    """Say in four figures whether to rely on the rest."""
    made = data.ask(quality.books, asked.window, asked.filters)
    looks = data.ask(quality.coverage, asked.window, asked.filters).to_pylist()
    known = [row["coverage_pct"] for row in looks if row["coverage_pct"] is not None]
    accounted = asked.extent.accounted
    failed = data.ask_seldom(standing.audits, asked.window) if accounted else None
    lag = (datetime.now(UTC) - accounted).total_seconds() if accounted else None
    page.metrics(
        (
            "Coverage",
            f"{sum(known) / len(known):.1f}%" if known else "-",
            f"{sum(1 for k in known if k < GAP)} hours with gaps",
        ),
        ("Unknown", share(made.unknown_gpu_hours, made.gpu_hours), "of GPU-hours"),
        ("Without a price", share(made.unpriced_gpu_hours, made.gpu_hours), "of GPU-hours"),
        (
            "Ledger",
            _audits(accounted, failed),
            f"{format_duration(max(0.0, lag))} behind now" if lag is not None else "not done yet",
        ),
    )
    oldest = f"{made.oldest_price:%Y-%m-%d}" if made.oldest_price else "none"
    page.note(
        f"Oldest price in the window: {oldest}. Devices gone silent within a day: "
        f"{made.silent_devices or 0}. Used by nobody that is known: "
        f"{hours(made.ownerless_gpu_hours)}. Audits: states add up to capacity, costs to the bill, "
        "no device is given away twice, energy agrees with power."
    )


def _audits(accounted: datetime | None, failed: str | None) -> str:
    if failed:
        return "does not add up"
    return "adds up" if accounted else "not written yet"


def coverage(asked: Asked) -> None:
    """Draw coverage hour by hour."""
    page.heading("Looks made, of looks expected")
    rows = data.ask(quality.coverage, asked.window, asked.filters)
    if not rows.num_rows:
        page.nothing(
            "Nothing is rolled up in this window.",
            "`fallow up` rolls up every five minutes; `fallow collect --once` does it now.",
        )
        return
    drawn = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(charts.coverage_lines(drawn), "Percent of the expected looks, hour by hour")


def collectors(asked: Asked) -> None:
    """List how collectors' looks went."""
    page.heading("Collectors")
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    rows = data.ask(quality.collectors, asked.window, asked.filters, minute)
    if not rows.num_rows:
        page.nothing(
            "No collector looked in this window.",
            "`fallow doctor` says what sources lack; `fallow up` asks them.",
        )
        return
    page.table(rows, COLLECTORS, called="Collectors, the worst first")
