"""Let a pool of nodes shrink, through its autoscaler: Karpenter, or an EKS node group.

Karpenter NodePool    its limit of GPUs, and consolidation of empty nodes; a merge patch
EKS node group        its minimum and maximum size, through the AWS API
any other             nothing is written: the intent carries a manifest for people to review
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import yaml

from actions.cluster.pointers import join_pointer, resolve_pointer
from actions.nodes.eks import EksClient
from actions.reclaim.writes import UndoableChange, set_field
from fallow.action_models import Change, Decision, Intent, Target
from fallow.errors import RefusedError
from fallow.kube.objects import Object, get_labels, get_path, to_target
from fallow.protocols import ClusterReader, Right

KARPENTER = "karpenter.sh"
EKS = "eks.amazonaws.com/nodegroup"
EKS_CLUSTER = ("alpha.eksctl.io/cluster-name", "aws:eks:cluster-name", "eks:cluster-name")
REGION = "topology.kubernetes.io/region"
GPU = "nvidia.com/gpu"
SHRINK_EMPTY = "let the pool scale in"
SHRINK_POOL = "scale in pool"
CONSOLIDATE_AFTER = "10m"
"""How long a node is empty before Karpenter removes it: longer than a pod takes to restart."""


class PoolExecutor:
    """Lower the limit of a pool to what its work needs; its autoscaler then removes empty nodes."""

    kinds: ClassVar[frozenset[str]] = frozenset({"NodePool"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"pool"})
    verbs: ClassVar[frozenset[str]] = frozenset({SHRINK_EMPTY, SHRINK_POOL})
    rights: ClassVar[tuple[Right, ...]] = (
        Right(KARPENTER, "nodepools", ("get", "patch")),
        Right("", "nodes", ("list",)),
    )

    def __init__(self, aws: EksClient | None = None) -> None:
        self._aws = aws or EksClient()

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the writes to the pool's autoscaler, or a manifest to review.

        Raises:
            RefusedError: the finding does not contain the number of nodes that the work needs, the
                pool is already that small, or no such pool is known.
            TemporaryError: the API does not answer.
        """
        cluster_name, _, _, pool = decision.subject
        if cluster_name != cluster.name:
            raise RefusedError(f"NodePool/{pool} is in cluster {cluster_name}, not {cluster.name}")
        collection = cluster.collection("NodePool", KARPENTER)
        node_pool = cluster.get(f"{collection}/{pool}") if collection else None
        if node_pool is not None:
            return _build_karpenter_intent(decision, node_pool, f"{collection}/{pool}", cluster)
        nodes = [n for n in cluster.items("/api/v1/nodes") if pool in get_labels(n).values()]
        group = next((n for n in nodes if get_labels(n).get(EKS) == pool), None)
        if group is not None:
            return _build_eks_intent(decision, group, pool, cluster, self._aws)
        if not nodes:
            raise RefusedError(f"no node of {cluster.name} is of a pool {pool!r}")
        return _review_intent(decision, pool, cluster)


def get_pool_size(decision: Decision) -> tuple[int, float]:
    """Return how many nodes the pool's work needs, and the GPUs of one node.

    Raises:
        RefusedError: the finding does not contain them.
    """
    parameters = decision.parameters
    same, today = parameters.get("same_type") or {}, parameters.get("today") or {}
    nodes, node_count, gpus = same.get("nodes"), today.get("nodes"), today.get("gpus")
    if not isinstance(nodes, int) or not node_count or gpus is None:
        raise RefusedError(f"{decision.subject[3]}: the finding does not say how many it needs")
    return max(nodes, 0), gpus / node_count


