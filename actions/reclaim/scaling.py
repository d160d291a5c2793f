"""Scale kinds that have no switch to zero, through /scale or by pausing KEDA at 0."""

from typing import ClassVar

from actions.cluster import autoscalers
from actions.cluster.pointers import join_pointer, resolve_pointer
from actions.reclaim.subjects import (
    POD_RIGHTS,
    LiveWorkload,
    build_intent,
    build_rights,
    read_workload,
)
from actions.reclaim.writes import UndoableChange, set_field, set_replicas
from fallow.action_models import Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import Object, get_namespace, name
from fallow.kube.objects import to_target as target_of
from fallow.protocols import ClusterReader, Right

KEDA = (Right("keda.sh", "scaledobjects", ("get", "list", "patch")),)
HPA = (Right("autoscaling", "horizontalpodautoscalers", ("get", "list")),)


class ScaleExecutor:
    """Scale Deployments, Rollouts and LeaderWorkerSets to zero.

    An HPA is not changed: it is inactive while there are no replicas. KEDA would scale up again, so
    it is paused at zero instead, and its object is the only one that is written.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "Rollout", "LeaderWorkerSet"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"scale"})
    verbs: ClassVar[frozenset[str]] = frozenset({"scale to zero"})
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights("Deployment", part="scale"),
        *build_rights("Rollout", "LeaderWorkerSet"),
        *build_rights("Rollout", "LeaderWorkerSet", part="scale"),
        *KEDA,
        *HPA,
        *POD_RIGHTS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the write that sets zero replicas, and the one that restores them.

        Raises:
            RefusedError: it is gone, owned, has none already, or must not be scaled.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        self.refuse(workload)
        if resolve_pointer(workload.obj, "/spec/replicas") == 0:
            raise RefusedError(f"{workload} has no replicas already")
        scalers = autoscalers.find_autoscalers(workload.obj, cluster)
        paused = [s for s in scalers if s["kind"] == autoscalers.KEDA_OBJECT]
        if paused:
            writes = tuple(_pause(s, workload, cluster) for s in paused)
            note = "KEDA brings it back by its own triggers, at least at its own minimum"
            return build_intent(workload, cluster, "scale", writes, (note,))
        notes = tuple(f"HorizontalPodAutoscaler {name(s)} rests meanwhile" for s in scalers)
        writes = (set_replicas(workload.obj, workload.target, workload.path, 0),)
        return build_intent(workload, cluster, "scale", writes, notes)

    def refuse(self, workload: LiveWorkload) -> None:
        """Refuse objects that must not be scaled; subclasses define which."""


class StatefulSetExecutor(ScaleExecutor):
    """Scale StatefulSets to zero, unless that deletes their volumes."""

    kinds: ClassVar[frozenset[str]] = frozenset({"StatefulSet"})
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights("StatefulSet", part="scale"),
        *KEDA,
        *HPA,
        *POD_RIGHTS,
    )

    def refuse(self, workload: LiveWorkload) -> None:
        """Refuse a set whose volumes are deleted with its replicas."""
        policy = "/spec/persistentVolumeClaimRetentionPolicy/whenScaled"
        if resolve_pointer(workload.obj, policy) == "Delete":
            raise RefusedError(f"{workload} deletes its volumes when scaled (whenScaled: Delete)")


def _pause(scaler: Object, workload: LiveWorkload, cluster: ClusterReader) -> UndoableChange:
    at_replicas = autoscalers.get_paused_replicas(scaler)
    if at_replicas is not None or is_paused(scaler):
        raise RefusedError(
            f"KEDA's ScaledObject {name(scaler)} of {workload} is paused by somebody"
        )
    path = cluster.collection(autoscalers.KEDA_OBJECT, "keda.sh", get_namespace(scaler))
    pointer = join_pointer("metadata", "annotations", autoscalers.PAUSED_REPLICAS)
    scaler_path = f"{path}/{name(scaler)}"
    return set_field(scaler, target_of(scaler, cluster.name), scaler_path, pointer, "0")


def is_paused(scaler: Object) -> bool:
    """Return whether a ScaledObject was paused without a number of replicas."""
    value = resolve_pointer(scaler, join_pointer("metadata", "annotations", autoscalers.PAUSED))
    return isinstance(value, str) and value.lower() == "true"
