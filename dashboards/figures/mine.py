"""One owner's workloads: what they cost, what will happen to them, and what would help them."""

from datetime import datetime
from typing import Any

import pyarrow as pa

from dashboards.figures.asking import Filters, ask
from dashboards.figures.supply import worded
from fallow.precision_lines import lines
from fallow.seams import Views
from fallow.window import Window

MOST = 500
HINTS = ("precision", "sizing", "datapath", "scaling")
"""Analyzers whose advice only the owner can take."""
Owners = tuple[str, ...]
"""Teams and namespaces."""


def workloads(views: Views, window: Window, filters: Filters, owners: Owners) -> pa.Table:
    """Return the owners' workloads of the window, the dearest first.

    Columns: cluster, workload, team, gpu_hours, usd, idle_usd, idle_gpu_hours, productive_pct,
    last_hour (UTC), state (of the newest hour; `over` = it holds nothing any more), says (what
    policies have in mind).
    """
    steps = ("paid", "journal", "planned", "rests", "mine/coming", "mine/workloads")
    return ask(views, steps, window, filters, owners=[*owners], most=MOST)


def coming(views: Views, filters: Filters, owners: Owners) -> pa.Table:
    """Return what policies have in mind for the owners' workloads, what comes soonest first.

    Columns: cluster, whom, namespace, workload_kind, workload, owner, verb, policy, finding, step,
    ruling, gate, why, next_at, told_at, kept_until (UTC), gpus, usd_per_day, acts, at, says.
    """
    steps = ("journal", "planned", "rests", "mine/coming")
    return ask(views, steps, None, filters, owners=[*owners])


def taken(views: Views, filters: Filters, owners: Owners, oldest: datetime) -> pa.Table:
    """Return what was done to the owners' workloads since a moment, the newest first.

    Columns: id, cluster, at, whom, owner, namespace, verb, policy, result, why, freed_gpus,
    restored_by, restored_at, lost.
    """
    steps = ("journal", "acted", "mine/taken")
    naive = oldest.replace(tzinfo=None)
    return ask(views, steps, None, filters, owners=[*owners], oldest=naive, most=MOST)


def hints(views: Views, window: Window, filters: Filters, owners: Owners) -> list[dict[str, Any]]:
    """Return advice that only the owner can take, what saves most first, with lines to write.

    Columns: id, analyzer, kind, workload, team, evidence, verb, effort, gpu_hours, usd, why,
    caution, details, and lines: format, framework, line, source.
    """
    steps = ("advice", "mine/hints")
    asked = {"analyzers": [*HINTS], "owners": [*owners], "most": MOST}
    rows = ask(views, steps, window, filters, **asked).to_pylist()
    return [made | {"lines": _lines(made)} for made in map(worded, rows)]


def _lines(row: dict[str, Any]) -> list[dict[str, str]]:
    """Return the lines of the formats that the advice itself names, else of all its ranges."""
    ranges = row["details"].get("ranges") or ()
    formats = [str(one.get("format")) for one in ranges if isinstance(one, dict)]
    named = [name for name in formats if name in f"{row['verb']} {row['why']}"]
    return [
        {"format": one.format, "framework": one.framework, "line": one.line, "source": one.source}
        for name in dict.fromkeys(named or formats)
        for one in lines().get(name, ())
    ]
