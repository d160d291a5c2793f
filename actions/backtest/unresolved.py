"""The cases of a replayed past of which it is not known which object they were about.

Telemetry names pods; only an inventory says which object they were of. What was over before the
first inventory has a name, and nothing to act upon: a back-test names it and counts no stop of it.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from actions.backtest.chances import possible
from actions.facts.gathering import resolved
from actions.facts.ground import Ground, Key, moment
from actions.planning import Subject
from actions.policy.model import Match
from fallow.seams import Views

_KEY = ("cluster", "namespace", "workload_kind", "workload")
_NAMED_ONLY = "Pod"
"""Workload kind of a pod whose owner nobody told: it may have been a pod of any kind."""


class Unresolved(msgspec.Struct, frozen=True):
    """A case whose object is unknown, as it was when it was found last."""

    subject: Subject
    idle_since: datetime
    until: datetime
    gpu_hours: float
    usd: Decimal | None
    why: str


def candidates(rows: pa.Table, wanted: Match) -> pl.DataFrame:
    """Return the last row of each case that a policy may be about, if its owner were known.

    Columns: cluster, namespace, workload_kind, workload, start and end (us since 1970), gpu_hours,
    usd.
    """
    found = pl.DataFrame(rows)
    each = found.select(*_KEY[:3], "kind").unique(maintain_order=True)
    about = [_possible(row, wanted) for row in each.iter_rows(named=True)]
    each = each.filter(pl.Series(about, dtype=pl.Boolean))
    found = found.join(each, on=[*_KEY[:3], "kind"], how="semi", nulls_equal=True)
    last = found.sort("case", "k").group_by("case", maintain_order=True).last()
    least_us = round(wanted.min_duration / timedelta(microseconds=1))
    last = last.filter(pl.col("end") - pl.col("start") >= least_us)
    return last.select(*_KEY, "start", "end", "gpu_hours", "usd")


def unresolved(views: Views, ground: Ground, cases: pl.DataFrame) -> tuple[Unresolved, ...]:
    """Return those of the candidates that no inventory resolves, the most GPU-hours first.

    `ground` holds the pods of their workloads.
    """
    begun = _first_inventories(views) if cases.height else {}
    made = [
        Unresolved(
            subject=(row["cluster"], row["workload_kind"], row["namespace"], row["workload"]),
            idle_since=moment(row["start"]),
            until=moment(row["end"]),
            gpu_hours=row["gpu_hours"],
            usd=None if row["usd"] is None else Decimal(repr(round(row["usd"], 6))),
            why=why,
        )
        for row in cases.iter_rows(named=True)
        if (why := _why(ground, _key(row), row["end"], begun.get(row["cluster"]))) is not None
    ]
    return tuple(sorted(made, key=lambda u: (-u.gpu_hours, u.subject, u.idle_since)))


def keys(cases: pl.DataFrame) -> list[Key]:
    """Return the workloads of candidates."""
    return [_key(row) for row in cases.iter_rows(named=True)]


def _possible(row: dict[str, Any], wanted: Match) -> bool:
    if possible(row, wanted):
        return True
    any_kind = msgspec.structs.replace(wanted, workload_kind=(), kind=())
    return (row["workload_kind"] or _NAMED_ONLY) == _NAMED_ONLY and possible(row, any_kind)


def _why(ground: Ground, key: Key, end: int, begun: datetime | None) -> str | None:
    """Return why it is unknown which object a workload was at a moment; None = it is known."""
    if not key[1]:
        return None  # a node, a pool or a quota, whose name is its identity
    pods = ground.pods(key, end)
    uids = {p.workload_uid for p in pods}
    if len(uids) == 1 and None not in uids and resolved(pods, key):
        return None
    why = "the inventory tells no uid of its owner"
    if begun is None:
        why = "no inventory was ever stored"
    elif moment(end) <= begun:
        why = f"it was over before the first inventory ({begun:%F %R} UTC)"
    elif not pods:
        why = "its pods are in no inventory"
    elif None not in uids:
        why = f"its pods have {len(uids)} owners"
    return why


def _first_inventories(views: Views) -> dict[str, datetime]:
    text = (files("actions.backtest") / "first_inventories.sql").read_text(encoding="utf-8").strip()
    return {r["cluster"]: moment(r["first_us"]) for r in views.query(text).to_pylist()}


def _key(row: dict[str, Any]) -> Key:
    cluster, *names = (row[name] or "" for name in _KEY)
    return cluster, names[0], names[1], names[2]
