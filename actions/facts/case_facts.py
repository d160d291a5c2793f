"""Build facts from findings, with no data later than the time of the facts."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from actions.facts.coverage import WorkloadCoverage, limit_coverage
from actions.facts.incidents import JobIncidents
from actions.facts.quotas import Quotas
from actions.facts.resumption import SUSPENDED, SuspendedJobs
from actions.recommend import recommend
from capacity.placement import pending_queue
from capacity.placement.fleet_state import (
    FleetState,
    NodeRecord,
    PodRecord,
    WorkloadAllocation,
    WorkloadKey,
    convert_micros,
    get_workload_key,
    read_inventories,
    read_latest_samples,
    to_micros,
)
from fallow import protections as protecting
from fallow.action_models import CaseHistory, Facts, PodRef
from fallow.disruptions import CoveringBudget
from fallow.idle_details import is_idle, list_vetoes, read_idle_details
from fallow.kube.objects import ENDED
from fallow.models import STALLED_JOB, Finding, Recommendation
from fallow.node_requirements import decode_document
from fallow.protocols import Views
from fallow.window import Window
from warehouse.disruption_budgets import DisruptionBudgets
from warehouse.workload_gpus import WorkloadGpus

HOUR_US = 3600 * 1_000_000
ROLLUP_S = 300.0
"""Rollups are computed in buckets of 300 s."""
PLATFORM_TEAM = "platform"
"""The owner of subjects that belong to no team: nodes, pools, quotas of the cluster."""
_ROLLED = "rollup_5m"
_WHOLE = 1 - 1e-6
Histories = Mapping[tuple[str, str], CaseHistory]
NONE: Histories = MappingProxyType({})


def gather_facts(
    views: Views, findings: Sequence[Finding], now: datetime, histories: Histories = NONE
) -> list[Facts]:
    """Return the facts of all findings with a recommendation, in their order.

    `histories` are by policy and finding. A history goes into the facts only where it is the only
    one of its finding (`plan` reads each again).
    """
    advised = [(f, r) for f in findings if f.window.start < now and (r := recommend(f))]
    if not advised:
        return []
    since = min(min(f.window.end, now) for f, _ in advised) - timedelta(hours=1)
    fleet_state = FleetState(views, since, now, (get_workload_key(f.subject) for f, _ in advised))
    queue, quotas = pending_queue.PendingWorkloads(fleet_state, now), Quotas(views, now)
    with_advice = [f for f, _ in advised]
    samples, coverage = (
        LatestSamples(views, fleet_state, with_advice, now),
        WorkloadCoverage(views, with_advice, now),
    )
    budgets = DisruptionBudgets.read(views, Window(since, now))
    incidents = JobIncidents(views, [f for f in with_advice if f.kind == STALLED_JOB], now, queue)
    suspended = SuspendedJobs(views, with_advice, now)
    single_histories = _select_single_histories(histories)
    cases = []
    for finding, advice in advised:
        if finding.kind == SUSPENDED:
            inventory = samples.clusters.get(finding.subject.cluster)
            facts = suspended.build_facts(fleet_state, finding, advice[0], now, inventory)
        else:
            facts = build_facts(
                fleet_state,
                finding,
                advice[0],
                now,
                pending=queue,
                samples=samples,
                quotas=quotas,
                held_gpus=coverage.of(finding),
                budgets=budgets,
                incidents=incidents if finding.kind == STALLED_JOB else None,
            )
        cases.append(_add_history(facts, single_histories.get(finding.id)))
    return cases


def build_facts(
    fleet_state: FleetState,
    finding: Finding,
    advice: Recommendation,
    now: datetime,
    *,
    pending: "pending_queue.PendingWorkloads | None" = None,
    samples: "LatestSamples | None" = None,
    quotas: Quotas | None = None,
    held_gpus: WorkloadGpus | None = None,
    budgets: DisruptionBudgets | None = None,
    incidents: JobIncidents | None = None,
) -> Facts:
    """Return the facts of one finding; without a `pending`, it is unknown who waits.

    `held` is the workload's allocation by the inventory; None = that was not read.
    """
    key, cluster = get_workload_key(finding.subject), finding.subject.cluster
    at, end = to_micros(now), to_micros(min(finding.window.end, now))
    pods, allocations = fleet_state.pods(key, at), fleet_state.allocations_at(key, end)
    workload = bool(finding.subject.namespace)
    nodes = _list_nodes(finding, pods, allocations)
    until, interval, coverage, conflicts = _sample_quality(finding, allocations, now, samples)
    if finding.kind == STALLED_JOB and until is not None:
        # Later samples of its devices do not count: after the hang ended they did not hang.
        until = min(until, finding.window.end)
    uids = {p.workload_uid for p in pods}
    node = None if workload else fleet_state.nodes.get((cluster, finding.subject.workload))
    uid = uids.pop() if len(uids) == 1 else None
    queue = _get_single(p.queue for p in pods)
    team = finding.subject.team or _get_single(p.team for p in pods)
    return Facts(
        finding=finding,
        recommendation=advice,
        at=now,
        gpus=_sum_gpus(finding, pods, allocations, node.gpu_count if node else None),
        pods=_list_pods(allocations) if workload else None,
        models=_list_models(finding, allocations),
        uid=node.uid if node else uid,
        owner=team or (None if workload else PLATFORM_TEAM),
        queue=queue,
        labels=_intersect_common([p.label_map for p in pods]),
        annotations=_merge_all(pods) | _find_unreadable(fleet_state, key, at, pods),
        namespace_annotations=protecting.select_protections(
            *(p.annotation_map.get(protecting.NAMESPACE) for p in pods)
        ),
        priority_class=_get_priority(pods),
        created_at=_find_creation(pods, node),
        seen_until=until,
        interval_s=interval,
        coverage=limit_coverage(coverage, held_gpus),
        conflicts=conflicts,
        shared=_is_shared(fleet_state, key, allocations, end, workload=workload),
        owner_resolved=is_owner_resolved(pods, key) if workload else True,
        nodes_ready=_is_ready(fleet_state, cluster, nodes, at, workload=workload),
        skew_s=_find_skew(pods, workload=workload),
        vetoes=_list_vetoes(finding, held_gpus),
        budgets=_count_budgets(budgets, finding, pods),
        budgets_unread=_is_unread(budgets, cluster),
        usd_per_day=_get_usd(advice),
        waiting=pending.admits(allocations, pods) if pending is not None else None,
        over_quota=_is_over_quota(quotas, finding, queue),
        pool_others=None if node is None else _count_pool_others(fleet_state, node, at),
        removes_node=_is_node_removed(fleet_state, key, allocations, end),
        incident=incidents.of(finding, allocations, pods) if incidents is not None else None,
    )


def _count_budgets(
    budgets: DisruptionBudgets | None, finding: Finding, pods: Sequence[PodRecord]
) -> tuple[CoveringBudget, ...] | None:
    if budgets is None or not finding.subject.namespace:
        return None
    labels = [p.labels for p in pods if p.phase not in ENDED]
    return budgets.count(finding.subject.cluster, finding.subject.namespace, labels)


def _is_unread(budgets: DisruptionBudgets | None, cluster: str) -> bool:
    return budgets is not None and budgets.is_unread(cluster)


def _find_creation(pods: Sequence[PodRecord], node: NodeRecord | None) -> datetime | None:
    """Return when the youngest pod was created, or when a node was first seen."""
    if node is None:
        return max((convert_micros(p.begin) for p in pods), default=None)
    return None if node.first_us is None else convert_micros(node.first_us)


def _is_over_quota(quotas: Quotas | None, finding: Finding, queue: str | None) -> bool | None:
    """Return whether a workload holds more than its quota; None = unknown, or no workload."""
    if quotas is None or not finding.subject.namespace:
        return None
    return quotas.over(finding.subject.cluster, finding.subject.namespace, queue)


class LatestSamples:
    """The latest device samples and inventories, for findings that do not contain their times."""

    def __init__(
        self, views: Views, fleet_state: FleetState, findings: Sequence[Finding], now: datetime
    ) -> None:
        quiet = [f for f in findings if not is_idle(f)]
        devices = {
            (h.key[0], h.device)
            for f in quiet
            for h in fleet_state.allocations_at(
                get_workload_key(f.subject), to_micros(min(f.window.end, now))
            )
        }
        self.devices = read_latest_samples(views, sorted(devices), now)
        self.clusters = read_inventories(views, now) if quiet else {}


def _sample_quality(
    finding: Finding,
    allocations: Sequence[WorkloadAllocation],
    now: datetime,
    samples: LatestSamples | None,
) -> tuple[datetime | None, float | None, float | None, tuple[str, ...]]:
    """Return the time of the last sample, the interval, the coverage, and the source conflicts.

    For an idle finding the last sample is the end of its stretch: the devices were not idle
    afterwards.
    """
    interval = _find_longest_interval(allocations)
    coverage = read_idle_details(finding).coverage if is_idle(finding) else None
    if is_idle(finding):
        if interval is not None and read_idle_details(finding).read_from == _ROLLED:
            interval = max(interval, ROLLUP_S)
        return min(finding.window.end, now), interval, coverage, ()
    if samples is None:
        return None, interval, coverage, ()
    if not allocations:
        return _read_inventory_quality(samples.clusters.get(finding.subject.cluster), coverage)
    device_samples = [samples.devices.get((h.key[0], h.device)) for h in allocations]
    return (
        _find_first_end(device_samples),
        interval,
        _find_least_coverage(device_samples) if coverage is None else coverage,
        _name_conflict(device_samples),
    )


def _find_longest_interval(allocations: Sequence[WorkloadAllocation]) -> float | None:
    """Return the longest sample interval of the devices; None = one is unknown."""
    intervals = [h.interval_s for h in allocations]
    return None if not allocations or None in intervals else max(i for i in intervals if i)


def _read_inventory_quality(
    inventory: Mapping[str, Any] | None, coverage: float | None
) -> tuple[datetime | None, float | None, float | None, tuple[str, ...]]:
    """Return the quality of the API's polls, for a finding that is about no device."""
    if inventory is None or inventory["seen_us"] is None:
        return None, None, coverage, ()
    inventory_coverage = coverage if coverage is not None else inventory["coverage"]
    return convert_micros(inventory["seen_us"]), inventory["interval_s"], inventory_coverage, ()


