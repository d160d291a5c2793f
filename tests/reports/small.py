"""A small warehouse for reports: three days of a fleet in two clouds and a cellar.

`python -m tests.reports.small HOME` makes it in a folder, for the FOCUS validator.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from warehouse.lake import Warehouse

END = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(END - timedelta(days=3), END)
NODES = (
    ("alpha", "a-0", "aws", "us-east-1", "on-demand", "p5.48xlarge"),
    ("alpha", "a-1", "aws", "us-east-1", "spot", "p5.48xlarge"),
    ("alpha", "g-0", "gcp", "us-central1", "reserved", "a3-highgpu-8g"),
    ("beta", "cellar-0", "other", None, None, None),
)
STATES = ("productive", "idle", "free", "lost", "stranded", "low", "unavailable", "startup")
HELD = ("productive", "idle", "lost", "low", "startup")
TEAMS = ("vision", "speech", None)
HOSTILE = (
    "<script>alert(1)</script>",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd",
    "x" * 253,
    "**bold** [a](http://evil.example) `c` $x$ # h | y",
    "=cmd()|' '!A0",
    '#panic("typst") @here \U0001f525',
)
"""Markup, another direction, as long as a name can be, Markdown, a formula, typst."""


def rows(teams: tuple[str | None, ...] = TEAMS, days: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Return devices, nodes, ledger hours and a finding per team."""
    begin = (END - timedelta(days=days)).replace(tzinfo=None)
    end = END.replace(tzinfo=None)
    nodes = [
        {
            "cluster": cluster,
            "node": node,
            "first_seen": begin,
            "last_seen": end,
            "provider": provider,
            "region": region,
            "instance_type": kind,
            "capacity_type": term,
            "pool": "gpu",
        }
        for cluster, node, provider, region, term, kind in NODES
    ]
    devices = [
        {
            "cluster": cluster,
            "device": f"GPU-{cluster}-{node}",
            "node": node,
            "model": "H100",
            "weight": 1.0,
            "interval_s": 60.0,
            "first_seen": begin,
            "last_seen": end,
        }
        for cluster, node, *_ in NODES
    ]
    ledger = [
        _hour(begin, hour, n, state, teams[(hour + n) % len(teams)])
        for n in range(len(NODES))
        for hour in range(24 * days)
        for state in (STATES[(hour + n) % len(STATES)], STATES[(hour + n + 3) % len(STATES)])
    ]
    found = [_finding(n, team or "nameless", begin) for n, team in enumerate(teams)]
    return {"node": nodes, "device": devices, "ledger": ledger, "finding": found}


def _hour(begin: datetime, hour: int, n: int, state: str, team: str | None) -> dict[str, Any]:
    cluster, node, *_ = NODES[n]
    held = state in HELD
    cents = Decimal(101 + 37 * n + 3 * (hour % 7)) / Decimal(97)
    priced = n != 3 or hour % 24 != 5  # an hour of the cellar has no price
    usd = round(cents, 8)
    return {
        "cluster": cluster,
        "bucket": begin + timedelta(hours=hour),
        "device": f"GPU-{cluster}-{node}",
        "state": state,
        "namespace": f"ns-{team}" if held else "",
        "workload_kind": "Job" if held else "",
        "workload": f"job-{team}" if held else "",
        "team": team if held else None,
        "node": node,
        "pool": "gpu",
        "model": "H100",
        "seconds": 1800.0,
        "gpu_seconds": 1800.0,
        "usd": usd if priced else None,
        "usd_gpu": round(usd * Decimal("0.7"), 8) if priced else None,
        "priced": priced,
        "price_as_of": begin if priced else None,
    }


def _finding(n: int, team: str, begin: datetime) -> dict[str, Any]:
    subject = {
        "cluster": "alpha",
        "namespace": f"ns-{team}",
        "workload_kind": "Job",
        "workload": f"job-{team}",
    }
    advice = {"verb": "suspend", "target": team, "marginal_gpu_hours": 2.0, "marginal_usd": 3.5 - n}
    return {
        "id": f"{n:012x}",
        "analyzer": "idle",
        "kind": "idle_job",
        **subject,
        "start": begin,
        "end": begin + timedelta(hours=24),
        "found_at": begin + timedelta(hours=48),
        "verdict": "idle",
        "evidence": "confirmed",
        "confidence": 0.9,
        "gpu_hours": 2.0,
        "usd": Decimal("3.5") - n,
        "document": json.dumps({"subject": {**subject, "team": team}, "recommendations": [advice]}),
    }


def fill(home: Path, tables: dict[str, list[dict[str, Any]]]) -> Settings:
    """Put rows into a new warehouse and return its settings."""
    settings = Settings(home=home)
    with Warehouse.open(settings, write=True) as warehouse:
        for table, listed in tables.items():
            columns: dict[str, object] = {name: [row[name] for row in listed] for name in listed[0]}
            warehouse.replace(table, Batch.of(table, columns).rows)
    return settings


if __name__ == "__main__":
    fill(Path(sys.argv[1]), rows())
