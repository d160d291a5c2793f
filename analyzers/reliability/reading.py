"""What tells failures: lives of pods, events of pods and nodes, XIDs of boards."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import polars as pl

from analyzers.queries import LOOKED, rows_of, sql, steps
from analyzers.reliability.devices import Xid
from fallow.seams import Views


@cache
def causes() -> dict[str, str]:
    """Return the cause that each event's reason names (`interruptions.csv`)."""
    return {r["reason"]: r["cause"] for r in rows_of("interruptions")}


def lives(views: Views, bounds: Mapping[str, Any]) -> pl.DataFrame:
    """Return the pods that requested GPUs and lived in a window (`lives.sql`)."""
    return pl.DataFrame(views.query(steps(LOOKED, "lives"), dict(bounds)))


def events(views: Views, bounds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events that name a cause, from an hour before the window on."""
    reasons = {**bounds, "reasons": list(causes())}
    rows: list[dict[str, Any]] = views.query(sql("reliability/events"), reasons).to_pylist()
    return rows


def xids(views: Views, bounds: Mapping[str, Any]) -> list[Xid]:
    """Return the XIDs of a window, by the hour."""
    return [
        Xid(r["cluster"], r["device"], r["node"] or "", r["bucket"], r["xid"],
            r["namespace"] or "", r["pod"] or "", r["older"])
        for r in views.query(sql("reliability/xids"), dict(bounds)).to_pylist()
    ]  # fmt: skip