def _find_first_end(device_samples: Sequence[Mapping[str, Any] | None]) -> datetime | None:
    """Return until when every device was seen; None = one was not."""
    ends = [f["seen_us"] if f else None for f in device_samples]
    return None if None in ends else convert_micros(min(e for e in ends if e is not None))


def _find_least_coverage(device_samples: Sequence[Mapping[str, Any] | None]) -> float | None:
    """Return the coverage of the device that was seen least; None = one has none."""
    parts = [f["coverage"] if f else None for f in device_samples]
    return None if None in parts else min(p for p in parts if p is not None)


def _name_conflict(device_samples: Sequence[Mapping[str, Any] | None]) -> tuple[str, ...]:
    conflict = any(f and f["conflict_s"] > 0 for f in device_samples)
    return ("sources contradict each other about one of its devices",) if conflict else ()


def _sum_gpus(
    finding: Finding,
    pods: Sequence[PodRecord],
    allocations: Sequence[WorkloadAllocation],
    on_node: int | None,
) -> float:
    """Return the GPUs that an act affects.

    These are the idle GPUs of a partly idle workload, and all GPUs of a node.
    """
    if finding.verdict == "partly idle" and allocations:
        idle = set(read_idle_details(finding).devices)
        return round(sum(h.share * h.weight for h in allocations if h.device in idle), 6)
    if allocations:
        return round(sum(h.share * h.weight for h in allocations), 6)
    if on_node is not None:
        return float(on_node)
    requested = sum(p.gpus for p in pods)
    return requested or float(read_idle_details(finding).devices_held or 0)


