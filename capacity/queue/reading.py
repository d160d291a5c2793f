"""Read the queue: a record of each workload that waits for GPUs at one time.

pod, event ──────► reasons ──┐
node, device ────► placement ┼─► ways ─► QueuedWorkload
allocation, ledger ► holders ┘
pending_workload ► the pods that a job without pods would create
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property

import msgspec
import pyarrow as pa

from capacity.placement.flavors import FlavorLabels, FlavorVariant, list_variants
from capacity.placement.fleet_state import (
    MICRO,
    NodeKey,
    PodRecord,
    WorkloadKey,
    convert_micros,
    to_micros,
)
from capacity.placement.node_capacities import PlacementNode, judge_node
from capacity.placement.pending_places import PendingAnswer, PendingPlaces, mark_places_unknown
from capacity.placement.pod_demand import PodDemand, build_demand
from capacity.queue.holders import NO_CHECKPOINTS, DeviceHolder, Holders
from capacity.queue.pending_jobs import PendingJob, PendingJobs, PriorityMeasure, UnsizedJob
from capacity.queue.reasons import (
    classify_text,
    list_messages,
    list_reasons,
    read_condition,
    read_messages,
)
from capacity.queue.records import QueueBlocker, QueuedWorkload, WaitReason, WayIn
from capacity.queue.shared_places import SharedPlaces
from capacity.queue.stop_sets import MovePlanner, StoppableHolders, WaitingDemand
from capacity.queue.unchecked_rules import explain_unchecked, mark_unknown
from capacity.queue.ways import STATES, find_ways, rank_way
from capacity.quota.borrowing import QuotaJudge, check_loan
from fallow.models import UNRESOLVED
from fallow.money import round_to_cents
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.rows import Row, decode_rows
from fallow.stored_annotations import NEVER_PREEMPTS
from warehouse.steps import POD_OWNERS, compose_query

SKEW = timedelta(seconds=30)
"""From this difference between the API's clock and ours a wait is not known."""
EVENTS = timedelta(days=7)
"""Events are read from this long ago."""
MOST_BLOCKERS = 10
HOUR_S = 3600
Turn = tuple[WaitingDemand, QuotaJudge, StoppableHolders]
"""What a workload requests, the quotas it has, and whom its queue may stop for it."""


