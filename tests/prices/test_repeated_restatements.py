"""Prices of a month that are corrected again and again: what was first billed, and what is now."""

from datetime import datetime, timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from warehouse.restatements import add_changes, compare_cells

HOURS = 4
CAUSES = ("capacity", "price")
PRICES = st.integers(1, 9).map(float)
MONTHS = st.lists(PRICES, min_size=HOURS, max_size=HOURS)
CORRECTIONS = st.lists(
    st.dictionaries(st.integers(0, HOURS - 1), PRICES, min_size=1), min_size=1, max_size=5
)
NO_ROWS = pl.DataFrame(
    schema={"cluster": pl.String, "cause": pl.String, "state": pl.String}
    | {f"{name}_{at}": pl.Float64 for name in ("gpu_seconds", "usd") for at in ("before", "after")}
)


def list_cells(prices: list[float]) -> pl.DataFrame:
    """Return a month of a device: one hour idle for each price."""
    start = datetime.fromisoformat("2026-03-01")
    return pl.DataFrame(
        [
            {"cluster": "c", "device": "a", "state": "idle", "hour": start + timedelta(hours=hour)}
            | {"holder": "n/Job/j", "gpu_seconds": 3600.0, "usd": usd}
            for hour, usd in enumerate(prices)
        ]
    )


@given(first=MONTHS, corrections=CORRECTIONS)
def test_the_row_has_the_first_bill_and_the_last_whatever_the_corrections_name(
    first: list[float], corrections: list[dict[int, float]]
) -> None:
    stored, prices, is_changed = NO_ROWS, first, False
    for correction in corrections:
        now = [correction.get(hour, usd) for hour, usd in enumerate(prices)]
        before, after = list_cells(prices), list_cells(now)
        rows = add_changes(compare_cells(before, after, CAUSES), stored, after)
        stored, is_changed = (rows if rows.height else stored), is_changed or now != prices
        prices = now
    amounts = [(row["usd_before"], row["usd_after"]) for row in stored.iter_rows(named=True)]
    assert amounts == ([(sum(first), sum(prices))] if is_changed else [])
    assert set(stored["gpu_seconds_after"]) <= {3600.0 * HOURS}
