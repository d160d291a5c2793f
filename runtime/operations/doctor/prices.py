"""Check whether there are prices, how old they are, and which GPUs have none."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow, format_few
from collectors.prices.aws import AwsPrices
from fallow import plugins
from fallow.errors import FallowError, UsageError
from fallow.resources import read_text
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting.prices import read_configured_rates, read_plugin_rates
from runtime.operations.doctor.fault import build_fault_row
from warehouse.pricing import find_conflicts, identify_home, list_other_homes

if TYPE_CHECKING:
    from fallow.protocols import Views
    from warehouse.lake import Warehouse

MAX_AGE = timedelta(days=365)
"""List prices of GPUs fell by a third or more within a year (telemetry-and-waste.md#money)."""
RECENT = timedelta(days=7)
SETTING = "set prices.by_model or prices.usd_per_gpu_hour (docs/prices.md)"


def check_prices(settings: Settings, now: datetime) -> Iterator[CheckRow]:
    """Read the price sources as collecting does, AWS among them."""
    try:
        rates = read_configured_rates(settings, now)[0].rows
    except UsageError as error:
        yield build_fault_row("prices", error, SETTING)
    else:
        dates = [m.replace(tzinfo=UTC) for m in rates["as_of"].to_pylist() if m is not None]
        first, last = min(dates), max(dates)
        finding = f"{rates.num_rows:,} rates as of {first:%Y-%m-%d} to {last:%Y-%m-%d}"
        if now - last <= MAX_AGE:
            yield CheckRow("prices", "ok", finding)
        else:
            step = (
                "the newest is over a year old: prices.rate_card with today's, or prices.by_model"
            )
            yield CheckRow("prices", "warn", finding, step)
    yield from _check_aws(settings, now)
    for name in plugins.list_configured("prices", settings.plugins):
        try:
            batch = read_plugin_rates(settings, name, Window(now - RECENT, now))
        except FallowError as error:
            yield build_fault_row(f"price source {name}", error, "report it to who wrote it")
        else:
            yield CheckRow(f"price source {name}", "ok", f"{batch.rows.num_rows:,} rates")


def _check_aws(settings: Settings, now: datetime) -> Iterator[CheckRow]:
    regions = settings.prices.aws_regions
    if not regions:
        return
    try:
        batch = AwsPrices(regions, clock=lambda: now).rates(Window(now - timedelta(hours=1), now))
    except FallowError as error:
        step = "AWS credentials with pricing:GetProducts and ec2:DescribeSpotPriceHistory"
        yield build_fault_row("AWS prices", error, step)
    else:
        yield CheckRow("AWS prices", "ok", f"{batch.rows.num_rows:,} rates of {', '.join(regions)}")


def check_conflict(warehouse: "Warehouse", settings: Settings, now: datetime) -> Iterator[CheckRow]:
    """Return whether another home over the catalog prices the cluster otherwise."""
    rates, home = read_configured_rates(settings, now)[0].rows, identify_home(warehouse.place)
    with warehouse.reading_views() as cursor:
        others = list_other_homes(cursor.execute, home, now)
        conflicts = find_conflicts(cursor.execute, rates, settings.prices, now, others)
    step = "give both homes the same prices, or remove them from the other one's settings"
    for why in filter(None, conflicts.values()):
        yield CheckRow("prices of two homes", "warn", why, step)


def check_unpriced(views: "Views", now: datetime, cluster: str | None = None) -> Iterator[CheckRow]:
    """Return which models' GPU-hours of the last week of data have no price."""
    text = read_text("runtime.operations.doctor", "unpriced.sql")
    rows = views.query(text, {"days": RECENT.days, "now": now, "cluster": cluster}).to_pylist()
    hours = sum(row["gpu_hours"] for row in rows)
    without = [row for row in rows if row["unpriced"] > 0]
    if not hours:
        return
    if not without:
        yield CheckRow("priced", "ok", f"all {hours:,.1f} GPU-hours of the last week have a price")
        return
    named = format_few(
        [f"{row['model'] or 'unnamed model'} {row['unpriced']:,.1f}" for row in without]
    )
    finding = f"GPU-hours of the last week without a price: {named}"
    yield CheckRow("priced", "warn", finding, SETTING)
