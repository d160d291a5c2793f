"""The circuit breaker: is telemetry as a whole reliable now?

When many devices turn idle or silent at once, a failure of exporters, a driver or a Prometheus is
more likely than that all people stopped working. A breaker that trips freezes everything until a
person thaws it: the zeros of a broken exporter look like idle devices from then on.
"""

from datetime import datetime
from functools import cache

from fallow.protocols import Views
from fallow.settings.actions import BreakerSettings
from fallow.window import format_duration
from warehouse.steps import ACTIVE_SAMPLE, compose_query

EPSILON = 1e-6
"""Tolerance: a stored (single precision) 0.05 is 0.0500000007, and still is at a threshold of 0.05.
"""


def find_incident(
    views: Views,
    settings: BreakerSettings,
    now: datetime,
    *,
    idle: float = 0.05,
    cluster: str | None = None,
) -> str | None:
    """Return why everything is to be frozen; None = nothing is unusual.

    `idle` is the activity (0-1) at or below which a device idles. With fewer devices than
    `breaker.least_devices` there is no judgement.
    """
    since = now - settings.within
    parameters = {
        "before": since - settings.within,
        "since": since,
        "until": now,
        "idle": idle + EPSILON,
        "cluster": cluster,
    }
    row = views.query(_load_sql(), parameters).to_pylist()[0]
    reasons = []
    length = format_duration(settings.within.total_seconds())
    if row["devices"] >= settings.least_devices:
        share = row["turned"] / row["devices"]
        if share > settings.devices:
            reasons.append(
                f"{share:.0%} of {row['devices']:,} devices turned idle or silent within {length} "
                f"(breaker.devices {settings.devices:.0%})"
            )
    if row["targets"]:
        share = row["down"] / row["targets"]
        if share > settings.exporters:
            reasons.append(
                f"{share:.0%} of {row['targets']:,} targets are down "
                f"(breaker.exporters {settings.exporters:.0%})"
            )
    return "; ".join(reasons) or None


@cache
def _load_sql() -> str:
    return compose_query((ACTIVE_SAMPLE, "breaker"), "actions.loop")
