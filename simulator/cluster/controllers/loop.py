"""Carry out the controllers' plans for every object with a change."""

from collections.abc import Mapping

from fallow.kube.objects import (
    find_controller,
    get_namespace,
    get_uid,
    has_ended,
    is_deleting,
    name,
)
from simulator.cluster.controllers import collector, quota_guards, single_replica
from simulator.cluster.controllers.child_changes import Controller, ControllerView
from simulator.cluster.controllers.deployments import reconcile_deployment
from simulator.cluster.controllers.groups import reconcile_leader_worker_set
from simulator.cluster.controllers.jobs import reconcile_job, reconcile_job_set, reconcile_train_job
from simulator.cluster.controllers.ray import reconcile_ray_cluster, reconcile_ray_job
from simulator.cluster.controllers.replicas import reconcile_replica_set, reconcile_stateful_set
from simulator.cluster.controllers.training import read_kinds, reconcile_training_job
from simulator.cluster.controllers.volcano import JOB as VOLCANO_JOB
from simulator.cluster.controllers.volcano import reconcile_volcano_job
from simulator.cluster.objects import Object, get_kind
from simulator.cluster.store_writer import StoreWriter
from simulator.cluster.timers import Timers
from simulator.cluster.view import Key, View
from simulator.kube.history import StoreChange

KUBE = "kube-controller-manager"
CONTROLLERS: Mapping[str, tuple[Controller, str]] = {
    "ReplicaSet": (reconcile_replica_set, KUBE),
    "Deployment": (reconcile_deployment, KUBE),
    "StatefulSet": (reconcile_stateful_set, KUBE),
    "Job": (reconcile_job, KUBE),
    "JobSet": (reconcile_job_set, "jobset-controller"),
    "TrainJob": (reconcile_train_job, "trainer-controller"),
    "RayCluster": (reconcile_ray_cluster, "kuberay-operator"),
    "RayJob": (reconcile_ray_job, "kuberay-operator"),
    "Notebook": (single_replica.reconcile_notebook, "notebook-controller"),
    "Workspace": (single_replica.reconcile_workspace, "workspace-controller"),
    "InferenceService": (single_replica.reconcile_inference_service, "kserve-controller"),
    "LeaderWorkerSet": (reconcile_leader_worker_set, "lws-controller"),
    VOLCANO_JOB: (reconcile_volcano_job, "vc-controller-manager"),
    **dict.fromkeys(read_kinds(), (reconcile_training_job, "training-operator")),
}
"""Kind: its controller's function, and the name of its field manager."""
GUARDED = {"Pod", "ResourceQuota", "PodDisruptionBudget", "Deployment", "ReplicaSet", "StatefulSet"}
"""Kinds whose changes concern the budgets and quotas of their namespace."""
LEVELS = 3
"""How many owners above a changed object are notified: pod, replica set, deployment, service."""


class Loop:
    """The controllers of one cluster, and the objects that they have to check."""

    def __init__(self, view: View, writer: StoreWriter, alarms: Timers) -> None:
        self._view, self._writer, self._alarms = view, writer, alarms
        self._dirty: dict[Key, None] = {}
        self._spaces: dict[str, None] = {}
        self._ended: list[Object] = []
        self._refused: dict[str, Key] = {}
        """Owners, by uid, that create no more children until a quota may have room."""

    @property
    def busy(self) -> bool:
        """Return whether any object still has to be checked."""
        return bool(self._dirty or self._spaces or self._ended)

    def notice(self, change: StoreChange) -> None:
        """Process changed objects, and queue the objects that they affect."""
        obj, kind = change.object, get_kind(change.object)
        if kind == "Event":
            return
        self._mark(obj, kind)
        if change.type == "DELETED":
            self._ended.append(obj)
        self._tell_above(obj)
        if kind in GUARDED:
            self._spaces[get_namespace(obj)] = None
        if kind == "ResourceQuota" or (
            kind == "Pod" and (change.type == "DELETED" or has_ended(obj))
        ):
            self._retry(get_namespace(obj))

    def _tell_above(self, obj: Object) -> None:
        """Queue the owners of an object."""
        above: Object | None = obj
        for _ in range(LEVELS):
            reference = None if above is None else find_controller(above)
            if reference is None:
                return
            key = (get_kind(dict(reference)), get_namespace(obj), str(reference["name"]))
            self._dirty[key] = None
            above = self._view.get(*key)

    def _mark(self, obj: Object, kind: str) -> None:
        space = name(obj) if kind == "Namespace" else get_namespace(obj)
        self._dirty[kind, get_namespace(obj), name(obj)] = None
        if space:
            dying = self._view.get("Namespace", "", space)
            if dying is not None and is_deleting(dying):
                self._dirty["Namespace", "", space] = None

    def _retry(self, space: str) -> None:
        """Retry owners whose children were refused because of a quota."""
        for owner in tuple(self._writer.refused.get(space, ())):
            if owner in self._refused:
                self._dirty[self._refused.pop(owner)] = None

    def run(self) -> None:
        """Let every controller check its queued objects once."""
        ended, self._ended = self._ended, []
        for lost in ended:
            collector.collect(lost, self._view, self._writer)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            existing = self._view.get(*key)
            if existing is None:
                continue
            obj: Object = existing
            if key[0] == "Namespace":
                collector.end_namespace(obj, self._writer)
            elif obj["metadata"].get("finalizers"):
                collector.finalize(obj, self._view, self._writer)
            if key[0] in CONTROLLERS:
                self._reconcile(key, obj)
        spaces, self._spaces = self._spaces, {}
        for space in spaces:
            self._guard(space)

    def _reconcile(self, key: Key, obj: Object) -> None:
        control, manager = CONTROLLERS[key[0]]
        refused = self._writer.refused[get_namespace(obj)]
        sight = ControllerView(self._view, self._writer.now_s, lambda o: refused.get(get_uid(o)))
        plan = control(obj, sight)
        for existing in plan.drop:
            if not is_deleting(existing):
                self._writer.delete(existing)
        for existing, body in plan.patch:
            self._writer.patch(existing, body, manager)
        for body in () if get_uid(obj) in self._refused else plan.make:
            if self._writer.create(body, manager, obj) is None and get_uid(obj) in refused:
                self._refused[get_uid(obj)] = key
                plan.status = control(obj, sight).status  # the reason is in its status now
                break
        if plan.status is not None:
            self._writer.status(obj, plan.status, "")
        for kind, reason, message in plan.events:
            self._writer.event(obj, reason, message, manager, kind)
        if plan.at_s is not None and plan.at_s > self._writer.now_s:
            self._alarms.set(plan.at_s, key, lambda: self._dirty.update({key: None}))

    def _guard(self, space: str) -> None:
        for obj in self._view.of("PodDisruptionBudget", space):
            at_s = quota_guards.reconcile_budget(obj, self._view, self._writer)
            if at_s is not None:
                self._alarms.set(
                    at_s, ("budget", get_uid(obj)), lambda: self._spaces.update({space: None})
                )
        for obj in self._view.of("ResourceQuota", space):
            quota_guards.reconcile_resource_quota(obj, self._view, self._writer)
