"""Show node pools and how capacity is bought: today, the minimum, and the advice."""

import json
from typing import Any

import pyarrow as pa

from dashboards.figures.query import (
    ADVICE,
    BY_DAY,
    BY_DEVICE,
    BY_HOUR,
    NODE_SHARES,
    Filters,
    run_query,
)
from fallow.protocols import Views
from fallow.resources import read_table
from fallow.window import Window

MOST = 500
POOLS = ("pools",)
SPOT = ("spot",)
DEMAND = ("demand",)
ANSWERING = (*POOLS, *SPOT, *DEMAND, "fragmentation")
"""The analyzers whose advice is about capacity."""


def read_pools(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per pool, the most expensive first.

    Columns: cluster, pool, nodes, gpus (mean), gpu_hours, usd, usd_h, productive_pct, idle_pct,
    free_pct (of its GPU-hours); and where the analyzer of pools sized it: nodes and USD per hour
    today, packed (a mix that holds the peak) and bound (no mix holds it for less), gap_pct.
    """
    rows = run_query(views, (*BY_HOUR, "supply/pools"), window, filters, most=MOST)
    counted = run_query(views, (*BY_DAY, "supply/pool_nodes"), window, filters).to_pylist()
    nodes = {(row["cluster"], row["pool"]): row["nodes"] for row in counted}
    names = zip(rows["cluster"].to_pylist(), rows["pool"].to_pylist(), strict=True)
    return rows.add_column(2, "nodes", pa.array([nodes[name] for name in names], pa.int64()))


def read_states(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return dollars by pool and state: columns name, state, usd."""
    return run_query(views, (*BY_HOUR, "supply/states"), window, filters)


def read_advised(
    views: Views, window: Window, filters: Filters, analyzers: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the advice of these analyzers, a row per recommendation, the largest saving first.

    Columns: id, kind, cluster, team, workload, evidence, verb, effort, saving, gpu_hours and usd
    it would save, why, caution, and details (the finding's own figures).
    """
    steps = (*ADVICE, "supply/advised")
    rows = run_query(views, steps, window, filters, analyzers=[*analyzers], most=MOST).to_pylist()
    return [add_finding_words(row) for row in rows]


def read_answers(views: Views, window: Window, filters: Filters) -> list[dict[str, Any]]:
    """Return the advice about capacity with its answer: buy, give back or move.

    Columns: those of `advised`, and answer (`capacity_answers.csv` has it by kind of finding).
    """
    answer_by_kind = {
        row["kind"]: row["answer"] for row in read_table("dashboards", "capacity_answers.csv")
    }
    return [
        {**row, "answer": answer_by_kind[row["kind"]]}
        for row in read_advised(views, window, filters, ANSWERING)
        if row["kind"] in answer_by_kind
    ]


def read_capacity(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return GPU-hours by how they were bought: committed (as charged), on-demand, spot.

    Columns: capacity, nodes, gpu_hours, usd, usd_per_gpu_hour, productive_pct, lost_gpu_hours.
    """
    steps = (*NODE_SHARES, *BY_DEVICE, "supply/capacity")
    return run_query(views, steps, window, filters, region="")


def add_finding_words(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of advice with fields of its finding instead of the document."""
    document = json.loads(row.pop("document") or "{}")
    recommendations = [
        r for r in document.get("recommendations") or () if r.get("verb") == row["verb"]
    ]
    recommendation = recommendations[0] if recommendations else {}
    details = document.get("details") or {}
    return row | {
        "why": str(recommendation.get("why") or details.get("why") or ""),
        "caution": str(recommendation.get("caution") or ""),
        "details": details,
    }
