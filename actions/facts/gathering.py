"""From findings to facts, with nothing later than the moment the facts are of."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from actions.facts import waiting
from actions.facts.coverage import Coverage, lowered
from actions.facts.ground import (
    Ground,
    Hold,
    Key,
    Node,
    Pod,
    inventories,
    key_of,
    looks,
    micros,
    moment,
)
from actions.facts.quotas import Quotas
from actions.recommend import recommend
from fallow import protections as protecting
from fallow.acting import Facts, History, PodRef
from fallow.nouns import Finding, Recommendation
from fallow.seams import Views
from warehouse.workload_gpus import WorkloadGpus

HOUR_US = 3600 * 1_000_000
ROLLED_S = 300.0
"""What rollups tell is told every five minutes."""
PLATFORM = "platform"
"""Who is told about what belongs to no team: nodes, pools, quotas of the cluster."""
_ROLLED = "rollup_5m"
_WHOLE = 1 - 1e-6
HistoryOf = Mapping[tuple[str, str], History]
NONE: HistoryOf = MappingProxyType({})


def gather(
    views: Views,
    findings: Sequence[Finding],
    now: datetime,
    histories: HistoryOf = NONE,
) -> list[Facts]:
    """Return the facts of all findings that recommend something, in their order.

    `histories` are by policy and finding; one goes into facts only where it is the finding's only
    one (`plan` looks each up again).
    """
    advised = [(f, r) for f in findings if f.window.start < now and (r := recommend(f))]
    if not advised:
        return []
    since = min(min(f.window.end, now) for f, _ in advised) - timedelta(hours=1)
    ground = Ground(views, since, now, (key_of(f.subject) for f, _ in advised))
    line, quotas = waiting.Line(ground, now), Quotas(views, now)
    found = [f for f, _ in advised]
    seen, covered = Seen(views, ground, found, now), Coverage(views, found, now)
    alone = _alone(histories)
    made = []
    for finding, advice in advised:
        facts = facts_of(
            ground,
            finding,
            advice[0],
            now,
            line=line,
            seen=seen,
            quotas=quotas,
            held=covered.of(finding),
        )
        made.append(_with_history(facts, alone.get(finding.id)))
    return made


def facts_of(
    ground: Ground,
    finding: Finding,
    advice: Recommendation,
    now: datetime,
    *,
    line: "waiting.Line | None" = None,
    seen: "Seen | None" = None,
    quotas: Quotas | None = None,
    held: WorkloadGpus | None = None,
) -> Facts:
    """Return the facts of one finding; without a `line`, who waits is unknown.

    `held` is what its workload holds by the inventory; None = that was not read.
    """
    key, cluster = key_of(finding.subject), finding.subject.cluster
    at, end = micros(now), micros(min(finding.window.end, now))
    pods, holds = ground.pods(key, at), ground.held(key, end)
    workload = bool(finding.subject.namespace)
    nodes = _nodes(finding, pods, holds)
    until, interval, coverage, conflicts = _looked(finding, holds, now, seen)
    uids = {p.workload_uid for p in pods}
    node = None if workload else ground.nodes.get((cluster, finding.subject.workload))
    uid = uids.pop() if len(uids) == 1 else None
    queue = _one(p.queue for p in pods)
    owned = finding.subject.team or _one(p.team for p in pods)
    return Facts(
        finding=finding,
        recommendation=advice,
        at=now,
        gpus=_gpus(finding, pods, holds, node.gpu_count if node else None),
        pods=_pods(holds) if workload else None,
        models=_models(finding, holds),
        uid=node.uid if node else uid,
        owner=owned or (None if workload else PLATFORM),
        queue=queue,
        labels=_common([p.words for p in pods]),
        annotations=_all(pods),
        namespace_annotations=protecting.named(*(p.notes.get(protecting.NAMESPACE) for p in pods)),
        priority_class=_priority(pods),
        created_at=max((moment(p.begin) for p in pods), default=None)
        if node is None
        else (None if node.first_us is None else moment(node.first_us)),
        seen_until=until,
        interval_s=interval,
        coverage=lowered(coverage, held),
        conflicts=conflicts,
        shared=_shared(ground, key, holds, end, workload=workload),
        owner_resolved=resolved(pods, key) if workload else True,
        nodes_ready=_ready(ground, cluster, nodes, at, workload=workload),
        skew_s=_skew(pods, workload=workload),
        vetoes=_vetoes(finding, held),
        usd_per_day=_usd(advice),
        waiting=line.admits(holds, pods) if line is not None else None,
        over_quota=quotas.over(cluster, finding.subject.namespace, queue)
        if quotas is not None and workload
        else None,
        pool_others=None if node is None else _others(ground, node, at),
        removes_node=_removes(ground, key, holds, end),
    )


class Seen:
    """Looks at the devices, and at the clusters' APIs, of findings that do not tell them."""

    def __init__(
        self, views: Views, ground: Ground, findings: Sequence[Finding], now: datetime
    ) -> None:
        quiet = [f for f in findings if not tells(f)]
        devices = {
            (h.key[0], h.device)
            for f in quiet
            for h in ground.held(key_of(f.subject), micros(min(f.window.end, now)))
        }
        self.devices = looks(views, sorted(devices), now)
        self.clusters = inventories(views, now) if quiet else {}


