"""Show one owner's workloads: their cost, planned actions, and hints for the owner."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from capacity.queue.suspensions import read_suspensions
from dashboards.figures.query import ADVICE, BY_DAY, BY_DEVICE, Filters, run_query
from dashboards.figures.supply import add_finding_words
from fallow.action_models import PendingResume
from fallow.finding_kinds import read_declarations
from fallow.precision_lines import read_framework_lines
from fallow.protocols import Views
from fallow.window import Window

MOST = 500
COMING = ("journal", "planned", "snoozes", "acted", "begun", "owner_workloads/coming")
"""The steps of what policies plan for the owners' workloads."""
Owners = tuple[str, ...]
"""Teams and namespaces."""


def read_workloads(views: Views, window: Window, filters: Filters, owners: Owners) -> pa.Table:
    """Return the owners' workloads of the window, the most expensive first.

    Columns: cluster, workload, team, gpu_hours, usd, idle_usd, idle_gpu_hours, productive_pct,
    last_hour (UTC), state (of the newest hour; `ended` = it holds nothing any more), says (what
    policies plan).
    """
    steps = (*BY_DAY, *COMING, "owner_workloads/workloads")
    rows = run_query(views, steps, window, filters, owners=[*owners], most=MOST)
    newest = rows["newest_hour"][0].as_py() if rows.num_rows else None
    states = {}
    if newest is not None:
        hour = Window(newest.replace(tzinfo=UTC), newest.replace(tzinfo=UTC) + timedelta(hours=1))
        state_steps = (*BY_DEVICE, "owner_workloads/newest_states")
        listed = run_query(views, state_steps, hour, filters, owners=[*owners]).to_pylist()
        states = {(row["cluster"], row["workload"]): row["state"] for row in listed}
    names = zip(rows["cluster"].to_pylist(), rows["workload"].to_pylist(), strict=True)
    state = pa.array([states.get(name, "ended") for name in names], pa.string())
    place = rows.column_names.index("newest_hour")
    return rows.set_column(place, "state", state)


def read_coming(views: Views, filters: Filters, owners: Owners) -> pa.Table:
    """Return what policies plan for the owners' workloads, the soonest first.

    Columns: cluster, subject, namespace, workload_kind, workload, owner, verb, policy, finding,
    step, ruling, gate, why, next_at, notified_at, kept_until (UTC), gpus, usd_per_day, acts,
    at, says (an action that began after the plan was written is there with its result).
    """
    return run_query(views, COMING, None, filters, owners=[*owners])


def read_actions_taken(
    views: Views, filters: Filters, owners: Owners, oldest: datetime
) -> pa.Table:
    """Return the actions on the owners' workloads since a time, the newest first.

    Columns: id, cluster, at, subject, owner, namespace, verb, policy, result, why, freed_gpus,
    restored_by, restored_at, lost.
    """
    steps = ("journal", "acted", "owner_workloads/recent_actions")
    naive = oldest.replace(tzinfo=None)
    return run_query(views, steps, None, filters, owners=[*owners], oldest=naive, most=MOST)


def read_resumable(views: Views, now: datetime) -> dict[tuple[str, str], PendingResume | None]:
    """Return the stops whose jobs an owner may have resumed once they have room, by cluster and id.

    The value is the request that was made; None = none yet.
    """
    # Requests are later than the newest sample.
    suspensions = read_suspensions(views, now, until=datetime.max.replace(tzinfo=UTC))
    return {
        (s.key[0], s.action.id): s.pending_resume for s in suspensions if not s.explain_no_request()
    }


def read_hints(
    views: Views, window: Window, filters: Filters, owners: Owners
) -> list[dict[str, Any]]:
    """Return advice that only the owner can follow, the largest saving first, with lines to write.

    Columns: id, analyzer, kind, cluster, workload, team, evidence, verb, effort, gpu_hours, usd,
    why, caution, details, and lines: format, framework, line, source.
    """
    steps = (*ADVICE, "owner_workloads/hints")
    parameters = {"analyzers": list_owner_analyzers(), "owners": [*owners], "most": MOST}
    rows = run_query(views, steps, window, filters, **parameters).to_pylist()
    return [hint | {"lines": _split_lines(hint)} for hint in map(add_finding_words, rows)]


def list_owner_analyzers() -> list[str]:
    """Return the analyzers whose advice only the owner can follow."""
    return [name for name, declared in read_declarations().items() if declared.only_owner]


def _split_lines(row: dict[str, Any]) -> list[dict[str, str]]:
    """Return the lines of the formats that the advice names, else of all its ranges."""
    ranges = row["details"].get("ranges") or ()
    formats = [str(entry.get("format")) for entry in ranges if isinstance(entry, dict)]
    formats_named = [name for name in formats if name in f"{row['verb']} {row['why']}"]
    return [
        {
            "format": entry.format,
            "framework": entry.framework,
            "line": entry.line,
            "source": entry.source,
        }
        for name in dict.fromkeys(formats_named or formats)
        for entry in read_framework_lines().get(name, ())
    ]