def _list_pods(allocations: Sequence[WorkloadAllocation]) -> tuple[PodRef, ...]:
    return tuple(sorted({h.pod for h in allocations}, key=lambda pod: (pod.pod, pod.uid)))


def _list_models(finding: Finding, allocations: Sequence[WorkloadAllocation]) -> tuple[str, ...]:
    models = {h.model for h in allocations if h.model}
    return tuple(sorted(models)) or finding.subject.models


def _list_nodes(
    finding: Finding, pods: Sequence[PodRecord], allocations: Sequence[WorkloadAllocation]
) -> set[str]:
    if not finding.subject.namespace and finding.subject.workload_kind == "Node":
        return {finding.subject.workload}
    return {n for n in (*(p.node for p in pods), *(h.node for h in allocations)) if n}


def _is_shared(
    fleet_state: FleetState,
    key: WorkloadKey,
    allocations: Sequence[WorkloadAllocation],
    at: int,
    *,
    workload: bool,
) -> bool | None:
    if not workload:
        return False
    if not allocations:
        return None
    return any(
        h.share < _WHOLE
        or not h.exact
        or any(
            other.key != key for other in fleet_state.device_allocations_at((key[0], h.device), at)
        )
        for h in allocations
    )


def is_owner_resolved(pods: Sequence[PodRecord], key: WorkloadKey) -> bool | None:
    """Return whether an inventory names the top owner of a workload's pods; None = no pods."""
    if not pods:
        return None
    return bool(key[2] and key[3]) and all(p.resolved for p in pods)


def _is_ready(
    fleet_state: FleetState, cluster: str, nodes: set[str], at: int, *, workload: bool
) -> bool | None:
    if not nodes:
        return None if workload else True
    states = [fleet_state.ready((cluster, node), at) for node in sorted(nodes)]
    if False in states:
        return False
    return None if None in states else True


def _find_skew(pods: Sequence[PodRecord], *, workload: bool) -> float | None:
    """Return a lower bound of the seconds by which the API's clock is ahead of ours."""
    leads = [p.ahead for p in pods if p.ahead is not None]
    if not leads:
        return 0.0 if pods or not workload else None
    return max(0.0, *(lead / 1e6 for lead in leads))


