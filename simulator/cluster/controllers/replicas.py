"""Simulate ReplicaSet and StatefulSet: a number of pods, without or with an order."""

from typing import Any

from fallow.kube.objects import (
    get_annotations,
    get_labels,
    get_namespace,
    get_path,
    get_uid,
    has_ended,
    is_deleting,
    name,
)
from simulator.cluster.controllers.child_changes import ChildChanges, ControllerView, build_pod
from simulator.cluster.objects import (
    Object,
    hash_template,
    is_live,
    is_ready,
    set_conditions,
    sort_by_age,
)
from simulator.cluster.store_writer import get_replicas

REVISION = "controller-revision-hash"
COST = "controller.kubernetes.io/pod-deletion-cost"


def reconcile_replica_set(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the number of pods; replace failed and deleted pods; delete surplus, youngest first."""
    plan = ChildChanges()
    all_pods = sight.view.children(get_uid(obj), "Pod")
    alive = [p for p in all_pods if is_live(p)]
    wanted = 0 if is_deleting(obj) else get_replicas(obj)
    template = obj["spec"].get("template") or {}
    if is_deleting(obj):
        return plan
    for _ in range(wanted - len(alive)):
        plan.make.append(build_pod(obj, template, f"{name(obj)}-", {}, generate=True))
    if len(alive) > wanted:
        young = sort_by_age(alive)
        young.reverse()  # of equal cost, the youngest is deleted first
        plan.drop = sorted(young, key=_rank_pod)[: len(alive) - wanted]
    remaining, up = len(alive) - len(plan.drop), sum(map(is_ready, alive))
    plan.status = {
        "replicas": len(alive),
        "fullyLabeledReplicas": len(alive),
        "readyReplicas": up,
        "availableReplicas": up,
        "observedGeneration": obj["metadata"].get("generation", 1),
        "conditions": _report_failure(obj, sight, short=remaining < wanted),
    }
    return plan


def _rank_pod(pod: Object) -> tuple[bool, bool, float]:
    """Return what makes a pod more expensive to delete: a node, readiness, its annotated cost."""
    cost = float(get_annotations(pod).get(COST, "0"))
    return (bool(pod["spec"].get("nodeName")), is_ready(pod), cost)


def _report_failure(obj: Object, sight: ControllerView, *, short: bool) -> list[Object]:
    why = sight.refused(obj) if short else None
    if why is None:
        return [
            c
            for c in get_path(obj, "status", "conditions", default=())
            if c["type"] != "ReplicaFailure"
        ]
    return set_conditions(obj, sight.now_s, ("ReplicaFailure", True, "FailedCreate", why))


def reconcile_stateful_set(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep pods 0 to n-1 by name: created and deleted in order, replaced under the same name."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    wanted = get_replicas(obj)
    spec = obj["spec"]
    revision = f"{name(obj)}-{hash_template(spec.get('template'))}"
    parallel = spec.get("podManagementPolicy") == "Parallel"
    pods = {_parse_ordinal(p): p for p in sight.view.children(get_uid(obj), "Pod")}
    blocked = False
    for ordinal in range(wanted):
        there = pods.get(ordinal)
        if blocked and not parallel:
            break
        if there is None:
            plan.make += _build_claims(obj, sight, ordinal)
            plan.make.append(_build_member(obj, ordinal, revision))
            blocked = True
        elif has_ended(there) and not is_deleting(there):
            plan.drop.append(there)
            blocked = True
        elif not is_ready(there):
            blocked = True
    _shrink(plan, pods, wanted, parallel=parallel)
    if not blocked and not plan.drop and not any(map(is_deleting, pods.values())):
        _roll(plan, spec, pods, revision)
    _forget_claims(plan, obj, sight, wanted)
    within = [p for o, p in pods.items() if o < wanted and is_live(p)]
    updated = sum(get_labels(p).get(REVISION) == revision for p in within)
    plan.status = {
        "replicas": len(pods),
        "readyReplicas": sum(map(is_ready, within)),
        "availableReplicas": sum(map(is_ready, within)),
        "currentReplicas": updated,
        "updatedReplicas": updated,
        "currentRevision": revision,
        "updateRevision": revision,
        "observedGeneration": obj["metadata"].get("generation", 1),
    }
    return plan


def _parse_ordinal(pod: Object) -> int:
    return int(name(pod).rpartition("-")[2])


def _build_member(obj: Object, ordinal: int, revision: str) -> Object:
    pod_name = f"{name(obj)}-{ordinal}"
    labels = {
        "statefulset.kubernetes.io/pod-name": pod_name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION: revision,
    }
    more: dict[str, Any] = {}
    claims = obj["spec"].get("volumeClaimTemplates") or ()
    if claims:
        own = get_path(obj, "spec", "template", "spec", "volumes", default=[])
        more["volumes"] = [
            *own,
            *(
                {"name": name(c), "persistentVolumeClaim": {"claimName": f"{name(c)}-{pod_name}"}}
                for c in claims
            ),
        ]
    return build_pod(obj, obj["spec"].get("template") or {}, pod_name, labels, **more)


def _shrink(plan: ChildChanges, pods: dict[int, Object], wanted: int, *, parallel: bool) -> None:
    surplus = sorted((o for o in pods if o >= wanted), reverse=True)
    for ordinal in surplus if parallel else surplus[:1]:
        if not is_deleting(pods[ordinal]):
            plan.drop.append(pods[ordinal])


def _roll(plan: ChildChanges, spec: Object, pods: dict[int, Object], revision: str) -> None:
    """Replace one pod of an older template, the last first."""
    if get_path(spec, "updateStrategy", "type") == "OnDelete":
        return
    first = get_path(spec, "updateStrategy", "rollingUpdate", "partition", default=0)
    for ordinal in sorted(pods, reverse=True):
        if ordinal >= first and get_labels(pods[ordinal]).get(REVISION) != revision:
            plan.drop.append(pods[ordinal])
            return


def _build_claims(obj: Object, sight: ControllerView, ordinal: int) -> list[Object]:
    """Return the volume claims that a member still lacks; they are not deleted with the set."""
    claims = []
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        pod_name = f"{name(claim)}-{name(obj)}-{ordinal}"
        if sight.view.get("PersistentVolumeClaim", get_namespace(obj), pod_name) is None:
            meta = {"name": pod_name, "namespace": get_namespace(obj)}
            head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
            claims.append({**head, "spec": claim.get("spec") or {}})
    return claims


def _forget_claims(plan: ChildChanges, obj: Object, sight: ControllerView, wanted: int) -> None:
    """Delete claims of members that were scaled away, if the set requires it."""
    retention = obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if retention.get("whenScaled") != "Delete":
        return
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        head = f"{name(claim)}-{name(obj)}-"
        for there in sight.view.of("PersistentVolumeClaim", get_namespace(obj)):
            tail = name(there).removeprefix(head)
            if tail != name(there) and tail.isdigit() and int(tail) >= wanted:
                plan.drop.append(there)