def _build_karpenter_intent(
    decision: Decision, pool: Object, path: str, cluster: ClusterReader
) -> Intent:
    node_pool = to_target(pool, cluster.name, "NodePool", f"{KARPENTER}/v1")
    writes: list[UndoableChange] = []
    if get_path(pool, "spec", "disruption", "consolidateAfter") in {None, "Never"}:
        writes.append(
            set_field(pool, node_pool, path, "/spec/disruption/consolidateAfter", CONSOLIDATE_AFTER)
        )
    if decision.verb == SHRINK_POOL:
        nodes, gpus_per_node = get_pool_size(decision)
        limit_pointer = join_pointer("spec", "limits", GPU)
        limit, current = round(nodes * gpus_per_node), resolve_pointer(pool, limit_pointer)
        if isinstance(current, (str, int)) and int(current) <= limit:
            raise RefusedError(f"NodePool/{node_pool.name} is limited to {current} GPUs already")
        writes.append(set_field(pool, node_pool, path, limit_pointer, str(limit)))
    if not writes:
        raise RefusedError(f"NodePool/{node_pool.name} consolidates its empty nodes already")
    return Intent(
        target=node_pool,
        capability="pool",
        changes=tuple(w.change for w in writes),
        undo=tuple(w.undo for w in reversed(writes)),
        notes=(
            "a limit stops new nodes and moves nothing that runs",
            "Karpenter takes away empty nodes under the pool's disruption budgets",
        ),
    )


def _build_eks_intent(
    decision: Decision, node: Object, pool: str, cluster: ClusterReader, aws: EksClient
) -> Intent:
    node_labels = get_labels(node)
    region = node_labels.get(REGION, "")
    eks_cluster = decision.parameters.get("eks_cluster") or next(
        (node_labels[k] for k in EKS_CLUSTER if k in node_labels), ""
    )
    if not region or not eks_cluster:
        raise RefusedError(
            f"the node group {pool} does not say its region and EKS cluster",
            hint="name it in the policy's stage: eks_cluster: NAME",
        )
    nodes, _ = get_pool_size(decision)
    path = f"eks/{region}/{eks_cluster}/nodegroups/{pool}"
    node_group = aws.get(path)
    if node_group is None:
        raise RefusedError(f"EKS cluster {eks_cluster} has no node group {pool}")
    sizes_before = dict(node_group["scalingConfig"])
    # Running nodes are never removed by force: the maximum size stays at the current desired size.
    sizes = {
        "minSize": min(sizes_before["minSize"], nodes),
        "maxSize": max(nodes, sizes_before["desiredSize"], 1),
    }
    if sizes["minSize"] == sizes_before["minSize"] and sizes["maxSize"] >= sizes_before["maxSize"]:
        raise RefusedError(f"the node group {pool} may be that small already")
    group_target = Target(
        cluster.name, "", "NodeGroup", "", pool, uid=node_group["metadata"]["uid"]
    )
    was = {f"/scalingConfig/{k}": sizes_before[k] for k in sizes}
    change = Change(
        target=group_target,
        method="PATCH",
        path=path,
        body={"scalingConfig": sizes},
        content_type="application/json",
        client="aws",
        was=was,
        becomes={f"/scalingConfig/{k}": v for k, v in sizes.items()},
        guarded=False,
    )
    undo = msgspec.structs.replace(
        change,
        body={"scalingConfig": {k: sizes_before[k] for k in sizes}},
        was=change.becomes,
        becomes=was,
    )
    return Intent(
        target=group_target,
        capability="pool",
        changes=(change,),
        undo=(undo,),
        notes=("the group's own autoscaler takes nodes away once they are empty",),
    )


def _review_intent(decision: Decision, pool: str, cluster: ClusterReader) -> Intent:
    """Return an intent without writes: Fallow cannot scale this pool, so people do."""
    nodes, gpus_per_node = get_pool_size(decision)
    document: Mapping[str, Any] = {
        "pool": pool,
        "nodes": {"most": nodes, "gpus": round(nodes * gpus_per_node)},
        "karpenter": {
            "spec": {
                "limits": {GPU: str(round(nodes * gpus_per_node))},
                "disruption": {
                    "consolidationPolicy": "WhenEmptyOrUnderutilized",
                    "consolidateAfter": CONSOLIDATE_AFTER,
                },
            }
        },
    }
    text = yaml.safe_dump(dict(document), sort_keys=False)
    pool_target = Target(cluster.name, "", "NodePool", "", pool, uid=pool)
    return Intent(pool_target, "pool", (), (), notes=("for people to review:\n" + text,))
