"""List findings by dollars over disruption, a row per workload, and read one with its details."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.detail_words import describe_details, describe_verb
from dashboards.figures.query import ADVICE, Filters, run_query
from fallow.models import PLATFORM
from fallow.money import sum_bills, sum_known
from fallow.protocols import Views
from fallow.window import Window

IDLE = "idle"
MOST = 1000
MOST_VERBS = 3
LISTED = (*ADVICE, "first_advice", "snoozes", "planned", "inbox/listed")
CHOSEN = (*LISTED, "inbox/chosen")


class FindingChoice(msgspec.Struct, frozen=True):
    """What a person chose of the findings; None = all."""

    analyzer: str | None = None
    kind: str | None = None
    evidence: str | None = None
    snoozed: bool = False
    """also those that are snoozed"""


EVERY_FINDING = FindingChoice(snoozed=True)


class FindingTotals(msgspec.Struct, frozen=True):
    """Findings with advice, counted; dollars None = no part has a price."""

    findings: int
    saving_findings: int
    """Of them: they would save GPU-hours."""
    workloads: int
    saving_workloads: int
    gpu_hours: float
    usd: Decimal | None
    """In cents, the sum of the clusters'."""
    at_most_usd: Decimal | None


class FindingDetail(msgspec.Struct, frozen=True):
    """One finding: its measured values as rows, and what would remove the waste."""

    id: str
    analyzer: str
    kind: str
    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    start: datetime
    end: datetime
    found_at: datetime
    verdict: str
    evidence: str
    confidence: float | None
    gpu_hours: float
    usd: Decimal | None
    why: str
    details: tuple[str, ...]
    """sentences"""
    advice: tuple[dict[str, Any], ...]
    """verb, target, why, usd_per_day, gpu_hours_per_day, saving, is_bound, caution, undo"""


