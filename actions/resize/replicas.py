"""Reduce the replicas of a service whose devices are busy a small part of the time.

The number of replicas never becomes zero.
"""

import math
from typing import ClassVar

from actions.cluster import autoscalers
from actions.cluster.allocations import count_allocated_gpus
from actions.cluster.pointers import MISSING, resolve_pointer
from actions.reclaim.scaling import HPA, KEDA
from actions.reclaim.subjects import POD_RIGHTS, build_rights, read_workload
from actions.reclaim.writes import set_replicas
from fallow.action_models import Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import name
from fallow.protocols import ClusterReader, Right


class ReplicasExecutor:
    """Lower the replicas of a service to the number that carries its busiest hour."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "StatefulSet", "LeaderWorkerSet"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"replicas"})
    verbs: ClassVar[frozenset[str]] = frozenset({"ask for fewer GPUs"})
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights("Deployment", "StatefulSet", part="scale"),
        *build_rights("LeaderWorkerSet"),
        *build_rights("LeaderWorkerSet", part="scale"),
        *KEDA,
        *HPA,
        *POD_RIGHTS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the write of the scale subresource, and its undo.

        Raises:
            RefusedError: the finding does not contain the number of GPUs that suffices, an
                autoscaler owns the number, it has one replica, or its volumes would be deleted.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        needed_gpus = decision.parameters.get("fewer_gpus")
        if not isinstance(needed_gpus, (int, float)) or needed_gpus <= 0:
            raise RefusedError(f"{workload}: the finding does not say how many GPUs are enough")
        if owners := autoscalers.find_autoscalers(workload.obj, cluster):
            raise RefusedError(f"{workload} is scaled by {owners[0]['kind']} {name(owners[0])}")
        current = resolve_pointer(workload.obj, "/spec/replicas")
        replicas = 1 if current is MISSING else int(current)
        total = sum(count_allocated_gpus(cluster.pods(workload.target), cluster).values())
        if replicas < 2 or not total:  # noqa: PLR2004  (the last replica is the idle analyzer's to judge)
            raise RefusedError(f"{workload} has one replica: no fewer, only none")
        if (
            resolve_pointer(workload.obj, "/spec/persistentVolumeClaimRetentionPolicy/whenScaled")
            == "Delete"
        ):
            raise RefusedError(f"{workload} deletes its volumes when scaled (whenScaled: Delete)")
        target_replicas = max(1, math.ceil(needed_gpus / (total / replicas)))
        if target_replicas >= replicas:
            raise RefusedError(f"{workload} needs its {replicas} replicas for {needed_gpus:g} GPUs")
        write = set_replicas(workload.obj, workload.target, workload.path, target_replicas)
        return Intent(
            target=workload.target,
            capability="replicas",
            changes=(write.change,),
            undo=(write.undo,),
            lost="memory of the replicas that go",
        )
