"""What tests of pages share: hostile names and rows that bear them, and what a page says."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from streamlit.testing.v1 import AppTest

from fallow.tables import Batch
from warehouse.lake import Warehouse

DAYS, GPUS = 3, 32
Draw = Callable[..., AppTest]
HOSTILE = (
    "<script>alert(1)</script>",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd",
    "x" * 253,
    "**bold** [a](http://evil.example) `c` $x$ :smile: # h",
    "\U0001f525 team | = '1+1'",
    '=HYPERLINK("http://evil.example")',
)
"""Markup, another direction, as long as a name can be, Markdown, emoji, a formula."""

LAYOUT = (
    "unknown", "container", "download_button", "tab", "tab_container", "column", "flex_container",
    "main", "empty", "popover",
)  # fmt: skip
FILTERS = {
    "window", "dates", "team", "cluster", "namespace", "model", "pool", "view", "search-workloads",
    "refresh",
}  # fmt: skip
"""Keys of the row of filters, which every page has."""


def texts(page: AppTest) -> list[str]:
    """Return all that a page says in words that Streamlit reads as Markdown."""
    kinds = ("title", "header", "caption", "markdown", "info", "warning", "error")
    answer = [str(element.value) for kind in kinds for element in getattr(page, kind)]
    metrics = [
        str(part)
        for m in page.metric
        for part in (m.label, m.value, m.delta, m.proto.delta_description, m.help)
    ]
    return answer + metrics


def elements(page: AppTest) -> int:
    """Return how many elements a page has, without containers, filters and downloads."""
    return sum(
        1
        for element in page.main
        if element.type not in LAYOUT and getattr(element, "key", None) not in FILTERS
    )


def hostile_rows(
    names: Sequence[str], start: datetime = datetime(2026, 11, 16, tzinfo=UTC), hours: int = 48
) -> list[Batch]:
    """Return devices and ledger hours whose clusters, teams, pools and workloads have these names.

    Four days before `start` count too: half of the hours lie in each of two windows.
    """
    begin = (start - timedelta(hours=hours)).replace(tzinfo=None)
    devices = [
        {
            "cluster": name,
            "device": f"GPU-{n}",
            "node": name,
            "model": name,
            "weight": 1.0,
            "interval_s": 60.0,
            "first_seen": begin,
            "last_seen": start.replace(tzinfo=None),
        }
        for n, name in enumerate(names)
    ]
    ledger = [
        {
            "cluster": name,
            "bucket": begin + timedelta(hours=hour),
            "device": f"GPU-{n}",
            "state": ("idle", "productive", "lost", "free")[hour % 4],
            "namespace": name,
            "workload_kind": "Job",
            "workload": name,
            "team": name,
            "node": name,
            "pool": name,
            "model": name,
            "seconds": 3600.0,
            "gpu_seconds": 3600.0,
            "usd": 2,
            "usd_gpu": 1,
            "priced": True,
        }
        for n, name in enumerate(names)
        for hour in range(hours)
    ]
    findings = [_finding(name, n, begin) for n, name in enumerate(names)]
    samples = [
        {
            "cluster": name,
            "ts": begin + timedelta(hours=hours - 1),
            "collector": name,
            "target": name,
            "until": start.replace(tzinfo=None),
            "up": False,
            "error": f"cannot reach {name}",
        }
        for name in names
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "device": devices,
        "ledger": ledger,
        "finding": findings,
        "scrape": samples,
    }
    return [_batch(table, listed) for table, listed in rows.items()]


def _finding(name: str, n: int, begin: datetime) -> dict[str, Any]:
    subject = {"cluster": name, "namespace": name, "workload_kind": "Job", "workload": name}
    advice = {
        "verb": name,
        "target": name,
        "why": name,
        "reversible": True,
        "marginal_gpu_hours": 1.0,
        "marginal_usd": 2.0,
    }
    details = {"why": name, "because": {name: 1.0}, "actual": 3.0, "usual": 2.0, "change": 1.0}
    return {
        "id": f"{n:012x}",
        "analyzer": "anomalies",
        "kind": "waste_anomaly",
        **subject,
        "start": begin,
        "end": begin + timedelta(hours=47),
        "found_at": begin + timedelta(hours=48),
        "verdict": "wasteful",
        "evidence": "suspected",
        "confidence": 0.9,
        "gpu_hours": 1.0,
        "usd": 2,
        "document": json.dumps(
            {"id": f"{n:012x}", "subject": subject, "details": details, "recommendations": [advice]}
        ),
    }


def stored(warehouse: Warehouse, *batches: Batch) -> None:
    """Put rows into tables, derived ones too."""
    for batch in batches:
        warehouse.replace(batch.table, batch.rows)


def _batch(table: str, rows: Sequence[dict[str, Any]]) -> Batch:
    return Batch.of(table, {name: [row[name] for row in rows] for name in rows[0]})
