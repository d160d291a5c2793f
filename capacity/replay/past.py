"""Build the site of a replay from the rows of its past."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from shlex import quote
from statistics import median
from typing import Any

import msgspec

from capacity.history.queue_history import NodeOutage, PastNode, PastPod, PastQuota, QueueHistory
from capacity.placement.node_fleet import MIB, UNKNOWN_AMOUNT, WHOLE, FleetNode, FleetPod
from capacity.replay.records import (
    PodRun,
    ReplayNode,
    ReplayQueue,
    ReplaySite,
    ReplayUnit,
    SchedulerKind,
)
from capacity.workload_kinds import is_gang
from fallow.checkpointing import INTERVAL, parse_interval_hours
from fallow.errors import UsageError
from fallow.gpu_models import get_model_name
from fallow.node_requirements import NodeRequirements, read_requirements, read_taints
from fallow.stored_annotations import NEVER_PREEMPTS

TOGETHER_S = 60.0
"""Pods of one job that were created within this time are a gang."""
RESTART_S = 300.0
"""Pods of a job that come within this time after its evicted pods are the same work again."""
UNKNOWN_ARRIVALS = "units have pods only since Kueue admitted them: their wait is not known"
UNKNOWN_PRIORITY = "units of a priority class without a known value count as priority 0"
NEVER_PLACED = "units were never placed: their run time is the median of their team"
NOT_ENDED = "units had not ended: they run until the end of the replay"
_CLUSTER_QUEUE, _COHORT, _ELASTIC = "ClusterQueue", "Cohort", "ElasticQuota"
_SCHEDULERS: Mapping[str, SchedulerKind] = {
    _CLUSTER_QUEUE: "kueue",
    "Queue.volcano": "volcano",
    "Queue.kai": "volcano",
    _ELASTIC: "kueue",
}
"""Kinds of quotas, and the scheduler that replays them; the first that there is decides."""


class PastSite(msgspec.Struct, frozen=True):
    """A site to replay, and what was recorded of it."""

    site: ReplaySite
    starts: Mapping[str, float]
    """By unit: when the last of its pods was placed."""
    runs: tuple[PodRun, ...]
    """What ran, as it was recorded; without devices' indices."""
    notes: tuple[str, ...] = ()
    unknown_arrivals: int = 0
    """Units whose wait before their admission by Kueue was not recorded."""


def build_past(history: QueueHistory) -> PastSite:
    """Return the site of a history.

    Raises:
        UsageError: it has several clusters, no node with GPUs, or nothing arrived in the window.
    """
    _check(history)
    scheduler = _choose_scheduler(history.quotas)
    queues = _build_queues(history.quotas, scheduler)
    requirements = _RequirementNumbers()
    notes: Counter[str] = Counter()
    whole = _list_whole_nodes(history, notes)
    left_out = {node.node for node in history.nodes} - {node.node for node in whole}
    groups = _join_attempts(_group_pods(history, scheduler, left_out, notes))
    builder = _UnitBuilder(history, queues, requirements, notes)
    units, starts, runs = [], {}, []
    for attempts in groups:
        unit = builder.build(attempts)
        units.append(unit)
        placed_s = _find_placed(attempts[0])
        if placed_s is not None:
            starts[unit.name] = placed_s
        for attempt in attempts:
            runs += builder.list_runs(unit, attempt)
    listed_s = min((n.first_s for n in history.nodes if n.first_s is not None), default=-math.inf)
    placed: dict[str, list[PastPod]] = defaultdict(list)
    for pod in history.pods:
        if pod.node and pod.placed_s is not None:
            placed[pod.node].append(pod)
    outages: dict[str, list[NodeOutage]] = defaultdict(list)
    for outage in history.outages:
        outages[outage.node].append(outage)
    nodes = tuple(
        msgspec.structs.replace(
            _build_node(n, requirements, listed_s, placed[n.node]), outages=tuple(outages[n.node])
        )
        for n in whole
    )
    preempts = scheduler == "plain" or history.evictions > 0
    if scheduler != "plain" and not preempts:
        notes["no eviction was reported: the replay reclaims and preempts nothing"] += 1
    if any(quota.versions > 1 for quota in history.quotas):
        notes["quotas changed in the window: the last ones are replayed"] += 1
    site = ReplaySite(
        history.window.start.timestamp(),
        history.window.end.timestamp(),
        nodes,
        tuple(units),
        scheduler,
        tuple(queues.values()),
        preempts,
    )
    return PastSite(
        site,
        starts,
        tuple(runs),
        tuple(_write_note(*note) for note in notes.items()),
        notes[UNKNOWN_ARRIVALS],
    )


