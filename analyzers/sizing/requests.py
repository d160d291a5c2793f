"""Find CPU and memory requests beyond a container's own use, and compute the right request.

    pod.containers ──► requests, and whether the container was OOM-killed ───────┐
    container_sample ─► p95 of CPU, most memory, over at least 7 days ───────────┼─► a finding per
    node, ledger ────► GPUs beside it that cannot be used ───────────────────────┘   workload

A request of CPU becomes the 95th percentile of use, of memory the maximum use x 1.15
(`limits.csv`). The memory of a container that was OOM-killed is never lowered. Of a workload's
containers the one with the largest excess is named; the others follow once it is done.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from analyzers.query_cache import cache_query
from analyzers.sizing.blocking_requests import (
    GIB,
    LEAST_GPU_HOURS,
    RESOURCES,
    Free,
    build_claims,
)
from analyzers.sizing.findings import build_blocking
from analyzers.sizing.limits import get_limit
from analyzers.sizing.rows import (
    ContainerSamples,
    GpuPod,
    RequestedContainer,
    Resource,
    read_container_samples,
    read_containers,
)
from analyzers.work import MOST_NAMED
from analyzers.workload_rows import Owner
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.window import Window

DAY_S = 86_400
MIB = 2**20
STEP_MILLI = 10
LEAST_LIMITS: dict[Resource, str] = {
    "cpu": "request_cpu_milli",
    "memory": "request_memory_bytes",
}
"""The limit that names the least change of a request, by resource."""


class ContainerUse(msgspec.Struct, frozen=True):
    """One container of a workload: its requests and its use."""

    owner: Owner
    name: str
    requests: dict[Resource, int]
    """Millicores and bytes, by `cpu` and `memory`; absent requests are left out."""
    oom_killed: bool
    days: dict[str, float]
    """The number of days with known use, by resource."""
    use: dict[str, float]
    """`cpu_p95`, `cpu_max` in millicores, `memory_max` in bytes, where known."""

    def needs(self, resource: Resource) -> int | None:
        """Return the right request; None where too little of its use is known."""
        if self.days.get(resource, 0.0) < get_limit("request_days"):
            return None
        if resource == "cpu":
            used = round(self.use["cpu_p95"], 1)
            return max(STEP_MILLI, -int(-used // STEP_MILLI) * STEP_MILLI)
        return -int(-self.use["memory_max"] * get_limit("request_memory") // MIB) * MIB

    def lower(self, resource: Resource) -> int | None:
        """Return the right request where it is lower than the present one by enough, else None."""
        request, need = self.requests.get(resource), self.needs(resource)
        if request is None or need is None or (resource == "memory" and self.oom_killed):
            return None
        least = max(get_limit("request_least") * request, get_limit(LEAST_LIMITS[resource]))
        return need if request - need >= least else None


@cache_query
def sum_containers(views: Views, window: Window) -> list[ContainerUse]:
    """Return the containers of the workloads that hold GPUs in the window."""
    lookback = timedelta(days=get_limit("request_back_days"))
    requests: dict[tuple[Owner, str], dict[Resource, int]] = {}
    killed: set[tuple[Owner, str]] = set()
    for pod in read_containers(views, window, lookback):
        for container in pod.decode_containers():
            key = pod.owner, container.name
            if container.oom_killed:
                killed.add(key)
            if pod.lives:
                _add_requests(requests.setdefault(key, {}), container)
    if not requests:
        return []
    owners = sorted({owner for owner, _ in requests})
    samples = {
        (row.owner, row.container): row
        for row in read_container_samples(views, window, lookback, owners)
    }
    return [
        _build_container(key, requests[key], key in killed, samples.get(key))
        for key in sorted(requests)
    ]


def _add_requests(requests: dict[Resource, int], container: RequestedContainer) -> None:
    """Raise the requests to those of a container; of several pods the largest request counts."""
    amounts: dict[Resource, int | None] = {
        "cpu": container.cpu_milli,
        "memory": container.memory_bytes,
    }
    for resource, amount in amounts.items():
        if amount is not None:
            requests[resource] = max(requests.get(resource, 0), amount)


def find_oversized(
    containers: Sequence[ContainerUse], pods: Sequence[GpuPod], free: Free, window: Window
) -> Iterator[Finding]:
    """Yield a finding per workload and resource with a container request that is too large.

    The waste is the excess over a GPU's share of its node, converted
    to GPUs, and never more than was free there. Where nothing was free, the requests are still too
    large, and no hours are claimed.
    """
    of: dict[Owner, list[ContainerUse]] = {}
    for container in containers:
        of.setdefault(container.owner, []).append(container)
    mine: dict[Owner, list[GpuPod]] = {}
    for pod in pods:
        mine.setdefault(pod.owner, []).append(pod)
    for owner, every in sorted(of.items()):
        for resource in RESOURCES:
            lowered = [
                (container, request)
                for container in every
                if (request := container.lower(resource)) is not None
            ]
            if lowered:
                yield _build_finding(
                    owner, resource, every, lowered, mine.get(owner, []), free, window
                )


def list_settled(containers: Iterable[ContainerUse]) -> set[tuple[Owner, Resource]]:
    """Return the workloads whose own use is known, or must not be lowered, by resource."""
    return {
        (container.owner, resource)
        for container in containers
        for resource in RESOURCES
        if container.needs(resource) is not None or (resource == "memory" and container.oom_killed)
    }


def find_unknown(containers: Iterable[ContainerUse]) -> Iterator[Unjudged]:
    """Yield the workloads whose containers have some history, but not enough."""
    short: dict[Owner, list[str]] = {}
    for container in containers:
        days = min(container.days.values(), default=0.0)
        if 0 < days < get_limit("request_days"):
            short.setdefault(container.owner, []).append(f"{container.name} {days:.1f}")
    for owner, days_known in sorted(short.items()):
        why = f"days of CPU and memory use known of its containers: {', '.join(days_known)}; "
        about = Subject(*owner)
        yield Unjudged(about, 0.0, (f"{why}{get_limit('request_days'):g} are needed",))


def _build_container(
    key: tuple[Owner, str],
    requests: dict[Resource, int],
    killed: bool,
    row: ContainerSamples | None,
) -> ContainerUse:
    days: dict[str, float] = {}
    use: dict[str, float] = {}
    if row is not None:
        if row.cpu_p95 is not None and row.cpu_max is not None:
            days["cpu"] = (row.cpu_s or 0.0) / DAY_S
            use |= {"cpu_p95": row.cpu_p95 * 1000, "cpu_max": row.cpu_max * 1000}
        if row.memory_max is not None:
            days["memory"] = (row.memory_s or 0.0) / DAY_S
            use["memory_max"] = float(row.memory_max)
    return ContainerUse(*key, requests, killed, days, use)


def _build_finding(  # noqa: PLR0917  (one caller)
    owner: Owner,
    resource: Resource,
    every: Sequence[ContainerUse],
    lowered: Sequence[tuple[ContainerUse, int]],
    pods: Sequence[GpuPod],
    free: Free,
    window: Window,
) -> Finding:
    container, request = max(
        lowered, key=lambda item: (item[0].requests[resource] - item[1], item[0].name)
    )
    spared = sum(c.requests[resource] - need for c, need in lowered)
    claims = build_claims(
        owner[0], pods, partial(_compute_released, resource=resource, spared=spared), free, window
    )
    hours = sum(c.gpu_hours for c in claims)
    if hours < LEAST_GPU_HOURS:
        claims = ()
    blocks = {
        r: round(max((_compute_blocked(pod, r) for pod in pods), default=0.0), 3) for r in RESOURCES
    }
    worst = max(blocks, key=lambda r: blocks[r])
    used = container.use["cpu_p95" if resource == "cpu" else "memory_max"]
    peak = container.use["cpu_max" if resource == "cpu" else "memory_max"]
    strands = (
        f"; beyond its share of the node it keeps {blocks[resource]:.2f} free GPUs from use"
        if claims
        else ""
    )
    caution = (
        f"its peak was {_format_amount(resource, peak)}: with less asked for it gets less where "
        "its node is short of CPU"
        if resource == "cpu" and peak > request
        else "a limit that stays is not raised by it"
    )
    words = {
        "container": container.name,
        "requested": _format_amount(resource, container.requests[resource]),
        "used": _format_amount(resource, used),
        "ask": _format_amount(resource, request),
        "days": container.days[resource],
        "strands": strands,
        "caution": caution,
        "parameters": {
            "resource": resource,
            "container": container.name,
            "ask": request,
            "used_p95" if resource == "cpu" else "used_most": round(used, 3),
            "history_days": round(container.days[resource], 3),
            "oom_killed": container.oom_killed,
        },
    }
    details = {
        "why": f"container {container.name} asks for {words['requested']} and used {words['used']}",
        "signals": {
            "request": f"container {container.name} of {owner[2]}/{owner[3]}",
            "host": f"{container.days[resource]:.1f} days of its own use",
        },
        "containers": [_describe_container(c) for c in every],
        "strands_gpus": blocks,
        "request_that_strands_gpus": worst if claims and blocks[worst] > 0 else None,
    }
    subject = Subject(
        *owner,
        team=pods[0].team if pods else None,
        nodes=tuple(sorted({c.node or "" for c in claims}))[:MOST_NAMED],
        models=tuple(sorted({pod.gpu_model for pod in pods if pod.gpu_model})),
    )
    return build_blocking(
        f"{resource}_request", subject, window, claims, "confirmed", details, words
    )


def _compute_blocked(pod: GpuPod, resource: Resource, less: float = 0.0) -> float:
    """Return the pod's excess over its GPUs' share, in GPUs, after the request is lowered."""
    of = pod.resource(resource)
    if not of.request or not of.fair or not pod.gpus:
        return 0.0
    return max(0.0, (of.request - less) / of.fair - pod.gpus)


def _compute_released(pod: GpuPod, resource: Resource, spared: float) -> float:
    return _compute_blocked(pod, resource) - _compute_blocked(pod, resource, spared)


def _describe_container(container: ContainerUse) -> dict[str, Any]:
    return {
        "container": container.name,
        "asks": dict(container.requests),
        "should_ask": {r: need for r in RESOURCES if (need := container.needs(r)) is not None},
        "used": {name: round(value, 3) for name, value in container.use.items()},
        "days": {r: round(value, 3) for r, value in container.days.items()},
        "oom_killed": container.oom_killed,
    }


def _format_amount(resource: Resource, value: float) -> str:
    return f"{value / 1000:.2f} cores" if resource == "cpu" else f"{value / GIB:.2f} GiB"
