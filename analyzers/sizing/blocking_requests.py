"""Find pods whose CPU or memory request per GPU is so large that other GPUs cannot be used."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from analyzers.sizing.findings import build_blocking, group_by_owner
from analyzers.sizing.limits import get_limit
from analyzers.work import MOST_NAMED, Owner, compute_share
from fallow.models import Claim, Evidence, Finding, Subject
from fallow.window import Window

Row = Mapping[str, Any]
Free = Mapping[tuple[str, str], tuple[float, Decimal | None]]
GIB = 2**30
LEAST_GPU_HOURS = 1.0
REQUEST_COLUMNS = {
    "cpu_hog": ("cpu_request_milli", "fair_milli", "cpu_p95", 1000.0, "cores"),
    "memory_hog": ("memory_request_bytes", "fair_bytes", "memory_p95", float(GIB), "GiB"),
}
"""By kind: the request, a GPU's share of it, the use, and the unit for people."""


def find_blocking(
    pods: list[dict[str, Any]],
    free: Free,
    window: Window,
    settled: Collection[tuple[Owner, str]] = (),
) -> Iterable[Finding]:
    """Yield findings about workloads whose requests make free GPUs of their nodes unusable.

    `pods` are rows of `pods.sql` joined to `hosts.sql`; `free` the free GPU-hours of each node and
    their cost. The waste is the excess over the fair share, converted to GPUs, and never more than
    was free there. Workloads and resources that are `settled` are judged by their own use instead
    (`requests.py`).
    """
    for kind in REQUEST_COLUMNS:
        over = [row for row in pods if _compute_excess(row, kind) > 0]
        for (cluster, namespace, workload_kind, workload), rows in group_by_owner(over).items():
            owner = cluster, namespace, workload_kind, workload
            if (owner, kind.removesuffix("_hog")) in settled:
                continue
            claims = build_claims(cluster, rows, partial(_compute_excess, kind=kind), free, window)
            if sum(c.gpu_hours for c in claims) < LEAST_GPU_HOURS:
                continue
            subject = Subject(
                cluster,
                namespace,
                workload_kind,
                workload,
                team=rows[0]["team"],
                nodes=tuple(sorted({c.node or "" for c in claims}))[:MOST_NAMED],
                models=tuple(sorted({r["gpu_model"] for r in rows if r["gpu_model"]})),
            )
            description = _describe_request(kind, rows)
            if description is not None:
                evidence, details, words = description
                yield build_blocking(kind, subject, window, claims, evidence, details, words)


def _compute_excess(row: Row, kind: str) -> float:
    """Return the excess CPU or memory over the fair share, in GPUs; 0 within limits."""
    request, fair = row[REQUEST_COLUMNS[kind][0]], row[REQUEST_COLUMNS[kind][1]]
    if not request or not fair or not row["gpus"]:
        return 0.0
    share = request / row["gpus"] / fair
    return float(row["gpus"] * (share - 1)) if share > get_limit("hog_factor") else 0.0


def build_claims(
    cluster: str,
    rows: Sequence[Row],
    blocks: Callable[[Row], float],
    free: Free,
    window: Window,
) -> tuple[Claim, ...]:
    """Claim free GPU-hours of the nodes of pods, for each as many GPUs as it `blocks`."""
    blocked: dict[str, float] = {}
    for row in rows:
        hours = min(row["hours"], window.seconds / 3600)
        blocked[row["node"]] = blocked.get(row["node"], 0.0) + blocks(row) * hours
    claims = []
    for node, hours in sorted(blocked.items()):
        have, usd = free.get((cluster, node), (0.0, None))
        granted = round(min(hours, have), 6)
        if granted > 0:
            cost = None if usd is None else compute_share(usd, min(1.0, granted / have))
            claims.append(Claim(cluster, "", "", "", None, "free", granted, cost, node=node))
    return tuple(claims)


def _build_parameters(kind: str, worst: Row, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a resize: the new request of a pod, and the maximum use of any."""
    _, fair, used, _, _ = REQUEST_COLUMNS[kind]
    resource, unit = kind.removesuffix("_hog"), 1000 if kind == "cpu_hog" else 1

    def most(column: str) -> float | None:
        seen = [row[column] for row in rows]
        return None if None in seen else round(max(seen) * unit, 3)

    name = used.removesuffix("_p95")
    return {
        "resource": resource,
        "ask": round(worst[fair] * worst["gpus"], 3),
        "used_p99": most(f"{name}_p99"),
        "used_peak": most(f"{name}_peak"),
    }


def _describe_request(
    kind: str, rows: list[dict[str, Any]]
) -> tuple[Evidence, dict[str, Any], dict[str, Any]] | None:
    """Return the evidence and the words; None where the request is also used."""
    request, fair, used, unit, name = REQUEST_COLUMNS[kind]
    worst = max(rows, key=lambda row: (_compute_excess(row, kind), row["pod"]))
    seen = [row[used] * (1000 if kind == "cpu_hog" else 1) / row[request] for row in rows
            if row[used] is not None]  # fmt: skip
    part_used = max(seen) if seen else None
    if part_used is not None and part_used >= get_limit("hog_used"):
        return None
    host_use = (
        "nobody measures what it uses of it"
        if part_used is None
        else f"its pods use {part_used:.0%} of it at most (p95)"
    )
    words = {
        "asked": worst[request] / worst["gpus"] / unit,
        "fair": worst[fair] / unit,
        "blocked": _compute_excess(worst, kind),
        "used": host_use,
        "parameters": _build_parameters(kind, worst, rows),
    }
    details = {
        "why": f"{words['asked']:.1f} {name} per GPU, a GPU's share is {words['fair']:.1f}",
        "witnesses": {"request": f"pod {worst['pod']} on {worst['node']}", "host": host_use},
        "pods": len(rows),
        "gpus_blocked_by_one_pod": round(words["blocked"], 3),
        "assumptions": ["free GPUs of the node could have been used but for this request"],
    }
    return ("suspected" if part_used is None else "confirmed"), details, words