class QueuedPod(Row, frozen=True):
    """A pod that does not run yet."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    team: str | None
    pod: str
    queue: str | None
    priority_class: str | None
    priority: int | None
    begin_us: int


class UnsizedPod(QueuedPod, frozen=True):
    """A waiting pod whose number of GPUs is not known (`unsized_pods.sql`)."""

    gpu_resource: str


class StartingPod(QueuedPod, frozen=True):
    """A pod with a node whose containers have not started (`starting_pods.sql`)."""

    gpus: float
    containers: str | None


class QueueReader:
    """Reads the queue of every cluster at one time; nothing is written.

    `planner` finds moves of running pods; without one no way is after moves. `checkpoints`: when
    workloads last wrote one, as their bursts of writing show.
    """

    def __init__(
        self,
        views: Views,
        now: datetime,
        planner: MovePlanner | None = None,
        checkpoints: Mapping[WorkloadKey, datetime] = NO_CHECKPOINTS,
    ) -> None:
        self._views, self._now, self._at = views, now, to_micros(now)
        self._planner = planner
        self.places = PendingPlaces(views, now)
        self._holders = Holders(views, self.places.state, now, checkpoints)
        self._jobs = PendingJobs(views, self.places.state, now)
        self._legal: dict[tuple[str, PodDemand], frozenset[NodeKey]] = {}
        self._ways: dict[
            object, tuple[list[tuple[DeviceHolder, int]], tuple[WayIn, ...], StoppableHolders]
        ] = {}
        """By what decides them: many workloads request the same."""
        self._variants: dict[tuple[WorkloadKey, tuple[str, ...]], Turn] = {}
        self._turns: dict[WorkloadKey, Turn] = {}
        """Of the flavors that a record has."""

    def list_waiting(self) -> dict[WorkloadKey, list[PodRecord]]:
        """Return the workloads that wait, each with its pods without a node.

        A job without pods has those that it would create.
        """
        pending = self.places.list_pending()
        for pod in self.places.list_ahead():
            pending.setdefault(pod.key, []).append(pod)
        return dict(sorted((self._jobs.list_pods() | pending).items()))

    def read(self, cluster: str | None = None) -> list[QueuedWorkload]:
        """Return a record per waiting workload, the most GPU-hours of waiting first.

        Their ways are counted together: two of them do not get the same free devices.
        """
        records = [
            self.describe(key, pods)
            for key, pods in self.list_waiting().items()
            if cluster is None or key[0] == cluster
        ]
        records += [r for r in self.list_others() if cluster is None or r.key[0] == cluster]
        shared = SharedPlaces(self.places.nodes, self._holders.list_in)
        return [
            msgspec.structs.replace(record, at_once=self._gets_in(record, shared))
            for record in sorted(records, key=lambda r: (-(r.gpu_hours or 0.0), r.key))
        ]

    def _gets_in(self, record: QueuedWorkload, shared: SharedPlaces) -> bool:
        """Return whether a workload gets in beside those before it, and take its places."""
        if record.cheapest_way is None or record.key not in self._turns:
            return False
        return shared.take_first(*self._turns[record.key], record.ways)

    def describe(self, key: WorkloadKey, pods: Sequence[PodRecord]) -> QueuedWorkload:
        """Return the record of a workload and its waiting pods.

        With flavors of Kueue it is the record of the assignment with the cheapest way in.
        """
        variants = list_variants(key, pods, self.places.quotas)
        records = [self._describe_variant(key, pods, variant) for variant in variants]
        record = min(records, key=_rank_record)
        variant = variants[records.index(record)]
        if (key, variant.flavors) in self._variants:
            self._turns[key] = self._variants[key, variant.flavors]
        return record

    def _describe_variant(
        self, key: WorkloadKey, listed: Sequence[PodRecord], variant: FlavorVariant
    ) -> QueuedWorkload:
        pods = variant.pods
        answer = self.places.explain_variant(key, listed, variant)
        demand = self._build_demand(key, variant)
        unknown = list(_list_doubts(key, pods))
        since = convert_micros(min(_get_begin(pod) for pod in pods))
        waited = None
        if not _is_skewed(pods):
            waited = sum(p.gpus * (self._at - p.begin) / MICRO for p in pods) / HOUR_S
        usd_h = self._price(demand) if demand else None
        if usd_h is None:
            unknown.append("waiting_cost: the ledger's last day prices no node that takes it")
        if variant.why:
            unknown.append(f"ways: {variant.why}")
        if variant.untried:
            unknown.append(f"ways: {variant.untried}")
        blocked, others, ways = self._find_blockers(demand, variant, answer, since)
        messages = list_messages(pods, self._messages)
        unchecked = explain_unchecked(pods, messages)
        if unchecked:
            answer = mark_places_unknown(answer, unchecked)
            if any(way.state == "holds" for way in ways):
                ways = mark_unknown(ways, unchecked)
                unknown.append(f"ways: {unchecked}")
        return QueuedWorkload(
            key=key,
            pods=len(pods),
            gpus=answer.gpus,
            since=since,
            team=next((pod.team for pod in pods if pod.team), None),
            queue=pods[0].queue,
            priority_class=pods[0].priority_class,
            priority=_get_priority(pods),
            hours=None if waited is None else (self._at - to_micros(since)) / MICRO / HOUR_S,
            gpu_hours=None if waited is None else round(waited, 6),
            usd_h=usd_h,
            waiting_cost=None
            if waited is None or usd_h is None
            else round_to_cents(usd_h * Decimal(repr(waited))),
            reasons=list_reasons(messages, answer),
            blocked_by=blocked,
            held_by_others=others,
            ways=ways,
            unknown=tuple(unknown),
            answer=answer,
            objects=self._jobs.list_objects(key),
        )

    def _build_demand(self, key: WorkloadKey, variant: FlavorVariant) -> WaitingDemand | None:
        pods = variant.pods
        demand = build_demand(key[0], pods)
        if demand is None:
            return None
        nodes = {node.key: node for node in self.places.nodes if node.key[0] == key[0]}
        for need in set(demand.needs):
            if (key[0], need) not in self._legal:
                self._legal[key[0], need] = frozenset(
                    node_key for node_key, node in nodes.items() if not judge_node(node, need)[0]
                )
        return WaitingDemand(
            key,
            pods[0].queue,
            demand.needs,
            self.places.count_needs(pods) if variant.needs is None else variant.needs,
            nodes,
            {need: self._legal[key[0], need] for need in demand.needs},
            {name: _list_own_nodes(nodes, labels) for name, labels in variant.labels.items()},
        )

    def _find_blockers(
        self,
        demand: WaitingDemand | None,
        variant: FlavorVariant,
        answer: PendingAnswer,
        since: datetime,
    ) -> tuple[tuple[QueueBlocker, ...], str, tuple[WayIn, ...]]:
        """Return who holds what it could use, what is said of the rest, and the ways in."""
        if demand is None:
            return (), answer.why, ()
        priority = _get_priority(variant.pods)
        never = "its preemption policy is Never" if _must_not_preempt(variant.pods) else ""
        measure = self._jobs.find_measure(demand.key)
        same = (demand.key[:2], demand.queue, demand.needs, priority, never, measure,
                tuple(sorted(demand.by_resource.items())))  # fmt: skip
        if same not in self._ways:
            holders = [
                (holder, usable)
                for holder in self._list_holders(demand.key[0], measure)
                if (usable := demand.count_usable(holder))
            ]
            idle = [holder for holder, _ in holders if holder.activity == "idle"]
            lower = [holder for holder, _ in holders if _is_lower(holder, priority)]
            stoppable = StoppableHolders(idle, lower, never)
            ways = find_ways(demand, answer, variant.quotas, stoppable, self._planner)
            self._ways[same] = holders, ways, stoppable
        holders, ways, stoppable = self._ways[same]
        self._variants[demand.key, variant.flavors] = demand, variant.quotas, stoppable
        if answer.answer == "fits_here":
            return (), "", ways
        if refusal := self._explain_binding(demand, variant.quotas):
            # Others' GPUs do not help while a quota binds: only what frees the quota does.
            holders = [h for h in holders if demand.shares_quota(h[0])]
        blocked = sorted(self._list_blockers(holders, priority, since), key=_rank_blocker)
        rest = refusal or _describe_rest(holders, blocked, priority)
        return tuple(blocked[:MOST_BLOCKERS]), rest, ways

    @staticmethod
    def _explain_binding(demand: WaitingDemand, quotas: QuotaJudge) -> str:
        """Return which quota binds whatever is free, and what that means; empty = none does."""
        cluster, namespace, _, _ = demand.key
        answer = quotas.admits(cluster, namespace, demand.queue, demand.by_resource)
        if answer.admitted is not False:
            return ""
        if (
            demand.queue
            and check_loan(quotas, demand.key, demand.queue, demand.by_resource).admitted
        ):
            return ""
        return f"its quota binds, so other owners' GPUs do not help alone: {answer.why}"

    def _list_holders(self, cluster: str, measure: PriorityMeasure) -> Iterable[DeviceHolder]:
        """Yield the holders of a cluster, each with its priority in the measure of who waits.

        Kueue compares Workloads; what has none has no number of a WorkloadPriorityClass.
        """
        for holder in self._holders.list_in(cluster):
            priority = holder.priority if measure != "workload class" else None
            if measure != "pods":
                priority = self._jobs.priorities.get(holder.key, priority)
            yield msgspec.structs.replace(holder, priority=priority)

    def _list_blockers(
        self, holders: Iterable[tuple[DeviceHolder, int]], priority: int | None, since: datetime
    ) -> Iterable[QueueBlocker]:
        for holder, usable in holders:
            lower = _is_lower(holder, priority)
            if holder.activity == "idle" or lower:
                idle = holder.activity == "idle"
                words = [holder.why] if idle else []
                words += [f"priority {holder.priority} below {priority}"] if lower else []
                yield QueueBlocker(
                    holder.key,
                    usable,
                    (*(("idle",) if idle else ()), *(("lower_priority",) if lower else ())),
                    "; ".join(words),
                    round(self._holders.count_idle_hours(holder.key, since), 6),
                )

    def _price(self, demand: WaitingDemand) -> Decimal | None:
        """Return the mean price of a GPU-hour of the nodes that take it; None = none has one."""
        priced = [self._prices[key] for key in demand.gpu_nodes if key in self._prices]
        hours = sum(h for h, _ in priced)
        usd = sum((u for _, u in priced), Decimal())
        return (usd / Decimal(repr(hours))).quantize(Decimal("0.000001")) if hours else None

    @cached_property
    def _prices(self) -> dict[NodeKey, tuple[float, Decimal]]:
        sql = read_text("capacity.queue", "node_prices.sql")
        rows = self._views.query(sql, {"until": self._now}).to_pylist()
        return {(r["cluster"], r["node"]): (r["gpu_hours"], r["usd"]) for r in rows}

    @cached_property
    def _messages(self) -> dict[tuple[str, str, str], list[WaitReason]]:
        return read_messages(self._views, self._now - EVENTS, self._now)

    def list_others(self) -> Iterable[QueuedWorkload]:
        """Yield workloads that wait for an image or a volume, and those of an unknown size."""
        yield from map(self._describe_unsized, self._jobs.list_unsized())
        unsized = decode_rows(self._query("unsized_pods"), UnsizedPod)
        by_key: dict[WorkloadKey, list[UnsizedPod]] = {}
        for pod in unsized:
            by_key.setdefault(_get_key(pod), []).append(pod)
        for key, pods in by_key.items():
            first = pods[0]
            why = f"gpus: how many of {first.gpu_resource} it requests is not known"
            reasons = [reason for pod in pods for reason in self._list_messages(pod)]
            first_reason = reasons[0] if reasons else WaitReason("unknown", why, "container")
            yield self._build_record(key, pods, (first_reason,), None, (why,))
        starting: dict[WorkloadKey, list[tuple[StartingPod, list[WaitReason]]]] = {}
        for row in decode_rows(self._query("starting_pods"), StartingPod):
            found_reasons = self._explain_start(row)
            if found_reasons:
                starting.setdefault(_get_key(row), []).append((row, found_reasons))
        paid = "waiting_cost: none, its GPUs are in the bill since it has a node (state startup)"
        for key, pairs in starting.items():
            gpus = sum(pod.gpus for pod, _ in pairs)
            yield self._build_record(
                key, [pod for pod, _ in pairs], tuple(pairs[0][1][:1]), gpus, (paid,)
            )

    def _describe_unsized(self, job: UnsizedJob) -> QueuedWorkload:
        """Return the record of a job without pods of which no placement can be made."""
        condition = read_condition(job.jobs[0].condition)
        reasons = condition or [WaitReason("unknown", job.unknown, "condition")]
        record = self._build_record(
            job.key, job.jobs, tuple(reasons), job.gpus, (job.unknown,), count=job.pods
        )
        objects = self._jobs.list_objects(job.key)
        record = msgspec.structs.replace(record, objects=objects)
        if record.gpu_hours is None:
            return record
        usd_h = self._find_common_price(job.key[0])
        if usd_h is None:
            why = "waiting_cost: nodes differ in price, and which of them take it is not known"
            return msgspec.structs.replace(record, unknown=(*record.unknown, why))
        cost = round_to_cents(usd_h * Decimal(repr(record.gpu_hours)))
        return msgspec.structs.replace(record, usd_h=usd_h, waiting_cost=cost)

    def _find_common_price(self, cluster: str) -> Decimal | None:
        """Return the price of a GPU-hour where all nodes of a cluster have the same."""
        prices = {
            (usd / Decimal(repr(hours))).quantize(Decimal("0.000001"))
            for (own, _), (hours, usd) in self._prices.items()
            if own == cluster
        }
        return prices.pop() if len(prices) == 1 else None

    def _explain_start(self, pod: StartingPod) -> list[WaitReason]:
        """Return whether a pod with a node waits for an image or a volume; empty = neither."""
        containers = msgspec.json.decode(pod.containers) if pod.containers else []
        waits = [f"{c['name']}: {c['waiting']}" for c in containers if c.get("waiting")]
        own = [r for text in waits for r in classify_text(text, "container", None)]
        return [r for r in (*own, *self._list_messages(pod)) if r.reason in {"image", "volume"}]

    def _list_messages(self, pod: QueuedPod) -> list[WaitReason]:
        """Return what events say of a pod; not of an older one of the same name."""
        begin = convert_micros(pod.begin_us)
        messages = self._messages.get((pod.cluster, pod.namespace, pod.pod), ())
        return [reason for reason in messages if reason.at is None or reason.at >= begin]

    def _build_record(
        self,
        key: WorkloadKey,
        pods: "Sequence[QueuedPod | PendingJob]",
        reasons: tuple[WaitReason, ...],
        gpus: float | None,
        unknown: tuple[str, ...],
        *,
        count: int | None = None,
    ) -> QueuedWorkload:
        begin = min(pod.begin_us for pod in pods)
        hours = (self._at - begin) / MICRO / HOUR_S
        return QueuedWorkload(
            key=key,
            pods=len(pods) if count is None else count,
            gpus=gpus,
            since=convert_micros(begin),
            team=pods[0].team,
            queue=pods[0].queue,
            priority_class=pods[0].priority_class,
            priority=pods[0].priority,
            hours=hours,
            gpu_hours=None if gpus is None else round(gpus * hours, 6),
            usd_h=None,
            waiting_cost=None,
            reasons=reasons,
            blocked_by=(),
            held_by_others="",
            ways=(),
            unknown=unknown,
        )

    def _query(self, name: str) -> pa.Table:
        sql = compose_query((POD_OWNERS, name), "capacity.queue")
        return self._views.query(sql, {"until": self._now})


def _get_key(pod: QueuedPod) -> WorkloadKey:
    return (pod.cluster, pod.namespace, pod.workload_kind, pod.workload)


def _list_own_nodes(
    nodes: Mapping[NodeKey, PlacementNode], labels: FlavorLabels
) -> frozenset[NodeKey]:
    """Return the nodes of a flavor that are of no other flavor of its resource group."""
    return frozenset(
        key
        for key, node in nodes.items()
        if labels.own.items() <= (present := (node.labels or {}).items())
        and not any(other.items() <= present for other in labels.others)
    )


def _get_begin(pod: PodRecord) -> int:
    """Return when a pod began to wait, by the earlier of the API's clock and ours."""
    return pod.begin - max(0, pod.ahead or 0)


