"""Let a pool of nodes shrink, through whoever scales it: Karpenter, or an EKS node group.

Karpenter NodePool    its limit of GPUs, and consolidation of empty nodes; a merge patch
EKS node group        its smallest and largest size, through the AWS API
any other             nothing is written: the intent carries a manifest for people to review
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import yaml

from actions.cluster.objects import Object, deep, labels, target
from actions.cluster.pointers import at, pointer
from actions.nodes.eks import EksDoor
from actions.reclaim.writes import Writes, field
from fallow.acting import Change, Decision, Intent, Target
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

KARPENTER = "karpenter.sh"
EKS = "eks.amazonaws.com/nodegroup"
EKS_CLUSTER = ("alpha.eksctl.io/cluster-name", "aws:eks:cluster-name", "eks:cluster-name")
REGION = "topology.kubernetes.io/region"
GPU = "nvidia.com/gpu"
EMPTY = "let the pool scale in"
FEWER = "scale in pool"
AFTER = "10m"
"""How long a node stands empty before Karpenter takes it: longer than a pod takes to restart."""


class PoolExecutor:
    """Lower what a pool may hold to what its work needs; empty nodes then go by themselves."""

    kinds: ClassVar[frozenset[str]] = frozenset({"NodePool"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"pool"})
    verbs: ClassVar[frozenset[str]] = frozenset({EMPTY, FEWER})
    rights: ClassVar[tuple[Right, ...]] = (
        Right(KARPENTER, "nodepools", ("get", "patch")),
        Right("", "nodes", ("list",)),
    )

    def __init__(self, aws: EksDoor | None = None) -> None:
        self._aws = aws or EksDoor()

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the writes of whoever scales the pool, or a manifest to review.

        Raises:
            RefusedError: the finding does not say how many nodes its work needs, the pool is
                already that small, or no such pool is known.
            TemporaryError: the API does not answer.
        """
        of, _, _, pool = decision.subject
        if of != cluster.name:
            raise RefusedError(f"NodePool/{pool} is in cluster {of}, not {cluster.name}")
        where = cluster.collection("NodePool", KARPENTER)
        found = cluster.get(f"{where}/{pool}") if where else None
        if found is not None:
            return _karpenter(decision, found, f"{where}/{pool}", cluster)
        nodes = [n for n in cluster.items("/api/v1/nodes") if pool in labels(n).values()]
        group = next((n for n in nodes if labels(n).get(EKS) == pool), None)
        if group is not None:
            return _eks(decision, group, pool, cluster, self._aws)
        if not nodes:
            raise RefusedError(f"no node of {cluster.name} is of a pool {pool!r}")
        return _manifest(decision, pool, cluster)


def wanted(decision: Decision) -> tuple[int, float]:
    """Return how many nodes the pool's work needs, and the GPUs of one node.

    Raises:
        RefusedError: the finding does not say.
    """
    said = decision.parameters
    same, today = said.get("same_type") or {}, said.get("today") or {}
    nodes, have, gpus = same.get("nodes"), today.get("nodes"), today.get("gpus")
    if not isinstance(nodes, int) or not have or gpus is None:
        raise RefusedError(f"{decision.subject[3]}: the finding does not say how many it needs")
    return max(nodes, 0), gpus / have


def _karpenter(decision: Decision, pool: Object, path: str, cluster: Cluster) -> Intent:
    told = target(pool, cluster.name, "NodePool", f"{KARPENTER}/v1")
    writes: list[Writes] = []
    if deep(pool, "spec", "disruption", "consolidateAfter") in {None, "Never"}:
        writes.append(field(pool, told, path, "/spec/disruption/consolidateAfter", AFTER))
    if decision.verb == FEWER:
        nodes, each = wanted(decision)
        where = pointer("spec", "limits", GPU)
        limit, now = round(nodes * each), at(pool, where)
        if isinstance(now, (str, int)) and int(now) <= limit:
            raise RefusedError(f"NodePool/{told.name} is limited to {now} GPUs already")
        writes.append(field(pool, told, path, where, str(limit)))
    if not writes:
        raise RefusedError(f"NodePool/{told.name} consolidates its empty nodes already")
    return Intent(
        target=told,
        capability="pool",
        changes=tuple(w.change for w in writes),
        undo=tuple(w.undo for w in reversed(writes)),
        notes=(
            "a limit stops new nodes and moves nothing that runs",
            "Karpenter takes away empty nodes under the pool's disruption budgets",
        ),
    )


def _eks(decision: Decision, node: Object, pool: str, cluster: Cluster, aws: EksDoor) -> Intent:
    marks = labels(node)
    region = marks.get(REGION, "")
    named = decision.parameters.get("eks_cluster") or next(
        (marks[k] for k in EKS_CLUSTER if k in marks), ""
    )
    if not region or not named:
        raise RefusedError(
            f"the node group {pool} does not say its region and EKS cluster",
            hint="name it in the policy's rung: eks_cluster: NAME",
        )
    nodes, _ = wanted(decision)
    path = f"eks/{region}/{named}/nodegroups/{pool}"
    found = aws.get(path)
    if found is None:
        raise RefusedError(f"EKS cluster {named} has no node group {pool}")
    now = dict(found["scalingConfig"])
    # Running nodes are never forced out: the largest size stays at what is desired now.
    sizes = {
        "minSize": min(now["minSize"], nodes),
        "maxSize": max(nodes, now["desiredSize"], 1),
    }
    if sizes["minSize"] == now["minSize"] and sizes["maxSize"] >= now["maxSize"]:
        raise RefusedError(f"the node group {pool} may be that small already")
    told = Target(cluster.name, "", "NodeGroup", "", pool, uid=found["metadata"]["uid"])
    was = {f"/scalingConfig/{k}": now[k] for k in sizes}
    change = Change(
        target=told,
        method="PATCH",
        path=path,
        body={"scalingConfig": sizes},
        content_type="application/json",
        door="aws",
        was=was,
        becomes={f"/scalingConfig/{k}": v for k, v in sizes.items()},
        guarded=False,
    )
    undo = msgspec.structs.replace(
        change,
        body={"scalingConfig": {k: now[k] for k in sizes}},
        was=change.becomes,
        becomes=was,
    )
    return Intent(
        target=told,
        capability="pool",
        changes=(change,),
        undo=(undo,),
        notes=("the group's own autoscaler takes nodes away once they are empty",),
    )


def _manifest(decision: Decision, pool: str, cluster: Cluster) -> Intent:
    """Return an intent without writes: nothing here scales the pool, so people do."""
    nodes, each = wanted(decision)
    document: Mapping[str, Any] = {
        "pool": pool,
        "nodes": {"most": nodes, "gpus": round(nodes * each)},
        "karpenter": {
            "spec": {
                "limits": {GPU: str(round(nodes * each))},
                "disruption": {
                    "consolidationPolicy": "WhenEmptyOrUnderutilized",
                    "consolidateAfter": AFTER,
                },
            }
        },
    }
    text = yaml.safe_dump(dict(document), sort_keys=False)
    told = Target(cluster.name, "", "NodePool", "", pool, uid=pool)
    return Intent(told, "pool", (), (), notes=("for people to review:\n" + text,))