def _check(history: QueueHistory) -> None:
    clusters = sorted({p.cluster for p in history.pods} | {n.cluster for n in history.nodes})
    if len(clusters) > 1:
        raise UsageError(
            f"a what-if replays one cluster, and the window has {len(clusters)}",
            hint=f"add --cluster {quote(clusters[0])} to it (legal: {', '.join(clusters)})",
        )
    if not history.nodes:
        raise UsageError(
            "no node with GPUs was listed in the window", hint="see what there is: fallow doctor"
        )
    start_s = history.window.start.timestamp()
    if not any(pod.queued_s >= start_s for pod in history.pods):
        raise UsageError(
            "no pod that requests GPUs arrived in the window: there is nothing to replay",
            hint="--window 30d",
        )


def _choose_scheduler(quotas: Iterable[PastQuota]) -> SchedulerKind:
    kinds = {quota.kind for quota in quotas}
    return next((scheduler for kind, scheduler in _SCHEDULERS.items() if kind in kinds), "plain")


def _build_queues(
    quotas: Iterable[PastQuota], scheduler: SchedulerKind
) -> dict[tuple[str, str], ReplayQueue]:
    """Return the queues and cohorts of a scheduler by kind and name.

    An ElasticQuota is the queue of its namespace; all of them lend to each other.
    """
    queues: dict[tuple[str, str], ReplayQueue] = {}
    names: set[str] = set()
    for quota in sorted(quotas, key=lambda quota: quota.kind):
        is_cohort = quota.kind == _COHORT
        if (scheduler if is_cohort else _SCHEDULERS.get(quota.kind)) != scheduler:
            continue
        elastic = quota.kind == _ELASTIC
        name = quota.namespace if elastic else quota.name
        queues[quota.kind, name] = ReplayQueue(
            f"{name} ({quota.kind})" if name in names and not is_cohort else name,
            to_milli(quota.nominal or 0),
            None if quota.limit is None else to_milli(quota.limit),
            None if quota.lending is None else to_milli(quota.lending),
            _ELASTIC if elastic else quota.parent,
            is_cohort,
        )
        if not is_cohort:
            names.add(name)
    return queues


def to_milli(gpus: float) -> int:
    """Return GPUs as thousandths."""
    return round(gpus * WHOLE)


def _group_pods(
    history: QueueHistory, scheduler: SchedulerKind, left_out: Collection[str], notes: Counter[str]
) -> list[list[PastPod]]:
    """Return the pods by unit, in the order of their arrival; not those of nodes `left_out`."""
    groups: list[list[PastPod]] = []
    latest: dict[tuple[str, ...], list[PastPod]] = {}
    start_s = history.window.start.timestamp()
    for pod in history.pods:
        if "/mig-" in pod.gpu_resource:
            notes["pods of MIG instances are left out"] += 1
            continue
        if pod.node in left_out:
            notes["pods of whole GPUs on nodes that are left out are, too"] += 1
            continue
        key = _find_gang(pod, scheduler)
        group = latest.get(key) if key else None
        running = _is_running_at(pod, start_s)
        if (
            group is None
            or pod.created_s - group[0].created_s > TOGETHER_S
            or _is_running_at(group[0], start_s) != running
        ):
            group = []
            groups.append(group)
            if key:
                latest[key] = group
        group.append(pod)
    return groups


def _join_attempts(groups: Iterable[list[PastPod]]) -> list[list[list[PastPod]]]:
    """Return each unit's attempts: evicted pods, and those that did their work again."""
    units: list[list[list[PastPod]]] = []
    evicted: dict[str, list[list[list[PastPod]]]] = defaultdict(list)
    for group in groups:
        owner = group[0].workload_uid
        unit = _find_attempts(group, evicted[owner]) if owner else None
        if unit is None:
            unit = []
            units.append(unit)
        else:
            evicted[group[0].workload_uid or ""].remove(unit)
        unit.append(group)
        if owner and group[0].ended_s is not None:
            evicted[owner].append(unit)
    return units


def _find_attempts(
    group: Sequence[PastPod], units: Iterable[list[list[PastPod]]]
) -> list[list[PastPod]] | None:
    """Return the unit whose evicted pods a group replaces."""
    first = group[0]
    for unit in units:
        last = unit[-1]
        ended_s = last[0].ended_s
        if ended_s is None or len(last) != len(group):
            continue
        requeued = first.queued_known and abs(first.queued_s - ended_s) <= RESTART_S
        if (last[0].evicted or requeued) and 0 <= first.created_s - ended_s + 1 <= RESTART_S:
            return unit
    return None


