"""Collectors, coverage, lag, limits that refuse scrapes, and audits of the ledger."""

from datetime import datetime

from dashboards import active_settings, charts, data, page
from dashboards.figures import data_health, quality
from dashboards.page import PageRequest, format_hours, format_share
from fallow.window import format_duration
from warehouse import coverage, still_gpus
from warehouse.unknown_names import read_unknown_names

TITLE, ICON = "Data", ":material/fact_check:"

COLLECTORS = page.read_columns("data/collectors")
LIMITS = page.read_columns("data/limits")
SHARDS = page.read_columns("data/shards")
UNKNOWN_NAMES = page.read_columns("data/unknown_names")
GAP = 90.0
"""Percent of the expected samples below which an hour has a gap."""


def show(request: PageRequest) -> None:
    """Draw the page."""
    page.show_card(show_data_health_figures, request)
    page.show_card(show_coverage, request)
    page.show_card(show_collectors, request)
    page.show_card(show_unknown_names, request)
    page.show_card(show_shards, request)
    page.show_card(show_limits, request)


def show_data_health_figures(request: PageRequest) -> None:
    """Show in four figures whether the data are reliable."""
    doubts = data.query(quality.read_ledger_doubts, request.window, request.filters)
    rows, missing = data.query_by_time(
        quality.read_coverage, "hour", request.window, request.filters
    )
    if missing:
        page.show_unreadable(missing)
        return
    coverage_known = [pct for pct in rows["coverage_pct"].to_pylist() if pct is not None]
    accounted = request.extent.accounted
    failed = page.query_audit_banner(request.window) if accounted else None
    lag = (active_settings.get_now() - accounted).total_seconds() if accounted else None
    page.show_metrics(
        (
            "Coverage",
            f"{sum(coverage_known) / len(coverage_known):.1f}%" if coverage_known else "unknown",
            f"{sum(1 for k in coverage_known if k < GAP)} hours with gaps"
            if coverage_known
            else "no scrape is expected in this window",
        ),
        ("Unknown", format_share(doubts.unknown_gpu_hours, doubts.gpu_hours), "of GPU-hours"),
        (
            "Without a price",
            format_share(doubts.unpriced_gpu_hours, doubts.gpu_hours),
            "of GPU-hours",
        ),
        (
            "Ledger",
            _describe_audits(accounted, failed),
            f"{format_duration(max(0.0, lag))} behind now" if lag is not None else "not done yet",
        ),
    )
    oldest = f"{doubts.oldest_price:%Y-%m-%d}" if doubts.oldest_price else "none"
    cluster = request.filters.cluster
    doubted = "".join(
        f"{text}. "
        for describe in (coverage.describe_unseen_gpus, still_gpus.describe_still_gpus)
        if (text := data.query(describe, request.window, cluster, page.escape))
    )
    page.note(
        f"{doubted}"
        f"Oldest price in the window: {oldest}. Devices silent for less than a day: "
        f"{doubts.silent_devices or 0}. Used by no known pod: "
        f"{format_hours(doubts.ownerless_gpu_hours)}. Audits: states add up to capacity, "
        "costs to the "
        "bill, "
        "no device is given away twice, energy agrees with power."
    )


def _describe_audits(accounted: datetime | None, failed: str | None) -> str:
    if failed:
        return "does not add up"
    return "adds up" if accounted else "not written yet"


def show_coverage(request: PageRequest) -> None:
    """Draw coverage hour by hour."""
    page.show_heading("Scrapes, of those expected")
    rows, missing = data.query_by_time(
        quality.read_coverage, "hour", request.window, request.filters
    )
    page.show_unreadable(missing)
    if not rows.num_rows:
        page.show_nothing(
            "Nothing is rolled up in this window.",
            "`fallow up` rolls up every five minutes; `fallow collect --once` does it now.",
        )
        return
    recent = rows.slice(max(0, rows.num_rows - charts.MOST_POINTS // 3))
    page.chart(charts.draw_coverage_lines(recent), "Percent of the expected scrapes, hour by hour")


def show_collectors(request: PageRequest) -> None:
    """List the results of collectors' scrapes and polls."""
    page.show_heading("Collectors")
    minute = active_settings.get_now().replace(second=0, microsecond=0)
    rows = data.query(quality.read_collectors, request.window, request.filters, minute)
    if not rows.num_rows:
        page.show_nothing(
            "No collector ran in this window.",
            "`fallow doctor` says what sources lack; `fallow up` asks them.",
        )
        return
    table_rows = [{**row, "age": _format_age(row["lag_min"])} for row in rows.to_pylist()]
    page.show_table(table_rows, COLLECTORS, table_name="Collectors, the worst first")


def _format_age(minutes: float | None) -> str:
    """Return how long ago a collector's last success was, in its two largest units."""
    return "never" if minutes is None else format_duration(round(minutes) * 60)


def show_unknown_names(request: PageRequest) -> None:
    """List names that nothing explains, and nodes whose GPUs are counted differently."""
    minute = active_settings.get_now().replace(second=0, microsecond=0)
    rows = data.query(read_unknown_names, minute, request.filters.cluster)
    if not rows.num_rows:
        return
    page.show_heading("Names that nothing explains")
    page.show_table(rows, UNKNOWN_NAMES, table_name="Names, those of the most GPUs first")
    page.note(
        "What such a name stands for is not counted, or unknown. A node of the kind `count` has "
        "independent counts that differ: the number of its GPUs here is paid."
    )


def show_shards(request: PageRequest) -> None:
    """List the shards of the collection, lost ones first; none with an embedded warehouse."""
    rows = data.query(data_health.read_shards, request.filters.cluster)
    if not rows.num_rows:
        return
    page.show_heading("Shards of the collection")
    page.show_table(rows, SHARDS, table_name="Shards, lost ones first", missing="never started")
    if lost := sum(rows["uncollected"].to_pylist()):
        page.note(
            f"Nobody collects {lost:,} targets now: their GPUs are unknown until a collector runs "
            "for each lost shard (`fallow up --role collector --shard N/COUNT`)."
        )


def show_limits(request: PageRequest) -> None:
    """List the limits that refused scrapes: what they refused is missing from every figure."""
    page.show_heading("Limits that refuse scrapes")
    rows = data.query(quality.read_limits, request.window, request.filters)
    if not rows.num_rows:
        page.show_nothing(
            "No limit refused a scrape in this window.",
            "The limits are `exporters.sample_limit`, `exporters.body_size_limit` and "
            "`prometheus.body_size_limit`.",
        )
        return
    page.show_table(rows, LIMITS, table_name="Limits that refused scrapes")
    page.note(
        "A refused scrape is missing as a whole: its GPUs are unknown for that time. Raise the "
        "limit of that name in the settings, or let the exporter give fewer series."
    )
