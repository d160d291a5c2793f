"""Collectors, coverage, lag, limits that refuse scrapes, and audits of the ledger."""

from datetime import UTC, datetime

from dashboards import charts, data, page
from dashboards.figures import data_health, quality
from dashboards.page import PageRequest, hours, share
from fallow.window import format_duration

TITLE, ICON = "Data", ":material/fact_check:"

COLLECTORS = {
    "collector": page.name("collector"),
    "cluster": page.name("cluster", "small"),
    "up_pct": page.percent("scrapes that succeeded"),
    "last_success": page.time_column("last success"),
    "lag_min": page.number("minutes ago", "before now"),
    "targets": page.number("targets"),
    "targets_failed": page.number("targets that failed"),
    "scrapes": page.number("scrapes"),
    "samples": page.number("values read"),
    "rejected": page.number("values refused"),
    "seconds": page.number("seconds a scrape"),
    "error": page.name("last error", "large"),
}
LIMITS = {
    "limit_name": page.name("limit"),
    "collector": page.name("collector", "small"),
    "cluster": page.name("cluster", "small"),
    "targets": page.number("targets refused"),
    "scrapes": page.number("scrapes refused"),
    "last_refusal": page.time_column("last refusal"),
    "error": page.name("newest error", "large"),
}
GAP = 90.0
"""Percent of the expected samples below which an hour has a gap."""


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.card(data_health_figures, request)
    page.card(coverage, request)
    page.card(collectors, request)
    page.card(limits, request)


def data_health_figures(request: PageRequest) -> None:
    """Show in four figures whether the data are reliable."""
    doubts = data.query(quality.ledger_doubts, request.window, request.filters)
    coverage_rows = data.query(quality.coverage, request.window, request.filters).to_pylist()
    coverage_known = [
        row["coverage_pct"] for row in coverage_rows if row["coverage_pct"] is not None
    ]
    accounted = request.extent.accounted
    failed = data.query_rarely(data_health.audits, request.window) if accounted else None
    lag = (datetime.now(UTC) - accounted).total_seconds() if accounted else None
    page.metrics(
        (
            "Coverage",
            f"{sum(coverage_known) / len(coverage_known):.1f}%" if coverage_known else "unknown",
            f"{sum(1 for k in coverage_known if k < GAP)} hours with gaps"
            if coverage_known
            else "no scrape is expected in this window",
        ),
        ("Unknown", share(doubts.unknown_gpu_hours, doubts.gpu_hours), "of GPU-hours"),
        ("Without a price", share(doubts.unpriced_gpu_hours, doubts.gpu_hours), "of GPU-hours"),
        (
            "Ledger",
            _audits(accounted, failed),
            f"{format_duration(max(0.0, lag))} behind now" if lag is not None else "not done yet",
        ),
    )
    oldest = f"{doubts.oldest_price:%Y-%m-%d}" if doubts.oldest_price else "none"
    page.note(
        f"Oldest price in the window: {oldest}. Devices silent for less than a day: "
        f"{doubts.silent_devices or 0}. Used by no known pod: "
        f"{hours(doubts.ownerless_gpu_hours)}. Audits: states add up to capacity, costs to the "
        "bill, "
        "no device is given away twice, energy agrees with power."
    )


def _audits(accounted: datetime | None, failed: str | None) -> str:
    if failed:
        return "does not add up"
    return "adds up" if accounted else "not written yet"


def coverage(request: PageRequest) -> None:
    """Draw coverage hour by hour."""
    page.heading("Scrapes, of those expected")
    rows, missing = data.query_by_time(quality.coverage, "hour", request.window, request.filters)
    page.show_unreadable(missing)
    if not rows.num_rows:
        page.show_nothing(
            "Nothing is rolled up in this window.",
            "`fallow up` rolls up every five minutes; `fallow collect --once` does it now.",
        )
        return
    recent = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(charts.coverage_lines(recent), "Percent of the expected scrapes, hour by hour")


def collectors(request: PageRequest) -> None:
    """List the results of collectors' scrapes and polls."""
    page.heading("Collectors")
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    rows = data.query(quality.collectors, request.window, request.filters, minute)
    if not rows.num_rows:
        page.show_nothing(
            "No collector looked in this window.",
            "`fallow doctor` says what sources lack; `fallow up` asks them.",
        )
        return
    page.table(rows, COLLECTORS, table_name="Collectors, the worst first")


def limits(request: PageRequest) -> None:
    """List the limits that refused scrapes: what they refused is missing from every figure."""
    page.heading("Limits that refuse scrapes")
    rows = data.query(quality.limits, request.window, request.filters)
    if not rows.num_rows:
        page.show_nothing(
            "No limit refused a scrape in this window.",
            "The limits are `exporters.sample_limit`, `exporters.body_size_limit` and "
            "`prometheus.body_size_limit`.",
        )
        return
    page.table(rows, LIMITS, table_name="Limits that refused scrapes")
    page.note(
        "A refused scrape is missing as a whole: its GPUs are unknown for that time. Raise the "
        "limit of that name in the settings, or let the exporter give fewer series."
    )