def _is_skewed(pods: Iterable[PodRecord]) -> bool:
    return any((pod.ahead or 0) > SKEW.total_seconds() * MICRO for pod in pods)


def _list_doubts(key: WorkloadKey, pods: Sequence[PodRecord]) -> Iterable[str]:
    """Yield what is not known of a waiting workload, and why."""
    if _is_skewed(pods):
        ahead = max(pod.ahead or 0 for pod in pods) / MICRO
        yield f"gpu_hours: the API's clock is {ahead:,.0f} s ahead of ours"
    if key[2] == UNRESOLVED:
        yield "owner: it could not be resolved, so its other pods are not known"
    if _get_priority(pods) is None:
        yield "priority: its number is not known, so who has a lower one is not known either"


def _rank_record(record: QueuedWorkload) -> tuple[int, bool, float, int]:
    """Return the order of the records of one workload with several flavors."""
    if not record.ways:
        return len(STATES), True, 0.0, 0
    return rank_way(record.ways[0])


def _get_priority(pods: Sequence[PodRecord]) -> int | None:
    """Return the lowest priority of the pods; None = that of one is not known."""
    priorities = [pod.priority for pod in pods]
    numbers = [p for p in priorities if p is not None]
    return min(numbers) if len(numbers) == len(priorities) else None


