"""Kinds that stop by having no replicas: through /scale, or by pausing KEDA at none."""

from typing import ClassVar

from actions.cluster import scalers
from actions.cluster.objects import Object, name, namespace
from actions.cluster.objects import target as target_of
from actions.cluster.pointers import at, pointer
from actions.reclaim.subjects import LOOK, Subject, intent, rights, subject
from actions.reclaim.writes import Writes, field, replicas
from fallow.acting import Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

KEDA = (Right("keda.sh", "scaledobjects", ("get", "list", "patch")),)
HPA = (Right("autoscaling", "horizontalpodautoscalers", ("get", "list")),)


class ScaleExecutor:
    """Scale Deployments, Rollouts and LeaderWorkerSets to none.

    An HPA is left as it is: it rests while there are no replicas. KEDA would scale up again, so
    it is paused at none instead, and its object is the only one that is written.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "Rollout", "LeaderWorkerSet"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"scale"})
    verbs: ClassVar[frozenset[str]] = frozenset({"scale to zero"})
    rights: ClassVar[tuple[Right, ...]] = (
        *rights("Deployment", part="scale"),
        *rights("Rollout", "LeaderWorkerSet"),
        *rights("Rollout", "LeaderWorkerSet", part="scale"),
        *KEDA,
        *HPA,
        *LOOK,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the write that leaves no replicas, and the one that brings them back.

        Raises:
            RefusedError: it is gone, owned, has none already, or must not be scaled.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        self.refuse(found)
        if at(found.obj, "/spec/replicas") == 0:
            raise RefusedError(f"{found} has no replicas already")
        every = scalers.of(found.obj, cluster)
        paused = [s for s in every if s["kind"] == scalers.KEDA_OBJECT]
        if paused:
            writes = tuple(_pause(s, found, cluster) for s in paused)
            note = "KEDA brings it back by its own triggers, at least at its own minimum"
            return intent(found, cluster, "scale", writes, (note,))
        notes = tuple(f"HorizontalPodAutoscaler {name(s)} rests meanwhile" for s in every)
        writes = (replicas(found.obj, found.target, found.path, 0),)
        return intent(found, cluster, "scale", writes, notes)

    def refuse(self, found: Subject) -> None:
        """Refuse what must not be scaled; families say what."""


class StatefulSetExecutor(ScaleExecutor):
    """Scale StatefulSets to none, unless that deletes their volumes."""

    kinds: ClassVar[frozenset[str]] = frozenset({"StatefulSet"})
    rights: ClassVar[tuple[Right, ...]] = (
        *rights("StatefulSet", part="scale"),
        *KEDA,
        *HPA,
        *LOOK,
    )

    def refuse(self, found: Subject) -> None:
        """Refuse a set whose volumes are deleted with its replicas."""
        policy = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled"
        if at(found.obj, policy) == "Delete":
            raise RefusedError(f"{found} deletes its volumes when scaled (whenScaled: Delete)")


def _pause(scaler: Object, found: Subject, cluster: Cluster) -> Writes:
    at_replicas = scalers.paused_at(scaler)
    if at_replicas is not None or scaler_paused(scaler):
        raise RefusedError(f"KEDA's ScaledObject {name(scaler)} of {found} is paused by somebody")
    path = cluster.collection(scalers.KEDA_OBJECT, "keda.sh", namespace(scaler))
    where = pointer("metadata", "annotations", scalers.PAUSED_REPLICAS)
    whole = f"{path}/{name(scaler)}"
    return field(scaler, target_of(scaler, cluster.name), whole, where, "0")


def scaler_paused(scaler: Object) -> bool:
    """Say whether somebody paused a ScaledObject without a number."""
    said = at(scaler, pointer("metadata", "annotations", scalers.PAUSED))
    return isinstance(said, str) and said.lower() == "true"
