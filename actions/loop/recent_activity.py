"""Check whether an idle workload has just become active: one active sample is enough to keep it.

For the analyzers an idle stretch ends after several busy samples, so that a short blip does not end
it. Before a stop, already the first busy sample counts.
"""

from datetime import datetime, timedelta
from functools import cache

from actions.loop.breaker import EPSILON
from fallow.idle_details import read_idle_details
from fallow.models import Finding
from fallow.protocols import Views
from warehouse.sample_validity import UNKNOWN_INTERVAL_S
from warehouse.steps import ACTIVE_SAMPLE, compose_query

LOOKBACK_INTERVALS = 2.5
"""Lookback in sampling intervals: at least the last two samples."""


def find_active_device(
    views: Views, finding: Finding, now: datetime, *, idle: float, interval_s: float | None = None
) -> str | None:
    """Return which device is active again, and when; None = no device is.

    `idle` is the activity (0-1) at or below which a device idles.
    """
    subject = finding.subject
    lookback = timedelta(seconds=LOOKBACK_INTERVALS * (interval_s or UNKNOWN_INTERVAL_S))
    parameters = {
        "cluster": subject.cluster,
        "namespace": subject.namespace,
        "kind": subject.workload_kind,
        "workload": subject.workload,
        "devices": [*read_idle_details(finding).devices],
        "since": now - lookback,
        "until": now,
    }
    rows = views.query(_load_sql(), parameters).to_pylist()
    if not rows or rows[0]["activity"] is None or rows[0]["activity"] <= idle + EPSILON:
        return None
    row = rows[0]
    return f"{row['device']} was seen at work ({row['activity']:.0%}) at {row['ts']:%H:%M:%S}"


@cache
def _load_sql() -> str:
    return compose_query((ACTIVE_SAMPLE, "recent_activity"), "actions.loop")