def _is_node_removed(
    fleet_state: FleetState, key: WorkloadKey, allocations: Sequence[WorkloadAllocation], at: int
) -> bool | None:
    """Return whether the act leaves a node without GPU pods that its pool can remove."""
    node_keys = {(key[0], h.node) for h in allocations if h.node}
    if not node_keys:
        return None
    answers: list[bool | None] = []
    for node_key in sorted(node_keys):
        if any(h.key != key for h in fleet_state.node_allocations_at(node_key, at)):
            answers.append(False)
            continue
        node = fleet_state.nodes.get(node_key)
        answers.append(True if node is not None and node.pool else None)
    if True in answers:
        return True
    return None if None in answers else False


def _list_vetoes(finding: Finding, held_gpus: WorkloadGpus | None) -> tuple[str, ...]:
    """Return what forbids an act: the finding's vetoes, and replicas without evidence."""
    vetoes = [*list_vetoes(finding)]
    if held_gpus is not None and held_gpus.gap is not None:
        vetoes.append(held_gpus.gap)
    return tuple(dict.fromkeys(vetoes))


def _count_pool_others(fleet_state: FleetState, node: NodeRecord, at: int) -> int | None:
    """Count the other nodes of a node's pool that were ready and schedulable; None = no pool."""
    if not node.pool:
        return None
    return sum(
        n.unschedulable is False and fleet_state.ready((n.cluster, n.node), at) is True
        for n in fleet_state.nodes.values()
        if (n.cluster, n.pool) == (node.cluster, node.pool)
        and n.node != node.node
        and (n.first_us is None or n.first_us <= at)
        and (n.last_us is None or n.last_us >= at - HOUR_US)
    )


def _get_usd(advice: Recommendation) -> Decimal | None:
    return advice.usd_per_day


def _get_priority(pods: Sequence[PodRecord]) -> str | None:
    """Return the priority class; where the pods' classes differ, a system class comes first."""
    classes = sorted({p.priority_class for p in pods if p.priority_class})
    system = [name for name in classes if name.startswith("system-")]
    return next(iter(system or classes), None)


def _get_single(values: Any) -> str | None:
    distinct = {v for v in values if v}
    return distinct.pop() if len(distinct) == 1 else None


def _intersect_common(label_sets: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the labels that all pods have with the same value."""
    if not label_sets:
        return {}
    first, *others = label_sets
    return {k: str(v) for k, v in first.items() if all(o.get(k) == v for o in others)}


def _merge_all(pods: Sequence[PodRecord]) -> dict[str, str]:
    """Return the annotations of any pod: a protection of one pod protects all.

    An entry of the table of protections also counts as a label, or on an owner.
    """
    # Names without a domain are the collector's own annotations about volumes and placement.
    prefixed = {
        name: value
        for pod in pods
        for name, value in pod.annotation_map.items()
        if "/" in name and isinstance(value, str)
    }
    note_sets = [
        w
        for p in pods
        for w in (p.annotation_map, p.label_map, p.annotation_map.get(protecting.OWNERS))
    ]
    return {**prefixed, **protecting.select_protections(*note_sets)}


def _find_unreadable(
    fleet_state: FleetState, key: WorkloadKey, at: int, pods: Sequence[PodRecord]
) -> dict[str, str]:
    """Return the mark of an unreadable pod that acting may hit, or of the node itself.

    On a node every such pod counts. Of a workload, besides its own, those whose owner is not known
    and whose name begins with the workload's.
    """
    cluster, namespace, _, name = key
    node = None if namespace else fleet_state.nodes.get((cluster, name))
    if namespace:
        unresolved = fleet_state.unresolved_pods(cluster, namespace, at)
        nearby = [pod for pod in unresolved if pod.pod.startswith(name)]
    else:
        nearby = fleet_state.node_pods((cluster, name), at)
    marks = [pod.annotation_map for pod in (*pods, *nearby)]
    if node is not None:
        marks.append(decode_document(node.labels) or {})
    texts = [str(m[protecting.UNREADABLE]) for m in marks if protecting.UNREADABLE in m]
    return {protecting.UNREADABLE: texts[0]} if texts else {}


def _select_single_histories(histories: Histories) -> dict[str, CaseHistory]:
    by_finding: dict[str, list[CaseHistory]] = {}
    for (_, finding), history in histories.items():
        by_finding.setdefault(finding, []).append(history)
    return {
        finding: histories_of_case[0]
        for finding, histories_of_case in by_finding.items()
        if len(histories_of_case) == 1
    }


def _add_history(facts: Facts, history: CaseHistory | None) -> Facts:
    return facts if history is None else replace(facts, history=history)
