"""Apply the flavors of Kueue to a waiting job: the nodes that they name, and their own quota.

A ClusterQueue gives a job one flavor for its GPUs. A ResourceFlavor names nodes by labels, adds
tolerations, and may have taints that the job has to tolerate. Each flavor of the queue is a variant
of the job: its pods with the labels and tolerations of the flavor, against that flavor's quota.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fallow.node_requirements import BlockingTaint, TaintToleration, read_requirements
from fallow.stored_annotations import ASSIGNED_FLAVOR, FLAVORS, SELECTOR, TOLERATIONS
from warehouse.placement.fleet_state import PodRecord, WorkloadKey
from warehouse.placement.quota_room import BorrowAnswer, QuotaAnswer, QuotaRoom


class FlavorRule(msgspec.Struct, frozen=True):
    """What a ResourceFlavor says of its nodes (`collectors/kube/flavors.py`)."""

    labels: Mapping[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    """Key, value and effect of each taint that a job has to tolerate."""
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    """Key, operator, value and effect of those that it adds to pods."""


class FlavorQuota:
    """The quotas with one flavor of a queue; `why` = the job may not have this flavor."""

    def __init__(
        self, quotas: QuotaRoom, flavor: str = "", why: str = "", *, refused: bool = False
    ) -> None:
        self._quotas, self._flavor, self._why = quotas, flavor, why
        self._refused = refused

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return whether the quotas with this flavor let devices in."""
        answer = self._quotas.admits(cluster, namespace, queue, needs, self._flavor)
        if not self._why or queue is None or answer.admitted is False:
            return answer
        return QuotaAnswer(False if self._refused else None, self._why)

    def find_lenders(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> BorrowAnswer:
        """Return whether the queue may borrow what it lacks of this flavor."""
        if self._why:
            return BorrowAnswer(False if self._refused else None, self._why)
        return self._quotas.find_lenders(cluster, namespace, queue, needs, self._flavor)


class FlavorVariant(msgspec.Struct, frozen=True):
    """A waiting job with one flavor."""

    flavor: str
    """Empty = its queue has none."""
    pods: tuple[PodRecord, ...]
    quotas: FlavorQuota
    why: str = ""
    """Why it may not have the flavor, or what is not known of it."""


def list_variants(
    key: WorkloadKey, pods: Sequence[PodRecord], quotas: QuotaRoom
) -> list[FlavorVariant]:
    """Return a variant for each flavor that a waiting job may get, in the order of their names.

    A job without a queue, or of a queue without flavors, has one variant: itself.
    """
    marks = pods[0].annotation_map
    names: list[str] = []
    if pods[0].queue is not None and FLAVORS in marks:
        resources = {pod.gpu_resource or "" for pod in pods}
        names = quotas.list_flavors(key[0], key[1], pods[0].queue, resources)
        if assigned := marks.get(ASSIGNED_FLAVOR):
            names = [str(assigned)]
    if not names:
        return [FlavorVariant("", tuple(pods), FlavorQuota(quotas))]
    rules = {
        name: msgspec.convert(rule, FlavorRule, strict=False)
        for name, rule in marks[FLAVORS].items()
    }
    return [_build_variant(name, rules.get(name), pods, quotas) for name in names]


def _build_variant(
    name: str, rule: FlavorRule | None, pods: Sequence[PodRecord], quotas: QuotaRoom
) -> FlavorVariant:
    if rule is None:
        why = f"which nodes flavor {name} names is not known"
        return FlavorVariant(name, tuple(pods), FlavorQuota(quotas, name, why), why)
    refusals = [why for pod in pods if (why := _explain_refusal(name, rule, pod))]
    if refusals:
        quota = FlavorQuota(quotas, name, refusals[0], refused=True)
        return FlavorVariant(name, tuple(pods), quota, refusals[0])
    return FlavorVariant(
        name, tuple(_apply_rule(rule, pod) for pod in pods), FlavorQuota(quotas, name)
    )


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


def _apply_rule(rule: FlavorRule, pod: PodRecord) -> PodRecord:
    """Return a pod as Kueue starts it: with the labels and tolerations of its flavor."""
    marks = dict(pod.annotation_map)
    marks[SELECTOR] = {
        **(marks.get(SELECTOR) or {}), **{label: [value] for label, value in rule.labels.items()}
    }  # fmt: skip
    marks[TOLERATIONS] = [*(marks.get(TOLERATIONS) or ()), *rule.tolerations]
    return msgspec.structs.replace(pod, annotations=msgspec.json.encode(marks).decode())