def list_inbox(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per finding with advice, the most dollars over disruption first.

    Columns: id, cluster, analyzer, kind, evidence, team, workload, since, verb, effort, saving,
    gpu_hours and usd it would save (no GPU-hour twice; 0 where an action on it took effect),
    at_most_gpu_hours and at_most_usd (the bound of hours in use beside it), is_handled (whether an
    action took effect), disruption (1 + how often owners reversed an action on it), usd_rank
    (usd / disruption), snoozed_until; and from the last plan: policy, step, ruling, planned_step
    (observe, notify, hold, wait for approval, act, refuse), why, next_at, request.
    """
    return run_query(views, LISTED, window, filters)


def choose_steps(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the blocks of actions that save most of the findings of `list_inbox`, the first first.

    A block is what one decision settles: all idle workloads of a cluster, or all that need the same
    step of one analyzer. Columns: those of its largest finding, with usd and gpu_hours of all;
    `workloads` (count), and where there are several, `workload` is their number, `verb` lists
    their steps; `team` and `saving` are None unless all have one.
    """
    blocks: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in order_by_dollars([row for row in rows if row["usd"] or row["gpu_hours"] > 0]):
        step = () if row["analyzer"] == IDLE else (row["verb"] or "",)
        blocks.setdefault((row["cluster"], row["analyzer"], *step), []).append(row)
    return order_by_dollars([_sum_block(block) for block in blocks.values()])[:most]


def _sum_block(block: list[dict[str, Any]]) -> dict[str, Any]:
    names = {row["workload"] for row in block}
    whole = block[0] | {
        "usd": sum_known(row["usd"] for row in block),
        "gpu_hours": sum(row["gpu_hours"] for row in block),
        "workloads": len(names),
    }
    if len(names) == 1:
        return whole
    # The platform's own begin with their kind: NodePool/h100.
    platform = {row["workload"].split("/")[0] for row in block if row["team"] == PLATFORM}
    what = f"{platform.pop()}s" if len(platform) == 1 else "workloads"
    what = f"idle {what} to free" if block[0]["analyzer"] == IDLE else what
    evidence = {row["evidence"] for row in block}
    teams, savings = ({row.get(name) for row in block} for name in ("team", "saving"))
    verbs = dict.fromkeys(row["verb"] or row["kind"] for row in block)
    return whole | {
        "workload": f"{len(names):,} {what}",
        "evidence": evidence.pop() if len(evidence) == 1 else "partly suspected",
        "verb": ", ".join([*verbs][:MOST_VERBS]) + ", ..." * (len(verbs) > MOST_VERBS),
        "team": teams.pop() if len(teams) == 1 else None,
        "saving": savings.pop() if len(savings) == 1 else None,
    }


def order_by_dollars(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the largest saving first; those without a price last."""
    return sorted(
        rows, key=lambda r: (r["usd"] is None, -(r["usd"] or 0), -r["gpu_hours"], r["id"])
    )


def list_workloads(
    views: Views,
    window: Window,
    filters: Filters,
    choice: FindingChoice,
    most: int | None = MOST,
) -> pa.Table:
    """Return a row per workload with findings: its worst finding, and what all of them save.

    Columns: those of `list_inbox` for the worst finding (most dollars over disruption); findings
    (count), usd_all, gpu_hours_all, at_most_usd_all and at_most_gpu_hours_all of all chosen
    findings of the workload.
    """
    steps = (*CHOSEN, "inbox/workloads")
    more = msgspec.structs.asdict(choice) | {"most_workloads": most}
    return run_query(views, steps, window, filters, **more)


def read_totals(
    views: Views, window: Window, filters: Filters, choice: FindingChoice = EVERY_FINDING
) -> FindingTotals:
    """Return the chosen findings in one row."""
    more = msgspec.structs.asdict(choice)
    (row,) = run_query(views, (*CHOSEN, "inbox/totals"), window, filters, **more).to_pylist()
    return FindingTotals(**row | {"usd": sum_bills(row["usd"])})


def list_findings_of(
    views: Views,
    window: Window,
    filters: Filters,
    choice: FindingChoice,
    workload: tuple[str, str],
) -> pa.Table:
    """Return the findings of one workload (cluster and name), the worst first, as `list_inbox`."""
    cluster, name = workload
    more = msgspec.structs.asdict(choice) | {"of_cluster": cluster, "of_workload": name}
    return run_query(views, (*CHOSEN, "inbox/of_workload"), window, filters, **more)


def list_kinds(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return analyzer, kind, evidence, findings (count), snoozed (count) of all findings."""
    return run_query(views, (*LISTED, "inbox/kinds"), window, filters)


def find_workload(
    views: Views, window: Window, filters: Filters, finding: str
) -> tuple[str, str] | None:
    """Return the cluster and the name of the workload of a finding; None = no finding has it."""
    rows = run_query(views, (*LISTED, "inbox/workload_of"), window, filters, id=finding).to_pylist()
    return (rows[0]["cluster"], rows[0]["workload"]) if rows else None


def read_finding(views: Views, finding: str) -> FindingDetail | None:
    """Return a whole finding; None = no finding has that id."""
    rows = run_query(views, ("inbox/one_finding",), None, id=finding).to_pylist()
    if not rows:
        return None
    row = rows[0]
    document = json.loads(row.pop("document") or "{}")
    details = document.get("details") or {}
    return FindingDetail(
        **row,
        why=str(details.get("why", "")),
        details=describe_details(row["analyzer"], details),
        advice=tuple(_build_advice(item) for item in document.get("recommendations") or ()),
    )


def _build_advice(recommendation: dict[str, Any]) -> dict[str, Any]:
    names = ("verb", "target", "why", "caution", "undo")
    texts = {
        name: str(recommendation[name]) if recommendation.get(name) else None for name in names
    }
    texts["verb"] = describe_verb(texts["verb"])
    return texts | {
        "usd_per_day": recommendation.get("usd_per_day"),
        "gpu_hours_per_day": recommendation.get("gpu_hours_per_day"),
        "saving": str(recommendation.get("saving", "capacity")),
        "is_bound": bool(recommendation.get("at_most_gpu_hours"))
        and not recommendation.get("marginal_gpu_hours"),
    }