def _is_running_at(pod: PastPod, start_s: float) -> bool:
    # What begins with the window is replayed: a setting may let it wait.
    return pod.placed_s is not None and pod.placed_s < start_s


def _find_gang(pod: PastPod, scheduler: SchedulerKind) -> tuple[str, ...] | None:
    """Return the key of the pods that start together; None = it stands alone."""
    if pod.pod_group:
        return (pod.namespace, pod.pod_group)
    if scheduler == "plain" or pod.workload_uid is None:
        return None
    return (pod.workload_uid,) if is_gang(pod.workload_kind) else None


class _RequirementNumbers:
    """A number for each set of requirements, so that nodes are compared with it once."""

    def __init__(self) -> None:
        self._numbers: dict[NodeRequirements, int] = {}
        self._read: dict[tuple[str | None, str | None], NodeRequirements] = {}
        """By the annotations of a pod and its label of GPU models."""

    def find_number(self, pod: PastPod) -> int:
        return self._numbers.setdefault(self.read(pod), len(self._numbers))

    def read(self, pod: PastPod) -> NodeRequirements:
        key = pod.annotations, pod.gpu_spec
        if key not in self._read:
            self._read[key] = read_requirements(_decode(pod.annotations), pod.gpu_spec)
        return self._read[key]

    def list_met(self, node: PastNode, pods: Sequence[PastPod]) -> frozenset[int]:
        """Return the requirements that a node meets; `pods` were placed on it.

        The inventory has a node's last taints: one that such a pod does not tolerate came later.
        """
        labels = msgspec.json.decode(node.labels) if node.labels else None
        tolerated = {self.read(pod).tolerations for pod in pods}
        model = get_model_name(node.gpu_model)
        taints = [
            taint
            for taint in read_taints(node.taints)
            if all(any(each.covers(taint) for each in own) for own in tolerated)
        ]
        return frozenset(
            number
            for needs, number in self._numbers.items()
            if not needs.explain_refusal(labels, taints, model)
        )


