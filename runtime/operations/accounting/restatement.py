"""Account the months anew that older rules or prices accounted."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates
from warehouse import restatements

if TYPE_CHECKING:
    from fallow.protocols import Views
    from warehouse.lake import Warehouse
    from warehouse.restatements import DueMonth, Restatement


def list_open_months(
    views: "Views", now: datetime, *, is_restating: bool = False
) -> "list[DueMonth]":
    """Return the months that are due and open: those that have not ended, or all of them."""
    naive = now.replace(tzinfo=None)
    return [
        month for month in restatements.list_due_months(views) if is_restating or month.end > naive
    ]


def price_ended_months(warehouse: "Warehouse", now: datetime) -> None:
    """Store the prices of the settings also for months that have ended, where these wait for it."""
    if restatements.has_waiting_prices(warehouse):
        rates = read_configured_rates(warehouse.settings, now)
        pipeline.price(warehouse, rates, is_restating=True)


def restate_months(
    warehouse: "Warehouse", months: "list[DueMonth]", say: Callable[[str], None]
) -> "list[Restatement]":
    """Account months anew, one after another; return what changed in them, by cause.

    A run that is killed is continued by the next.
    """
    changed: list[Restatement] = []
    for month in months:
        say(f"accounting {month.start:%Y-%m} anew")
        last = warehouse.query(
            "SELECT max(date_trunc('hour', bucket)) AS hour FROM ledger"
            " WHERE bucket >= $since AND bucket < $until",
            month.window.bounds(),
        ).to_pylist()[0]["hour"]
        begun = restatements.begin_month(warehouse, month)
        if last is not None:
            hour = last.replace(tzinfo=month.window.start.tzinfo)
            pipeline.account(warehouse, Window(hour, hour + pipeline.HOUR))
        restatements.finish_month(warehouse, begun)
        changed += restatements.read_restatements(warehouse, month.window)
    return changed
