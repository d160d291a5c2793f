"""Read the evidence of failures: lifetimes of pods, events of pods and nodes, XIDs of GPUs."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from analyzers.interruptions import read_causes
from analyzers.queries import LAST_SCRAPES, compose_steps, load_sql
from analyzers.reliability.devices import DeviceXid
from fallow.protocols import Views
from warehouse.steps import POD_OWNERS


def read_lifetimes(views: Views, bounds: Mapping[str, Any]) -> pl.DataFrame:
    """Return the pods that requested GPUs and lived in a window (`lives.sql`)."""
    return pl.DataFrame(views.query(compose_steps(LAST_SCRAPES, POD_OWNERS, "lives"), dict(bounds)))


def read_events(views: Views, bounds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events that name a cause, from an hour before the window on."""
    reasons = {**bounds, "reasons": list(read_causes())}
    rows: list[dict[str, Any]] = views.query(load_sql("reliability/events"), reasons).to_pylist()
    return rows


def read_xids(views: Views, bounds: Mapping[str, Any]) -> list[DeviceXid]:
    """Return the XIDs of a window, by the hour."""
    return [
        DeviceXid(r["cluster"], r["device"], r["node"] or "", r["bucket"], r["xid"],
            r["namespace"] or "", r["pod"] or "", r["older"])
        for r in views.query(load_sql("reliability/xids"), dict(bounds)).to_pylist()
    ]  # fmt: skip
