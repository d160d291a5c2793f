"""Apply the flavors of Kueue to a waiting job: the nodes that they name, and their own quota.

A ClusterQueue gives each pod set of a job one flavor per resource group. A ResourceFlavor names
nodes by labels, adds tolerations, and may have taints that the pods have to tolerate. Each
assignment of flavors to the pod sets is a variant of the job: its pods with the labels and
tolerations of their flavors, against the quotas of those flavors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import Any

import msgspec

from capacity.placement.fleet_state import PodRecord, WorkloadKey
from capacity.placement.pod_demand import count_devices
from capacity.quota.room import BorrowAnswer, QuotaAnswer, QuotaRoom, ResourceGroup
from fallow.node_requirements import BlockingTaint, TaintToleration, read_requirements
from fallow.stored_annotations import ASSIGNED_FLAVORS, FLAVORS, POD_SET, SELECTOR, TOLERATIONS

MOST_VARIANTS = 64
"""Assignments of flavors to pod sets that are tried; those with one flavor for all come first."""
CPU, MEMORY = "cpu", "memory"
"""Names of resources of pods, in cores and bytes."""


class FlavorRule(msgspec.Struct, frozen=True):
    """What a ResourceFlavor says of its nodes (`collectors/kube/flavors.py`)."""

    labels: Mapping[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    """Key, value and effect of each taint that a job has to tolerate."""
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    """Key, operator, value and effect of those that it adds to pods."""


class FlavorQuota:
    """The quotas of a job with some flavors; `why` = it may not have one of them."""

    def __init__(self, quotas: QuotaRoom, why: str = "", *, refused: bool = False) -> None:
        self._quotas, self._why, self._refused = quotas, why, refused

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return whether the quotas of these flavors let devices in."""
        answer = self._quotas.admits(cluster, namespace, queue, needs)
        if not self._why or queue is None or answer.admitted is False:
            return answer
        return QuotaAnswer(False if self._refused else None, self._why, self._refused)

    def find_lenders(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> BorrowAnswer:
        """Return whether the queue may borrow what it lacks of these flavors."""
        if self._why:
            return BorrowAnswer(False if self._refused else None, self._why)
        return self._quotas.find_lenders(cluster, namespace, queue, needs)


class FlavorLabels(msgspec.Struct, frozen=True):
    """The labels of a flavor's nodes, and those of other flavors of its resource group."""

    own: Mapping[str, str]
    others: tuple[Mapping[str, str], ...]


class FlavorVariant(msgspec.Struct, frozen=True):
    """A waiting job with one assignment of flavors to its pod sets."""

    flavors: tuple[str, ...]
    """By name; empty = its queue has none."""
    pods: tuple[PodRecord, ...]
    quotas: FlavorQuota
    why: str = ""
    """Why it may not have a flavor, or what is not known of it."""
    needs: Mapping[str, float] | None = None
    """What it needs of its queue by `resource@flavor`; None = its devices by resource."""
    labels: Mapping[str, "FlavorLabels"] = {}
    """Of each flavor that is known."""
    untried: str = ""
    """How many assignments were left out, in words; empty = none."""


class _Choice(msgspec.Struct, frozen=True):
    """A flavor that the pods of one set may get for the resources of one group."""

    pod_set: str
    resources: frozenset[str]
    flavor: str
    rule: FlavorRule | None
    """None = which nodes it names is not known."""
    refusal: str
    """Why Kueue does not give it to these pods; empty = it may."""
    labels: FlavorLabels


def list_variants(
    key: WorkloadKey, pods: Sequence[PodRecord], quotas: QuotaRoom
) -> list[FlavorVariant]:
    """Return a variant for each assignment of flavors that a waiting job may get.

    A job without a queue, or of a queue without flavors, has one variant: itself.
    """
    marks = pods[0].annotation_map
    options: list[list[_Choice]] = []
    if pods[0].queue is not None and FLAVORS in marks:
        groups = quotas.list_groups(key[0], key[1], pods[0].queue)
        options = [*_list_options(pods, groups, marks[FLAVORS])]
    if not options:
        return [FlavorVariant((), tuple(pods), FlavorQuota(quotas))]
    count = prod(map(len, options))
    untried = ""
    if count > MOST_VARIANTS:
        untried = f"{MOST_VARIANTS} of {count} assignments of flavors were tried"
    return [
        _build_variant(assignment, pods, quotas, untried) for assignment in _list_products(options)
    ]


def _list_products(options: Sequence[Sequence[_Choice]]) -> Iterator[tuple[_Choice, ...]]:
    """Yield assignments: those with the fewest flavors of the first `MOST_VARIANTS` come first."""
    names = sorted({choice.flavor for listed in options for choice in listed})
    plain = [
        tuple(next((c for c in listed if c.flavor == name), listed[0]) for listed in options)
        for name in names
    ]
    first = [*plain, *islice(product(*options), MOST_VARIANTS)]
    keys = {tuple(choice.flavor for choice in chosen): chosen for chosen in reversed(first)}
    yield from islice(reversed(keys.values()), MOST_VARIANTS)


def _list_options(
    pods: Sequence[PodRecord], groups: Sequence[ResourceGroup], listed: Mapping[str, Any]
) -> Iterator[list[_Choice]]:
    """Yield for each pod set and resource group that it uses the flavors that it may get.

    Flavors that are refused are left out where another one is not.
    """
    rules = {name: msgspec.convert(rule, FlavorRule, strict=False) for name, rule in listed.items()}
    for name, members in _group_by_set(pods).items():
        assigned = members[0].annotation_map.get(ASSIGNED_FLAVORS) or {}
        requested = frozenset(_sum_requests(members))
        for group in groups:
            used = group.resources & requested
            if not used:
                continue
            names = {str(assigned[r]) for r in used if r in assigned} or group.flavors
            choices = [
                _judge_choice(name, group._replace(resources=used), flavor, rules, members)
                for flavor in sorted(names)
            ]
            yield [choice for choice in choices if not choice.refusal] or choices


def _group_by_set(pods: Sequence[PodRecord]) -> dict[str, list[PodRecord]]:
    sets: dict[str, list[PodRecord]] = {}
    for pod in pods:
        sets.setdefault(get_pod_set(pod), []).append(pod)
    return sets


def get_pod_set(pod: PodRecord) -> str:
    """Return the name of the pod set of a job of Kueue; empty = it is not known."""
    return str(pod.annotation_map.get(POD_SET) or "")


def _sum_requests(pods: Iterable[PodRecord]) -> dict[str, float]:
    """Return what pods request of a queue: devices, CPU in cores, memory in bytes."""
    sums: dict[str, float] = {}
    for pod in pods:
        amounts = {
            pod.gpu_resource or "": count_devices(pod),
            CPU: (pod.cpu_milli or 0) / 1000,
            MEMORY: float(pod.memory_bytes or 0),
        }
        for resource, amount in amounts.items():
            if amount:
                sums[resource] = sums.get(resource, 0.0) + amount
    return sums


def _judge_choice(
    pod_set: str,
    group: ResourceGroup,
    flavor: str,
    rules: Mapping[str, FlavorRule],
    pods: Iterable[PodRecord],
) -> _Choice:
    rule = rules.get(flavor)
    refusals = () if rule is None else (_explain_refusal(flavor, rule, pod) for pod in pods)
    labels = FlavorLabels(
        {} if rule is None else rule.labels,
        tuple(rules[name].labels for name in group.flavors if name in rules and name != flavor),
    )
    refusal = next((why for why in refusals if why), "")
    return _Choice(pod_set, group.resources, flavor, rule, refusal, labels)


def _build_variant(
    assignment: Sequence[_Choice], pods: Sequence[PodRecord], quotas: QuotaRoom, untried: str
) -> FlavorVariant:
    flavors = tuple(sorted({choice.flavor for choice in assignment}))
    requests = {name: _sum_requests(members) for name, members in _group_by_set(pods).items()}
    needs: dict[str, float] = {}
    for choice in assignment:
        for resource in choice.resources:
            name = f"{resource}@{choice.flavor}"
            needs[name] = needs.get(name, 0.0) + requests[choice.pod_set][resource]
    labels = {choice.flavor: choice.labels for choice in assignment if choice.rule}
    refusal = next((choice.refusal for choice in assignment if choice.refusal), "")
    unlisted = next((choice.flavor for choice in assignment if choice.rule is None), None)
    why = refusal
    if not why and unlisted is not None:
        why = f"which nodes flavor {unlisted} names is not known"
    if why:
        quota = FlavorQuota(quotas, why, refused=bool(refusal))
        return FlavorVariant(flavors, tuple(pods), quota, why, needs, labels, untried)
    placed = tuple(
        _apply_rules([c.rule for c in assignment if c.pod_set == get_pod_set(pod) and c.rule], pod)
        for pod in pods
    )
    return FlavorVariant(flavors, placed, FlavorQuota(quotas), "", needs, labels, untried)


def _explain_refusal(name: str, rule: FlavorRule, pod: PodRecord) -> str:
    """Return why Kueue does not give a pod this flavor; empty = it may."""
    tolerations = [
        *read_requirements(pod.annotation_map).tolerations,
        *(TaintToleration(*toleration) for toleration in rule.tolerations),
    ]
    for taint in rule.taints:
        if not any(toleration.covers(BlockingTaint(*taint)) for toleration in tolerations):
            return f"it does not tolerate the taint {taint[0]} of flavor {name}"
    selector: Mapping[str, Any] = pod.annotation_map.get(SELECTOR) or {}
    for label, value in rule.labels.items():
        if label in selector and value not in selector[label]:
            legal = "|".join(map(str, selector[label]))
            return f"it requires {label}={legal}, flavor {name} is {value}"
    return ""


def _apply_rules(rules: Iterable[FlavorRule], pod: PodRecord) -> PodRecord:
    """Return a pod as Kueue starts it: with the labels and tolerations of its flavors."""
    marks = dict(pod.annotation_map)
    marks[SELECTOR], marks[TOLERATIONS] = (
        dict(marks.get(SELECTOR) or {}), [*(marks.get(TOLERATIONS) or ())]
    )  # fmt: skip
    for rule in rules:
        marks[SELECTOR] |= {label: [value] for label, value in rule.labels.items()}
        marks[TOLERATIONS] += rule.tolerations
    return msgspec.structs.replace(pod, annotations=msgspec.json.encode(marks).decode())
