"""Find the cases of a replayed past whose Kubernetes object is unknown.

Telemetry names pods; only an inventory names the object that owns them. A workload that ended
before the first inventory has a name, but no object to act upon. The back-test names such a case
and counts no stop of it.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from actions.backtest.case_rows import may_match
from actions.facts.case_facts import is_owner_resolved
from actions.plan import Subject
from actions.policy.model import Match
from capacity.placement.fleet_state import FleetState, WorkloadKey, convert_micros
from fallow.models import UNRESOLVED
from fallow.protocols import Views
from fallow.resources import read_text

_KEY = ("cluster", "namespace", "workload_kind", "workload")


class UnresolvedCase(msgspec.Struct, frozen=True):
    """A case whose object is unknown, as in its last finding."""

    subject: Subject
    idle_since: datetime
    until: datetime
    gpu_hours: float
    usd: Decimal | None
    why: str


def find_candidates(rows: pa.Table, match: Match) -> pl.DataFrame:
    """Return the last row of each case that a policy would match if the case's owner were known.

    Columns: cluster, namespace, workload_kind, workload, start and end (us since 1970), gpu_hours,
    usd.
    """
    frame = pl.DataFrame(rows)
    kinds = frame.select(*_KEY[:3], "kind").unique(maintain_order=True)
    is_possible = [_is_possible(row, match) for row in kinds.iter_rows(named=True)]
    kinds = kinds.filter(pl.Series(is_possible, dtype=pl.Boolean))
    frame = frame.join(kinds, on=[*_KEY[:3], "kind"], how="semi", nulls_equal=True)
    last = frame.sort("case", "k").group_by("case", maintain_order=True).last()
    least_us = round(match.min_duration / timedelta(microseconds=1))
    last = last.filter(pl.col("end") - pl.col("start") >= least_us)
    return last.select(*_KEY, "start", "end", "gpu_hours", "usd")


def find_unresolved(
    views: Views, fleet_state: FleetState, cases: pl.DataFrame
) -> tuple[UnresolvedCase, ...]:
    """Return those of the candidates that no inventory resolves, the most GPU-hours first.

    `fleet_state` holds the pods of their workloads.
    """
    inventory_starts = _find_first_inventories(views) if cases.height else {}
    cases_found = [
        UnresolvedCase(
            subject=(row["cluster"], row["workload_kind"], row["namespace"], row["workload"]),
            idle_since=convert_micros(row["start"]),
            until=convert_micros(row["end"]),
            gpu_hours=row["gpu_hours"],
            usd=None if row["usd"] is None else Decimal(repr(round(row["usd"], 6))),
            why=why,
        )
        for row in cases.iter_rows(named=True)
        if (
            why := _explain(
                fleet_state, _build_key(row), row["end"], inventory_starts.get(row["cluster"])
            )
        )
        is not None
    ]
    return tuple(sorted(cases_found, key=lambda u: (-u.gpu_hours, u.subject, u.idle_since)))


def list_workloads(cases: pl.DataFrame) -> list[WorkloadKey]:
    """Return the workloads of candidates."""
    return [_build_key(row) for row in cases.iter_rows(named=True)]


def _is_possible(row: dict[str, Any], match: Match) -> bool:
    if may_match(row, match):
        return True
    any_kind = msgspec.structs.replace(match, workload_kind=(), kind=())
    return (row["workload_kind"] or UNRESOLVED) == UNRESOLVED and may_match(row, any_kind)


def _explain(
    fleet_state: FleetState, key: WorkloadKey, end: int, inventory_start: datetime | None
) -> str | None:
    """Return why the object of a workload at a given time is unknown; None = it is known."""
    if not key[1]:
        return None  # a node, a pool or a quota: its name is its identity
    pods = fleet_state.pods(key, end)
    uids = {p.workload_uid for p in pods}
    if len(uids) == 1 and None not in uids and is_owner_resolved(pods, key):
        return None
    why = "the inventory tells no uid of its owner"
    if inventory_start is None:
        why = "no inventory was ever stored"
    elif convert_micros(end) <= inventory_start:
        why = f"it was over before the first inventory ({inventory_start:%F %R} UTC)"
    elif not pods:
        why = "its pods are in no inventory"
    elif None not in uids:
        why = f"its pods have {len(uids)} owners"
    return why


def _find_first_inventories(views: Views) -> dict[str, datetime]:
    sql = read_text("actions.backtest", "first_inventories.sql").strip()
    return {r["cluster"]: convert_micros(r["first_us"]) for r in views.query(sql).to_pylist()}


def _build_key(row: dict[str, Any]) -> WorkloadKey:
    cluster, *names = (row[name] or "" for name in _KEY)
    return cluster, names[0], names[1], names[2]