def tells(finding: Finding) -> bool:
    """Say whether a finding itself tells until when and how well its devices were seen."""
    return finding.verdict in {"idle", "partly idle"} and "coverage" in finding.details


def _looked(
    finding: Finding, holds: Sequence[Hold], now: datetime, seen: Seen | None
) -> tuple[datetime | None, float | None, float | None, tuple[str, ...]]:
    """Return until when it was seen, how often, how well, and what contradicted itself.

    An idle finding was seen until its stretch ends: whatever its devices did since, they were not
    idle.
    """
    intervals = [h.interval_s for h in holds]
    interval = None if not holds or None in intervals else max(i for i in intervals if i)
    said = finding.details.get("coverage")
    coverage = float(said) if isinstance(said, int | float) else None
    if tells(finding):
        if interval is not None and finding.details.get("read_from") == _ROLLED:
            interval = max(interval, ROLLED_S)
        return min(finding.window.end, now), interval, coverage, ()
    if seen is None:
        return None, interval, coverage, ()
    if not holds:
        look = seen.clusters.get(finding.subject.cluster)
        if look is None or look["seen_us"] is None:
            return None, None, coverage, ()
        told = coverage if coverage is not None else look["coverage"]
        return moment(look["seen_us"]), look["interval_s"], told, ()
    found = [seen.devices.get((h.key[0], h.device)) for h in holds]
    ends = [f["seen_us"] if f else None for f in found]
    parts = [f["coverage"] if f else None for f in found]
    if coverage is None and None not in parts:
        coverage = min(p for p in parts if p is not None)
    conflict = any(f and f["conflict_s"] > 0 for f in found)
    return (
        None if None in ends else moment(min(e for e in ends if e is not None)),
        interval,
        coverage,
        ("sources contradict each other about one of its devices",) if conflict else (),
    )


def _gpus(
    finding: Finding, pods: Sequence[Pod], holds: Sequence[Hold], on_node: int | None
) -> float:
    """Return the GPUs that acting would touch: of idle ranks only those, of a node all."""
    if finding.verdict == "partly idle" and holds:
        idle = set(finding.details.get("devices") or ())
        return round(sum(h.share * h.weight for h in holds if h.device in idle), 6)
    if holds:
        return round(sum(h.share * h.weight for h in holds), 6)
    if on_node is not None:
        return float(on_node)
    asked = sum(p.gpus for p in pods)
    return asked or float(finding.details.get("devices_held") or 0)


def _pods(holds: Sequence[Hold]) -> tuple[PodRef, ...]:
    return tuple(sorted({h.pod for h in holds}, key=lambda pod: (pod.pod, pod.uid)))


def _models(finding: Finding, holds: Sequence[Hold]) -> tuple[str, ...]:
    held = {h.model for h in holds if h.model}
    return tuple(sorted(held)) or finding.subject.models


def _nodes(finding: Finding, pods: Sequence[Pod], holds: Sequence[Hold]) -> set[str]:
    if not finding.subject.namespace and finding.subject.workload_kind == "Node":
        return {finding.subject.workload}
    return {n for n in (*(p.node for p in pods), *(h.node for h in holds)) if n}


