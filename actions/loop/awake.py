"""Has an idle workload just begun to work? One look is enough to leave it alone.

An idle stretch ends for the analyzers after several busy looks, so that a blip makes no waste
vanish. Whoever is about to stop something takes the first of them seriously.
"""

from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files

from actions.loop.breaker import EPSILON
from fallow.nouns import Finding
from fallow.seams import Views

LOOKS = 2.5
"""So many intervals back: the last two looks at least."""
UNKNOWN_INTERVAL_S = 60.0


def awake(
    views: Views, finding: Finding, now: datetime, *, idle: float, interval_s: float | None = None
) -> str | None:
    """Say which device works again, and when that was seen; None = none does.

    `idle` is the activity (0-1) at or below which a device idles.
    """
    whom = finding.subject
    back = timedelta(seconds=LOOKS * (interval_s or UNKNOWN_INTERVAL_S))
    devices = finding.details.get("devices")
    asked = {
        "cluster": whom.cluster,
        "namespace": whom.namespace,
        "kind": whom.workload_kind,
        "workload": whom.workload,
        "devices": [str(d) for d in devices] if isinstance(devices, (list, tuple)) else [],
        "since": now - back,
        "until": now,
    }
    rows = views.query(_sql(), asked).to_pylist()
    if not rows or rows[0]["activity"] is None or rows[0]["activity"] <= idle + EPSILON:
        return None
    row = rows[0]
    return f"{row['device']} was seen at work ({row['activity']:.0%}) at {row['ts']:%H:%M:%S}"


@cache
def _sql() -> str:
    return files("actions.loop").joinpath("awake.sql").read_text(encoding="utf-8")
