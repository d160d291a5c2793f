"""Show policies: their text, how far each may act now, and the results of backtests."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dashboards.figures.query import Filters, run_query
from fallow.protocols import Views

MOST = 500


def list_policies(views: Views, filters: Filters) -> pa.Table:
    """Return a row per policy: its text, its stage and its part of the last plan.

    stage: notifies (its text allows no more), not trusted yet (no backtest of this text proved its
    reversal rate), may act, demoted (too many reversals). trusted_by, trusted_at and trust_reason:
    of a person who trusts it by hand. closed: the active blackout; opens_at (UTC).
    does, tells, holds, refuses: cases of the last plan; usd_per_day of those that it does, tells or
    holds; actions and taken_back: in total.
    """
    steps = ("journal", "acted", "policy_status/listed")
    return run_query(views, steps, None, filters, most=MOST)


def explain_by_hand(row: Mapping[str, Any]) -> str:
    """Return who trusts the policy of a row of `listed` by hand, as text; empty = no one does."""
    if not row["trusted_by"]:
        return ""
    when = f"{row['trusted_at']:%Y-%m-%d}"
    return f"trusted by hand by {row['trusted_by']} on {when}: {row['trust_reason']}"


def read_backtests(views: Views, filters: Filters) -> pa.Table:
    """Return the backtests, the newest first.

    Columns: policy, at, actor, since, until (UTC), stops, judged, reversed, rate_pct with its
    95 % interval low_pct to high_pct, upper_pct (one-sided: what counts), declared_pct, gpu_hours
    freed, met, is_its_text (of the text in force).
    """
    return run_query(views, ("journal", "policy_status/backtests"), None, filters, most=MOST)
