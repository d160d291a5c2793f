"""Carry out what the controllers plan, for every object that something happened to."""

from collections.abc import Mapping

from simulator.cluster.alarms import Alarms
from simulator.cluster.clerk import Clerk
from simulator.cluster.controllers import collector, guards, single
from simulator.cluster.controllers.deployments import deployment
from simulator.cluster.controllers.groups import leader_worker_set
from simulator.cluster.controllers.jobs import job, job_set, train_job
from simulator.cluster.controllers.plan import Controller, Sight
from simulator.cluster.controllers.ray import ray_cluster, ray_job
from simulator.cluster.controllers.replicas import replica_set, stateful_set
from simulator.cluster.controllers.training import kinds, training_job
from simulator.cluster.controllers.volcano import JOB as VOLCANO_JOB
from simulator.cluster.controllers.volcano import volcano_job
from simulator.cluster.objects import Object, called, controller, going, name, namespace, over, uid
from simulator.cluster.view import Key, View
from simulator.kube.history import Change

KUBE = "kube-controller-manager"
CONTROLLERS: Mapping[str, tuple[Controller, str]] = {
    "ReplicaSet": (replica_set, KUBE),
    "Deployment": (deployment, KUBE),
    "StatefulSet": (stateful_set, KUBE),
    "Job": (job, KUBE),
    "JobSet": (job_set, "jobset-controller"),
    "TrainJob": (train_job, "trainer-controller"),
    "RayCluster": (ray_cluster, "kuberay-operator"),
    "RayJob": (ray_job, "kuberay-operator"),
    "Notebook": (single.notebook, "notebook-controller"),
    "Workspace": (single.workspace, "workspace-controller"),
    "InferenceService": (single.inference_service, "kserve-controller"),
    "LeaderWorkerSet": (leader_worker_set, "lws-controller"),
    VOLCANO_JOB: (volcano_job, "vc-controller-manager"),
    **dict.fromkeys(kinds(), (training_job, "training-operator")),
}
"""Kind: what its controller does, and the name it writes under."""
GUARDED = {
    "Pod",
    "ResourceQuota",
    "PodDisruptionBudget",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
}
"""Kinds whose changes concern the budgets and quotas of their namespace."""
LEVELS = 3
"""How far up a change of an object is told: pod, replica set, deployment, service."""


class Loop:
    """The controllers of one cluster, and the objects they have to look at."""

    def __init__(self, view: View, clerk: Clerk, alarms: Alarms) -> None:
        self._view, self._clerk, self._alarms = view, clerk, alarms
        self._dirty: dict[Key, None] = {}
        self._spaces: dict[str, None] = {}
        self._ended: list[Object] = []
        self._refused: dict[str, Key] = {}
        """Where owners lie, by uid, that make no more children until a quota may have room."""

    @property
    def busy(self) -> bool:
        """Say whether anything is still to be looked at."""
        return bool(self._dirty or self._spaces or self._ended)

    def notice(self, change: Change) -> None:
        """See what changed, and remember whom it concerns."""
        obj, kind = change.object, called(change.object)
        if kind == "Event":
            return
        self._mark(obj, kind)
        if change.type == "DELETED":
            self._ended.append(obj)
        self._tell_above(obj)
        if kind in GUARDED:
            self._spaces[namespace(obj)] = None
        if kind == "ResourceQuota" or (kind == "Pod" and (change.type == "DELETED" or over(obj))):
            self._retry(namespace(obj))

    def _tell_above(self, obj: Object) -> None:
        """Let the owners of an object look at it."""
        above: Object | None = obj
        for _ in range(LEVELS):
            reference = None if above is None else controller(above)
            if reference is None:
                return
            key = (called(dict(reference)), namespace(obj), str(reference["name"]))
            self._dirty[key] = None
            above = self._view.get(*key)

    def _mark(self, obj: Object, kind: str) -> None:
        space = name(obj) if kind == "Namespace" else namespace(obj)
        self._dirty[kind, namespace(obj), name(obj)] = None
        if space:
            dying = self._view.get("Namespace", "", space)
            if dying is not None and going(dying):
                self._dirty["Namespace", "", space] = None

    def _retry(self, space: str) -> None:
        """Let those try again whose children were refused for want of quota."""
        for owner in tuple(self._clerk.refused.get(space, ())):
            if owner in self._refused:
                self._dirty[self._refused.pop(owner)] = None

    def run(self) -> None:
        """Let every controller look once at what concerns it."""
        ended, self._ended = self._ended, []
        for lost in ended:
            collector.collect(lost, self._view, self._clerk)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            there = self._view.get(*key)
            if there is None:
                continue
            obj: Object = there
            if key[0] == "Namespace":
                collector.end_namespace(obj, self._clerk)
            elif obj["metadata"].get("finalizers"):
                collector.finalize(obj, self._view, self._clerk)
            if key[0] in CONTROLLERS:
                self._reconcile(key, obj)
        spaces, self._spaces = self._spaces, {}
        for space in spaces:
            self._guard(space)

    def _reconcile(self, key: Key, obj: Object) -> None:
        control, manager = CONTROLLERS[key[0]]
        refused = self._clerk.refused[namespace(obj)]
        sight = Sight(self._view, self._clerk.now_s, lambda o: refused.get(uid(o)))
        plan = control(obj, sight)
        for there in plan.drop:
            if not going(there):
                self._clerk.delete(there)
        for there, body in plan.patch:
            self._clerk.patch(there, body, manager)
        for body in () if uid(obj) in self._refused else plan.make:
            if self._clerk.create(body, manager, obj) is None and uid(obj) in refused:
                self._refused[uid(obj)] = key
                plan.status = control(obj, sight).status  # it says why now
                break
        if plan.status is not None:
            self._clerk.status(obj, plan.status, "")
        for kind, reason, message in plan.events:
            self._clerk.event(obj, reason, message, manager, kind)
        if plan.at_s is not None and plan.at_s > self._clerk.now_s:
            self._alarms.set(plan.at_s, key, lambda: self._dirty.update({key: None}))

    def _guard(self, space: str) -> None:
        for obj in self._view.of("PodDisruptionBudget", space):
            at_s = guards.budget(obj, self._view, self._clerk)
            if at_s is not None:
                self._alarms.set(
                    at_s, ("budget", uid(obj)), lambda: self._spaces.update({space: None})
                )
        for obj in self._view.of("ResourceQuota", space):
            guards.resource_quota(obj, self._view, self._clerk)