class _UnitBuilder:
    """Builds units from pods."""

    def __init__(
        self,
        history: QueueHistory,
        queues: Mapping[tuple[str, str], ReplayQueue],
        requirements: _RequirementNumbers,
        notes: Counter[str],
    ) -> None:
        self._start_s = history.window.start.timestamp()
        self._end_s = history.window.end.timestamp()
        self._queues = {key: queue.name for key, queue in queues.items()}
        self._is_kueue = any(kind == _CLUSTER_QUEUE for kind, _ in queues)
        self._requirements, self._notes = requirements, notes
        self._local = {
            (quota.namespace, quota.name): quota.parent
            for quota in history.quotas
            if quota.kind == "LocalQueue" and quota.parent
        }
        self._typical = _measure_typical_runs(history.pods)

    def build(self, attempts: Sequence[Sequence[PastPod]]) -> ReplayUnit:
        """Return the unit: it arrives with its first attempt and runs as long as its last."""
        pods, first = attempts[-1], attempts[0][0]
        running = _is_running_at(first, self._start_s)
        self._note(first, pods)
        priority = max((pod.priority or 0 for pod in pods), default=0)
        name = f"{first.namespace}/{first.pod}/{first.uid}"
        members = tuple(map(self._build_request, pods))
        nodes = tuple(pod.node or "" for pod in attempts[0])
        begins = all(pod.placed_s == self._start_s for pod in attempts[0])
        leaves = [pod.ended_s for pod in pods if pod.placed_s is None and pod.ended_s is not None]
        return ReplayUnit(
            name,
            first.team,
            self._find_queue(first),
            priority,
            min(pod.queued_s for pod in attempts[0]),
            members,
            tuple(self._compute_run(pod, running=running and len(attempts) == 1) for pod in pods),
            min(leaves, default=math.inf),
            nodes if running else (),
            nodes if begins else (),
            any(pod.placed_s is None for pod in pods),
            _name_workload(first),
            _find_placed(pods),
            checkpoint_s=_read_checkpoint(first.annotations),
        )

    def _note(self, first: PastPod, pods: Sequence[PastPod]) -> None:
        """Count what is not known of a unit."""
        complete = {
            UNKNOWN_ARRIVALS: not self._is_kueue or not first.queue or first.queued_known,
            UNKNOWN_PRIORITY: all(
                pod.priority is not None or not pod.priority_class for pod in pods
            ),
            NEVER_PLACED: all(pod.placed_s is not None for pod in pods),
            NOT_ENDED: all(pod.placed_s is None or pod.ended_s is not None for pod in pods),
        }
        self._notes.update(note for note, is_complete in complete.items() if not is_complete)

    def list_runs(self, unit: ReplayUnit, pods: Sequence[PastPod]) -> list[PodRun]:
        """Return what ran of a unit in the window."""
        return [
            PodRun(
                unit.name,
                pod.uid,
                pod.node or "",
                tuple(range(member.gpus)),
                member.gpu_milli,
                max(pod.placed_s, self._start_s),
                min(self._end_s if pod.ended_s is None else pod.ended_s, self._end_s),
            )
            for pod, member in zip(pods, unit.members, strict=True)
            if pod.placed_s is not None and pod.placed_s < self._end_s
        ]

    def _build_request(self, pod: PastPod) -> FleetPod:
        gpus = max(1, math.ceil(pod.gpus - 1e-6))
        return FleetPod(
            pod.uid,
            pod.cpu_milli,
            -(-pod.memory_bytes // MIB),
            gpus,
            max(1, to_milli(pod.gpus / gpus)),
            self._requirements.find_number(pod),
            not _decode(pod.annotations).get(NEVER_PREEMPTS),
        )

    def _compute_run(self, pod: PastPod, *, running: bool) -> float:
        if pod.placed_s is None:
            return self._typical.get((pod.team, pod.gpus)) or self._typical.get(("", 0.0), math.inf)
        if pod.ended_s is None:
            return math.inf
        return max(0.0, pod.ended_s - (self._start_s if running else pod.placed_s))

    def _find_queue(self, pod: PastPod) -> str:
        own = self._local.get((pod.namespace, pod.queue), pod.queue)
        keys = ((kind, pod.namespace if kind == _ELASTIC else own) for kind in _SCHEDULERS)
        return next((self._queues[key] for key in keys if key in self._queues), "")


def _name_workload(pod: PastPod) -> tuple[str, str, str]:
    """Return namespace, kind and name of the pod's owner."""
    return pod.namespace, pod.workload_kind or "", pod.workload or ""


def _find_placed(pods: Sequence[PastPod]) -> float | None:
    """Return when the last of a unit's pods was placed; None = one was not."""
    placed = [pod.placed_s for pod in pods]
    return None if None in placed else max(s for s in placed if s is not None)


def _decode(annotations: str | None) -> dict[str, Any]:
    return msgspec.json.decode(annotations, type=dict[str, Any]) if annotations else {}


def _read_checkpoint(annotations: str | None) -> float | None:
    """Return the seconds between checkpoints that the owner declared."""
    hours = parse_interval_hours(_decode(annotations).get(INTERVAL))
    return None if hours is None else hours * 3600


def _measure_typical_runs(pods: Iterable[PastPod]) -> dict[tuple[str, float], float]:
    """Return the median run by team and GPUs; of all under the key ("", 0)."""
    runs: dict[tuple[str, float], list[float]] = defaultdict(list)
    for pod in pods:
        if pod.placed_s is not None and pod.ended_s is not None:
            run_s = max(0.0, pod.ended_s - pod.placed_s)
            runs[pod.team, pod.gpus].append(run_s)
            runs["", 0.0].append(run_s)
    return {key: median(values) for key, values in runs.items()}


def _list_whole_nodes(history: QueueHistory, notes: Counter[str]) -> list[PastNode]:
    nodes = []
    for node in history.nodes:
        if node.sharing == "mig" or not node.gpus:
            notes["nodes in MIG mode or without a number of GPUs are left out"] += 1
        else:
            nodes.append(node)
    return nodes


def _build_node(
    node: PastNode, requirements: _RequirementNumbers, listed_s: float, pods: Sequence[PastPod]
) -> ReplayNode:
    """Return a node on which `pods` were placed; one of the first list (`listed_s`) is older.

    It is cordoned now: it was open until the last of them came.
    """
    last_placed_s = max((pod.placed_s for pod in pods if pod.placed_s is not None), default=None)
    capacity = FleetNode(
        node.node,
        UNKNOWN_AMOUNT if node.cpu_milli is None else node.cpu_milli,
        UNKNOWN_AMOUNT if node.memory_bytes is None else node.memory_bytes // MIB,
        node.gpus or 0,
        get_model_name(node.gpu_model) or "",
        requirements.list_met(node, pods),
        not node.unschedulable or last_placed_s is not None,
    )
    opens = -math.inf if node.first_s is None or node.first_s <= listed_s else node.first_s
    closes = node.last_s if node.unseen and node.last_s is not None else math.inf
    if node.unschedulable and last_placed_s is not None:
        closes = min(closes, last_placed_s)
    return ReplayNode(capacity, opens, closes)


def _write_note(text: str, count: int) -> str:
    """Return a note with its count, where it counts something."""
    return f"{count} {text}" if text.startswith(("units", "pods", "nodes")) else text
