"""Fewer replicas of a service whose devices are busy a small part of the time; never none."""

import math
from typing import ClassVar

from actions.cluster import scalers
from actions.cluster.allocations import allocated_gpus
from actions.cluster.objects import name
from actions.cluster.pointers import MISSING, at
from actions.reclaim.scaling import HPA, KEDA
from actions.reclaim.subjects import LOOK, rights, subject
from actions.reclaim.writes import replicas
from fallow.acting import Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right


class ReplicasExecutor:
    """Lower the replicas of a service to what carries its busiest hour."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "StatefulSet", "LeaderWorkerSet"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"replicas"})
    verbs: ClassVar[frozenset[str]] = frozenset({"ask for fewer GPUs"})
    rights: ClassVar[tuple[Right, ...]] = (
        *rights("Deployment", "StatefulSet", part="scale"),
        *rights("LeaderWorkerSet"),
        *rights("LeaderWorkerSet", part="scale"),
        *KEDA,
        *HPA,
        *LOOK,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the write of the scale subresource, and its undo.

        Raises:
            RefusedError: the finding does not say how many GPUs are enough, an autoscaler owns the
                number, it has one replica, or its volumes would be deleted.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        enough = decision.parameters.get("fewer_gpus")
        if not isinstance(enough, (int, float)) or enough <= 0:
            raise RefusedError(f"{found}: the finding does not say how many GPUs are enough")
        if owners := scalers.of(found.obj, cluster):
            raise RefusedError(f"{found} is scaled by {owners[0]['kind']} {name(owners[0])}")
        now = at(found.obj, "/spec/replicas")
        many = 1 if now is MISSING else int(now)
        total = sum(allocated_gpus(cluster.pods(found.target), cluster).values())
        if many < 2 or not total:  # noqa: PLR2004  (the last replica is the idle analyzer's to judge)
            raise RefusedError(f"{found} has one replica: no fewer, only none")
        if at(found.obj, "/spec/persistentVolumeClaimRetentionPolicy/whenScaled") == "Delete":
            raise RefusedError(f"{found} deletes its volumes when scaled (whenScaled: Delete)")
        wanted = max(1, math.ceil(enough / (total / many)))
        if wanted >= many:
            raise RefusedError(f"{found} needs its {many} replicas for {enough:g} GPUs")
        write = replicas(found.obj, found.target, found.path, wanted)
        return Intent(
            target=found.target,
            capability="replicas",
            changes=(write.change,),
            undo=(write.undo,),
            lost="memory of the replicas that go",
        )
