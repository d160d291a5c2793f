"""Map events about GPU pods and nodes, and refusals by quota, to rows of the `event` table."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from collectors.kube.shapes import Event
from fallow.resources import read_table

LONGEST = 1024
"""Characters of a message that are kept (the API's own limit)."""

REFUSED = "exceeded quota: "
"""Text of a ResourceQuota's refusal; the pod never exists, so its owner has the event."""
REFUSALS = ("FailedCreate", "FailedCreatePod")
"""Reasons of such events: Kubernetes' own controllers', the training operator's."""


@cache
def read_controller_reasons() -> Mapping[tuple[str, str], str]:
    """Return the kind of workload in rows, by the kind in the API and the reason of an event.

    These are the events by which controllers say that they restart a workload or give it up
    (`controller_events.csv`).
    """
    return {
        (row["api_kind"], reason): row["kind"]
        for row in read_table("collectors.kube", "controller_events.csv")
        for reason in row["reasons"].split()
    }


def find_controller_kind(event: Event) -> str | None:
    """Return the kind of the workload of which an event reports a restart or the end."""
    return read_controller_reasons().get((event.involved_object.kind or "", event.reason or ""))


def build_event_row(event: Event, *, cluster: str) -> dict[str, Any]:
    """Return one row of the `event` table; `ts` is when it was last seen."""
    about, series = event.involved_object, event.series
    count = event.count or (series.count if series else None)
    uid = event.metadata.uid
    if count and count > 1 and (about.kind == "Node" or is_refusal(event)):
        # A repeated event: the server counts it and drops the earlier times.
        uid = f"{uid}#{count}"
    return {
        "cluster": cluster,
        "uid": uid,
        "ts": find_last_seen(event),
        "namespace": about.namespace or event.metadata.namespace,
        "kind": about.kind,
        "name": about.name,
        "reason": event.reason,
        "type": event.type,
        "message": event.message[:LONGEST] if event.message else None,
        "count": count,
    }


def is_refusal(event: Event) -> bool:
    """Return whether an event reports a pod that a quota refused."""
    return event.reason in REFUSALS and REFUSED in (event.message or "")


def find_last_seen(event: Event) -> datetime | None:
    """Return when an event was last seen; reporters fill different fields."""
    series = event.series.last_observed_time if event.series else None
    times = (series, event.last_timestamp, event.event_time, event.first_timestamp)
    return next((t for t in times if t), event.metadata.creation_timestamp)
