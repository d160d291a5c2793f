"""Events about GPU pods and nodes to rows of the `event` table."""

from datetime import datetime
from typing import Any

from collectors.kube.shapes import Event

LONGEST = 1024
"""Characters of a message that are kept (the API's own limit)."""


def event_row(event: Event, *, cluster: str) -> dict[str, Any]:
    """Return one row of the `event` table; `ts` is when it was last seen."""
    about, series = event.involved_object, event.series
    return {
        "cluster": cluster,
        "uid": event.metadata.uid,
        "ts": last_seen(event),
        "namespace": about.namespace or event.metadata.namespace,
        "kind": about.kind,
        "name": about.name,
        "reason": event.reason,
        "type": event.type,
        "message": event.message[:LONGEST] if event.message else None,
        "count": event.count or (series.count if series else None),
    }


def last_seen(event: Event) -> datetime | None:
    """Return when an event was last seen; reporters fill different fields."""
    series = event.series.last_observed_time if event.series else None
    known = (series, event.last_timestamp, event.event_time, event.first_timestamp)
    return next((t for t in known if t), event.metadata.creation_timestamp)
