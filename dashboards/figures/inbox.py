"""Show the findings inbox: the next steps by dollars over disruption, and a finding's details."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures.query import ADVICE, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

MOST = 1000
LONGEST = 400
"""Characters of a value in a list of details."""


class FindingDetail(msgspec.Struct, frozen=True):
    """One finding: its measured values as rows, and what would remove the waste."""

    id: str
    analyzer: str
    kind: str
    cluster: str
    start: datetime
    end: datetime
    found_at: datetime
    verdict: str
    evidence: str
    confidence: float | None
    gpu_hours: float
    usd: Decimal | None
    why: str
    details: tuple[dict[str, str], ...]
    """what, value"""
    advice: tuple[dict[str, Any], ...]
    """verb, target, why, usd_per_day, gpu_hours_per_day, saving, caution, undo"""


def list_inbox(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per finding with advice, the most dollars over disruption first.

    Columns: id, cluster, analyzer, kind, evidence, team, workload, since, verb, effort, saving,
    gpu_hours and usd it would save (no GPU-hour twice), disruption (1 + how often owners reversed
    an action on it), usd_rank (usd / disruption), snoozed_until; and from the last plan: policy,
    step, ruling, why, next_at, request.
    """
    steps = (*ADVICE, "first_advice", "journal", "acted", "snoozes", "planned", "inbox/listed")
    return run_query(views, steps, window, filters, most=MOST)


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
        details=tuple(_flat(details)),
        advice=tuple(_advice(item) for item in document.get("recommendations") or ()),
    )


def _advice(recommendation: dict[str, Any]) -> dict[str, Any]:
    names = ("verb", "target", "why", "caution", "undo")
    texts = {
        name: str(recommendation[name]) if recommendation.get(name) else None for name in names
    }
    return texts | {
        "usd_per_day": recommendation.get("usd_per_day"),
        "gpu_hours_per_day": recommendation.get("gpu_hours_per_day"),
        "saving": str(recommendation.get("saving", "capacity")),
    }


def _flat(details: dict[str, Any], above: str = "") -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for name, value in details.items():
        name_text = f"{above}{name}".replace("_", " ")
        match value:
            case dict():
                rows += _flat(value, f"{name_text}: ")
            case list() if all(isinstance(item, str | int | float) for item in value):
                if value:
                    rows.append({"what": name_text, "value": _cut(", ".join(map(str, value)))})
            case list():
                rows.append(
                    {"what": name_text, "value": _cut(json.dumps(value, ensure_ascii=False))}
                )
            case None:
                rows.append({"what": name_text, "value": "not known"})
            case _:
                rows.append({"what": name_text, "value": _cut(str(value))})
    return rows


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