def _must_not_preempt(pods: Sequence[PodRecord]) -> bool:
    return any(pod.annotation_map.get(NEVER_PREEMPTS) for pod in pods)


def _is_lower(holder: DeviceHolder, priority: int | None) -> bool:
    return priority is not None and holder.priority is not None and holder.priority < priority


def _rank_blocker(blocker: QueueBlocker) -> tuple[bool, int, float, WorkloadKey]:
    """Return the order of blockers: idle ones first, then by their GPUs."""
    return "idle" not in blocker.holds, -blocker.gpus, -blocker.idle_gpu_hours, blocker.key


def _describe_rest(
    holders: Sequence[tuple[DeviceHolder, int]],
    blocked: Sequence[QueueBlocker],
    priority: int | None,
) -> str:
    """Say how many of the GPUs that it could use others hold, and why nobody of them blocks."""
    named = {blocker.key for blocker in blocked}
    rest = [(holder, usable) for holder, usable in holders if holder.key not in named]
    if not rest:
        return "" if holders else "nobody holds GPUs that it could use"
    counts: Counter[str] = Counter()
    for holder, usable in rest:
        if holder.activity == "unknown":
            counts["of workloads whose idleness is not known"] += usable
        elif priority is None or holder.priority is None:
            counts["at work, of a priority that is not known"] += usable
        else:
            counts["at work, of the same or a higher priority"] += usable
    return "; ".join(f"{n} GPU{'s' * (n != 1)} {words}" for words, n in sorted(counts.items()))
