"""Read prices from every configured source: rate card, commitments, on-premises, AWS, plugins."""

from contextlib import suppress
from datetime import datetime, timedelta

import pyarrow as pa

from collectors.prices.aws import AwsPrices
from collectors.prices.commitments import Commitments
from collectors.prices.on_prem import OnPrem
from collectors.prices.rate_card import RateCard
from fallow import plugin_runs, plugins
from fallow.errors import SourceError, TemporaryError, UsageError
from fallow.money import MOST_USD_H
from fallow.protocols import PriceSource
from fallow.settings import Settings
from fallow.settings.prices import PriceSettings
from fallow.system.deadlines import call_within
from fallow.tables import Batch, get_key
from fallow.window import Window

MARKET_WITHIN_S = 300.0
"""Deadline for the prices of one region of AWS, where a minute is usual, or of one plugin."""
PRICE_LOOKBACK = timedelta(days=3650)
"""How far back prices are read: every import may have old rows."""
AWS_LOOKBACK = timedelta(days=90)
"""AWS's spot price history is at most this long."""


def read_configured_rates(settings: Settings, now: datetime) -> list[Batch]:
    """Return the prices of the rate card and the settings, for all the time before now.

    Raises:
        UsageError: a price would hold from a time in the future on, or has two values from one on.
    """
    window = Window(now - PRICE_LOOKBACK, now + timedelta(days=1))
    price_settings = settings.prices
    owned = [OnPrem(**server.model_dump(), clock=lambda: now) for server in price_settings.on_prem]
    card = RateCard(price_settings, clock=lambda: now, cluster=settings.cluster)
    sources: list[PriceSource] = [
        card,
        *owned,
        Commitments(price_settings.commitments, clock=lambda: now),
    ]
    present = [rates for source in sources if (rates := source.rates(window).rows).num_rows]
    # All current prices are one batch: storing it ends the prices that it no longer has.
    rates = pa.concat_tables(present)
    _check_times(price_settings, rates, now)
    return [Batch("rate", rates)]


def _check_times(settings: PriceSettings, rates: pa.Table, now: datetime) -> None:
    times = {"prices.valid_from": settings.valid_from}
    times |= {
        f"prices.on_prem.{n}.valid_from": s.valid_from for n, s in enumerate(settings.on_prem)
    }
    late = [(name, at) for name, at in times.items() if at is not None and at > now]
    if late:
        raise UsageError(
            f"{late[0][0]} is {late[0][1]:%Y-%m-%dT%H:%MZ}, in the future",
            hint="a price that holds already; set the next one when it does",
        )
    seen: dict[tuple[object, ...], object] = {}
    for row in rates.select([*get_key("rate"), "node_usd_h", "nodes"]).to_pylist():
        *key, usd, nodes = row.values()
        if seen.setdefault(tuple(key), (usd, nodes)) != (usd, nodes):
            what = " ".join(filter(None, map(str, key[:-1])))
            raise UsageError(
                f"two prices from one time on: {what}",
                hint="a valid_from tells which holds from when on (docs/prices.md)",
            )


def read_market_rates(settings: Settings, now: datetime) -> list[Batch]:
    """Return the prices that are added to those of before: AWS's, and other packages' sources'.

    Of another package's source that fails nothing is returned: its stored prices stay.

    Raises:
        AuthError: AWS refused the credentials.
        TemporaryError: AWS could not be reached, throttled the request, or did not end in time.
    """
    regions, window = settings.prices.aws_regions, Window(now - AWS_LOOKBACK, now)
    batches = []
    for name in plugins.list_configured("prices", settings.plugins):
        with suppress(SourceError):
            batches.append(read_plugin_rates(settings, name, window))
    if regions:
        aws, seconds = AwsPrices(regions, clock=lambda: now), MARKET_WITHIN_S * len(regions)
        try:
            batches.append(call_within(seconds, lambda: aws.rates(window)))
        except TimeoutError as error:
            raise TemporaryError(
                f"AWS prices: {error}", hint="the next turn reads them again"
            ) from error
    return batches


def read_plugin_rates(settings: Settings, name: str, window: Window) -> Batch:
    """Return the rates of another package's price source.

    Raises:
        SourceError: it failed, did not end in time, calls its rates those of another source, or
            one is no price.
    """
    try:
        source = plugins.build("prices", name, settings.plugins)
        rates: Batch = call_within(MARKET_WITHIN_S, lambda: source.rates(window))
        named = {*rates.rows["source"].to_pylist()}
    except (Exception, SystemExit) as error:
        reason = plugin_runs.log_failure("price source", name, error)
        raise SourceError(f"price source {name}: {reason}") from error
    if named - {name}:
        raise SourceError(
            f"price source {name} gives rates of {', '.join(sorted(map(str, named - {name})))}",
            hint=f"the column source is {name!r} in each of its rows",
        )
    _check_values(name, rates)
    return rates


def _check_values(name: str, rates: Batch) -> None:
    if rates.table != "rate":
        raise SourceError(f"price source {name} gives rows of {rates.table}, not of rate")
    wanted = ["gpu_count", "node_usd_h"]
    for row in rates.rows.select([*get_key("rate"), *wanted]).to_pylist():
        gpus, usd = row["gpu_count"], row["node_usd_h"]
        if gpus is None or usd is None or not (gpus > 0 and 0 < usd < MOST_USD_H):
            what = " ".join(str(row[key]) for key in get_key("rate") if row[key])
            raise SourceError(
                f"price source {name}: a node of {gpus} GPUs at {usd} USD an hour: {what}",
                hint=f"gpu_count is 1 or more, node_usd_h over 0 and under {MOST_USD_H:,}",
            )