def _shared(
    ground: Ground, key: Key, holds: Sequence[Hold], at: int, *, workload: bool
) -> bool | None:
    if not workload:
        return False
    if not holds:
        return None
    return any(
        h.share < _WHOLE
        or not h.exact
        or any(other.key != key for other in ground.sharing((key[0], h.device), at))
        for h in holds
    )


def resolved(pods: Sequence[Pod], key: Key) -> bool | None:
    """Say whether an inventory tells the top owner of a workload's pods; None = it has none."""
    if not pods:
        return None
    return bool(key[2] and key[3]) and all(p.resolved for p in pods)


def _ready(
    ground: Ground, cluster: str, nodes: set[str], at: int, *, workload: bool
) -> bool | None:
    if not nodes:
        return None if workload else True
    said = [ground.ready((cluster, node), at) for node in sorted(nodes)]
    if False in said:
        return False
    return None if None in said else True


def _skew(pods: Sequence[Pod], *, workload: bool) -> float | None:
    """Return by how many seconds the API's clock is seen to be ahead of ours, at least."""
    leads = [p.ahead for p in pods if p.ahead is not None]
    if not leads:
        return 0.0 if pods or not workload else None
    return max(0.0, *(lead / 1e6 for lead in leads))


def _removes(ground: Ground, key: Key, holds: Sequence[Hold], at: int) -> bool | None:
    """Say whether a node would hold no GPU pod any more, and can go: it is of a pool."""
    places = {(key[0], h.node) for h in holds if h.node}
    if not places:
        return None
    answers: list[bool | None] = []
    for place in sorted(places):
        if any(h.key != key for h in ground.on_node(place, at)):
            answers.append(False)
            continue
        node = ground.nodes.get(place)
        answers.append(True if node is not None and node.pool else None)
    if True in answers:
        return True
    return None if None in answers else False


def _vetoes(finding: Finding, held: WorkloadGpus | None) -> tuple[str, ...]:
    """Return what forbids to act: what the finding says, and replicas that nobody saw."""
    said = list(map(str, finding.details.get("vetoes") or ()))
    if held is not None and held.gap is not None:
        said.append(held.gap)
    return tuple(dict.fromkeys(said))


def _others(ground: Ground, node: Node, at: int) -> int | None:
    """Count the other nodes of a node's pool that were ready and schedulable; None = no pool."""
    if not node.pool:
        return None
    return sum(
        n.unschedulable is False and ground.ready((n.cluster, n.node), at) is True
        for n in ground.nodes.values()
        if (n.cluster, n.pool) == (node.cluster, node.pool)
        and n.node != node.node
        and (n.first_us is None or n.first_us <= at)
        and (n.last_us is None or n.last_us >= at - HOUR_US)
    )


def _usd(advice: Recommendation) -> Decimal | None:
    return advice.usd_per_day


def _priority(pods: Sequence[Pod]) -> str | None:
    """Return the priority class; where they differ, one of the system's first."""
    named = sorted({p.priority_class for p in pods if p.priority_class})
    system = [name for name in named if name.startswith("system-")]
    return next(iter(system or named), None)


def _one(values: Any) -> str | None:
    known = {v for v in values if v}
    return known.pop() if len(known) == 1 else None


def _common(each: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the labels that all pods bear with one value."""
    if not each:
        return {}
    first, *others = each
    return {k: str(v) for k, v in first.items() if all(o.get(k) == v for o in others)}


def _all(pods: Sequence[Pod]) -> dict[str, str]:
    """Return the annotations of any pod: what one forbids is forbidden for all.

    What the table of protections names counts too where it is a label, or stands on an owner.
    """
    # Names without a domain are the collector's own notes about volumes and places.
    plain = {
        name: said
        for pod in pods
        for name, said in pod.notes.items()
        if "/" in name and isinstance(said, str)
    }
    words = [w for p in pods for w in (p.notes, p.words, p.notes.get(protecting.OWNERS))]
    return {**plain, **protecting.named(*words)}


def _alone(histories: HistoryOf) -> dict[str, History]:
    found: dict[str, list[History]] = {}
    for (_, finding), history in histories.items():
        found.setdefault(finding, []).append(history)
    return {finding: each[0] for finding, each in found.items() if len(each) == 1}


def _with_history(facts: Facts, history: History | None) -> Facts:
    return facts if history is None else replace(facts, history=history)
