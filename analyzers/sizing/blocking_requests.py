"""Find pods whose CPU or memory request per GPU is so large that other GPUs cannot be used."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from analyzers.sizing.findings import build_blocking
from analyzers.sizing.limits import get_limit
from analyzers.sizing.rows import GpuPod, Resource
from analyzers.work import MOST_NAMED, compute_share
from analyzers.workload_rows import Owner
from fallow.models import Claim, Evidence, Finding, Subject
from fallow.window import Window

Free = Mapping[tuple[str, str], tuple[float, Decimal | None]]
GIB = 2**30
LEAST_GPU_HOURS = 1.0
RESOURCES: dict[Resource, tuple[float, str]] = {
    "cpu": (1000.0, "cores"),
    "memory": (float(GIB), "GiB"),
}
"""The unit for people, and its name."""


def find_blocking(
    pods: Sequence[GpuPod],
    free: Free,
    window: Window,
    settled: Collection[tuple[Owner, str]] = (),
) -> Iterable[Finding]:
    """Yield findings about workloads whose requests make free GPUs of their nodes unusable.

    `free` has the free GPU-hours of each node and their cost. The waste is the excess over the fair
    share, converted to GPUs, and never more than was free there. Workloads and resources that are
    `settled` are judged by their own use instead (`requests.py`).
    """
    for resource in RESOURCES:
        by_owner: dict[Owner, list[GpuPod]] = {}
        for pod in pods:
            if _compute_excess(pod, resource) > 0:
                by_owner.setdefault(pod.owner, []).append(pod)
        for owner, members in by_owner.items():
            if (owner, resource) in settled:
                continue
            excess = partial(_compute_excess, resource=resource)
            claims = build_claims(owner[0], members, excess, free, window)
            if sum(c.gpu_hours for c in claims) < LEAST_GPU_HOURS:
                continue
            subject = Subject(
                *owner,
                team=members[0].team,
                nodes=tuple(sorted({c.node or "" for c in claims}))[:MOST_NAMED],
                models=tuple(sorted({pod.gpu_model for pod in members if pod.gpu_model})),
            )
            description = _describe_request(resource, members)
            if description is not None:
                evidence, details, words = description
                kind = f"{resource}_hog"
                yield build_blocking(kind, subject, window, claims, evidence, details, words)


def _compute_excess(pod: GpuPod, resource: Resource) -> float:
    """Return the excess CPU or memory over the fair share, in GPUs; 0 within limits."""
    of = pod.resource(resource)
    if not of.request or not of.fair or not pod.gpus:
        return 0.0
    share = of.request / pod.gpus / of.fair
    return pod.gpus * (share - 1) if share > get_limit("hog_factor") else 0.0


def build_claims(
    cluster: str,
    pods: Sequence[GpuPod],
    blocks: Callable[[GpuPod], float],
    free: Free,
    window: Window,
) -> tuple[Claim, ...]:
    """Claim free GPU-hours of the nodes of pods, for each as many GPUs as it `blocks`."""
    blocked: dict[str, float] = {}
    for pod in pods:
        node, hours = pod.node or "", min(pod.hours, window.seconds / 3600)
        blocked[node] = blocked.get(node, 0.0) + blocks(pod) * hours
    claims = []
    for node, hours in sorted(blocked.items()):
        have, usd = free.get((cluster, node), (0.0, None))
        granted = round(min(hours, have), 6)
        if granted > 0:
            cost = None if usd is None else compute_share(usd, min(1.0, granted / have))
            claims.append(Claim(cluster, "", "", "", None, "free", granted, cost, node=node))
    return tuple(claims)


def _build_parameters(resource: Resource, worst: GpuPod, pods: Sequence[GpuPod]) -> dict[str, Any]:
    """Return the parameters of a resize: the new request of a pod, and the maximum use of any."""
    uses = [pod.resource(resource) for pod in pods]
    return {
        "resource": resource,
        "ask": round((worst.resource(resource).fair or 0.0) * worst.gpus, 3),
        "used_p99": _find_most([use.p99 for use in uses]),
        "used_peak": _find_most([use.peak for use in uses]),
    }


def _find_most(values: Sequence[float | None]) -> float | None:
    """Return the maximum; None = one of the values is unknown."""
    measured = [value for value in values if value is not None]
    return round(max(measured), 3) if len(measured) == len(values) else None


def _describe_request(
    resource: Resource, pods: Sequence[GpuPod]
) -> tuple[Evidence, dict[str, Any], dict[str, Any]] | None:
    """Return the evidence and the words; None where the request is also used."""
    unit, name = RESOURCES[resource]
    worst = max(pods, key=lambda pod: (_compute_excess(pod, resource), pod.pod))
    uses = [pod.resource(resource) for pod in pods]
    parts = [use.p95 / use.request for use in uses if use.p95 is not None and use.request]
    part_used = max(parts, default=None)
    if part_used is not None and part_used >= get_limit("hog_used"):
        return None
    host_use = (
        "its use is not measured"
        if part_used is None
        else f"its pods use {part_used:.0%} of it at most (p95)"
    )
    of = worst.resource(resource)
    requested, fair = (of.request or 0) / worst.gpus / unit, (of.fair or 0.0) / unit
    blocked = _compute_excess(worst, resource)
    words = {
        "requested": requested,
        "fair": fair,
        "blocked": blocked,
        "used": host_use,
        "parameters": _build_parameters(resource, worst, pods),
    }
    details = {
        "why": f"{requested:.1f} {name} per GPU, a GPU's share is {fair:.1f}",
        "signals": {"request": f"pod {worst.pod} on {worst.node}", "host": host_use},
        "pods": len(pods),
        "gpus_blocked_by_one_pod": round(blocked, 3),
        "assumptions": ["free GPUs of the node could have been used but for this request"],
    }
    return ("suspected" if part_used is None else "confirmed"), details, words
