"""ReplicaSet and StatefulSet: so many pods, nameless or in order."""

from typing import Any

from simulator.cluster.clerk import replicas
from simulator.cluster.controllers.plan import Plan, Sight, pod
from simulator.cluster.objects import (
    Object,
    conditions,
    deep,
    going,
    live,
    name,
    namespace,
    oldest,
    over,
    ready,
    template_hash,
    uid,
    words,
)

REVISION = "controller-revision-hash"
COST = "controller.kubernetes.io/pod-deletion-cost"


def replica_set(obj: Object, sight: Sight) -> Plan:
    """Keep so many pods; those that failed or go are replaced, surplus goes youngest first."""
    plan = Plan()
    every = sight.view.children(uid(obj), "Pod")
    alive = [p for p in every if live(p)]
    wanted = 0 if going(obj) else replicas(obj)
    template = obj["spec"].get("template") or {}
    if going(obj):
        return plan
    for _ in range(wanted - len(alive)):
        plan.make.append(pod(obj, template, f"{name(obj)}-", {}, generate=True))
    if len(alive) > wanted:
        young = oldest(alive)
        young.reverse()  # of equal worth the youngest goes first
        plan.drop = sorted(young, key=_worth)[: len(alive) - wanted]
    kept, up = len(alive) - len(plan.drop), sum(map(ready, alive))
    plan.status = {
        "replicas": len(alive),
        "fullyLabeledReplicas": len(alive),
        "readyReplicas": up,
        "availableReplicas": up,
        "observedGeneration": obj["metadata"].get("generation", 1),
        "conditions": _failure(obj, sight, short=kept < wanted),
    }
    return plan


def _worth(one: Object) -> tuple[bool, bool, float]:
    """Return what makes a pod dearer: a node, readiness, its annotated cost."""
    cost = float(words(one, "annotations").get(COST, "0"))
    return (bool(one["spec"].get("nodeName")), ready(one), cost)


def _failure(obj: Object, sight: Sight, *, short: bool) -> list[Object]:
    why = sight.refused(obj) if short else None
    if why is None:
        return [
            c
            for c in deep(obj, "status", "conditions", default=())
            if c["type"] != "ReplicaFailure"
        ]
    return conditions(obj, sight.now_s, ("ReplicaFailure", True, "FailedCreate", why))


def stateful_set(obj: Object, sight: Sight) -> Plan:
    """Keep pods 0 to n-1 by name: made and taken away in order, replaced under the same name."""
    plan = Plan()
    if going(obj):
        return plan
    wanted = replicas(obj)
    spec = obj["spec"]
    revision = f"{name(obj)}-{template_hash(spec.get('template'))}"
    parallel = spec.get("podManagementPolicy") == "Parallel"
    pods = {_ordinal(p): p for p in sight.view.children(uid(obj), "Pod")}
    blocked = False
    for ordinal in range(wanted):
        there = pods.get(ordinal)
        if blocked and not parallel:
            break
        if there is None:
            plan.make += _claims(obj, sight, ordinal)
            plan.make.append(_member(obj, ordinal, revision))
            blocked = True
        elif over(there) and not going(there):
            plan.drop.append(there)
            blocked = True
        elif not ready(there):
            blocked = True
    _shrink(plan, pods, wanted, parallel=parallel)
    if not blocked and not plan.drop and not any(map(going, pods.values())):
        _roll(plan, spec, pods, revision)
    _forget_claims(plan, obj, sight, wanted)
    within = [p for o, p in pods.items() if o < wanted and live(p)]
    updated = sum(words(p, "labels").get(REVISION) == revision for p in within)
    plan.status = {
        "replicas": len(pods),
        "readyReplicas": sum(map(ready, within)),
        "availableReplicas": sum(map(ready, within)),
        "currentReplicas": updated,
        "updatedReplicas": updated,
        "currentRevision": revision,
        "updateRevision": revision,
        "observedGeneration": obj["metadata"].get("generation", 1),
    }
    return plan


def _ordinal(one: Object) -> int:
    return int(name(one).rpartition("-")[2])


def _member(obj: Object, ordinal: int, revision: str) -> Object:
    called = f"{name(obj)}-{ordinal}"
    labels = {
        "statefulset.kubernetes.io/pod-name": called,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION: revision,
    }
    more: dict[str, Any] = {}
    claims = obj["spec"].get("volumeClaimTemplates") or ()
    if claims:
        own = deep(obj, "spec", "template", "spec", "volumes", default=[])
        more["volumes"] = [
            *own,
            *(
                {
                    "name": name(c),
                    "persistentVolumeClaim": {"claimName": f"{name(c)}-{called}"},
                }
                for c in claims
            ),
        ]
    return pod(obj, obj["spec"].get("template") or {}, called, labels, **more)


def _shrink(plan: Plan, pods: dict[int, Object], wanted: int, *, parallel: bool) -> None:
    surplus = sorted((o for o in pods if o >= wanted), reverse=True)
    for ordinal in surplus if parallel else surplus[:1]:
        if not going(pods[ordinal]):
            plan.drop.append(pods[ordinal])


def _roll(plan: Plan, spec: Object, pods: dict[int, Object], revision: str) -> None:
    """Replace one pod of an older template, the last first."""
    if deep(spec, "updateStrategy", "type") == "OnDelete":
        return
    first = deep(spec, "updateStrategy", "rollingUpdate", "partition", default=0)
    for ordinal in sorted(pods, reverse=True):
        if ordinal >= first and words(pods[ordinal], "labels").get(REVISION) != revision:
            plan.drop.append(pods[ordinal])
            return


def _claims(obj: Object, sight: Sight, ordinal: int) -> list[Object]:
    """Return the volume claims that a member still lacks; they outlive the set."""
    made = []
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        called = f"{name(claim)}-{name(obj)}-{ordinal}"
        if sight.view.get("PersistentVolumeClaim", namespace(obj), called) is None:
            meta = {"name": called, "namespace": namespace(obj)}
            head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
            made.append({**head, "spec": claim.get("spec") or {}})
    return made


def _forget_claims(plan: Plan, obj: Object, sight: Sight, wanted: int) -> None:
    """Delete claims of members that were scaled away, where the set says so."""
    retention = obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if retention.get("whenScaled") != "Delete":
        return
    for claim in obj["spec"].get("volumeClaimTemplates") or ():
        head = f"{name(claim)}-{name(obj)}-"
        for there in sight.view.of("PersistentVolumeClaim", namespace(obj)):
            tail = name(there).removeprefix(head)
            if tail != name(there) and tail.isdigit() and int(tail) >= wanted:
                plan.drop.append(there)
