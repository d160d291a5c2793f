"""Kinds with a switch of their own: one field of spec, or one annotation."""

from datetime import datetime
from typing import ClassVar

import msgspec

from actions.cluster.pointers import MISSING, at
from actions.reclaim import kueue
from actions.reclaim.subjects import LOOK, Subject, intent, rights, subject
from actions.reclaim.writes import Writes, field
from fallow.acting import Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

FUTURE_ONLY = {"CronWorkflow"}
"""Kinds whose switch stops runs to come: what they began runs on, and frees nothing."""


class Switch:
    """Set the field that `kinds.csv` names; under Kueue switch the Workload instead."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the write that stops the workload, and the one that restores the field.

        Raises:
            RefusedError: it is gone, owned, over, stopped already, or must not be stopped.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        self.refuse(found)
        writes = switched(found, cluster, decision.at)
        queued = writes[0].change.target.uid != found.target.uid
        notes = (kueue.RETURNS,) if queued else ()
        whole = intent(found, cluster, "suspend", writes, notes)
        if found.kind.kind in FUTURE_ONLY:
            return msgspec.structs.replace(whole, frees=())
        return whole

    def refuse(self, found: Subject) -> None:
        """Refuse what must not be stopped; families say what."""


def switched(found: Subject, cluster: Cluster, now: datetime) -> tuple[Writes, ...]:
    """Return the writes that stop an object by its switch, or by its Workloads.

    Raises:
        RefusedError: it is stopped already.
    """
    if found.kind.kueue == "workload":
        through_kueue = kueue.writes(found.obj, cluster)
        if through_kueue is not None:
            return through_kueue
    if stopped(found):
        raise RefusedError(f"{found} is stopped already")
    value = found.kind.value(now)
    return (field(found.obj, found.target, found.path, found.kind.pointer, value),)


def stopped(found: Subject) -> bool:
    """Say whether the switch stands at stopped; an annotation that bears a moment does by being."""
    said = at(found.obj, found.kind.pointer)
    if found.kind.moment:
        return said is not MISSING and bool(said)
    return bool(said == found.kind.fixed)


LOCK = "odh-notebook-controller-lock"


class NotebookExecutor(Switch):
    """Stop notebooks of Kubeflow and Eclipse Che; homes stay."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Notebook", "Workspace", "DevWorkspace"})
    verbs: ClassVar[frozenset[str]] = frozenset({"stop"})
    rights: ClassVar[tuple[Right, ...]] = (*rights(*sorted(kinds)), *LOOK)

    def refuse(self, found: Subject) -> None:
        """Refuse a Notebook whose own controller holds it for the moment."""
        if at(found.obj, found.kind.pointer) == LOCK:
            raise RefusedError(f"{found} is locked by its controller ({LOCK}): try again later")


class ServingExecutor(Switch):
    """Stop KServe's services by their stop annotation: minReplicas 0 is raised to 1 in places."""

    kinds: ClassVar[frozenset[str]] = frozenset(
        {"InferenceService", "LLMInferenceService", "InferenceGraph"}
    )
    verbs: ClassVar[frozenset[str]] = frozenset({"stop"})
    rights: ClassVar[tuple[Right, ...]] = (*rights(*sorted(kinds)), *LOOK)


class BatchExecutor(Switch):
    """Suspend jobs of all operators that have a switch for it."""

    kinds: ClassVar[frozenset[str]] = frozenset(
        {
            "AppWrapper",
            "CronWorkflow",
            "JAXJob",
            "Job",
            "JobSet",
            "MPIJob",
            "PaddleJob",
            "PyTorchJob",
            "SparkApplication",
            "TFJob",
            "TrainJob",
            "XGBoostJob",
        }
    )
    verbs: ClassVar[frozenset[str]] = frozenset({"suspend"})
    rights: ClassVar[tuple[Right, ...]] = (*rights(*sorted(kinds)), *kueue.RIGHTS, *LOOK)


_RAY_OVER = {"Complete", "Failed"}


class RayExecutor(Switch):
    """Suspend Ray's jobs, clusters and services; what a RayJob's webhook would refuse, too."""

    kinds: ClassVar[frozenset[str]] = frozenset({"RayJob", "RayCluster", "RayService"})
    verbs: ClassVar[frozenset[str]] = frozenset({"suspend"})
    rights: ClassVar[tuple[Right, ...]] = (*rights(*sorted(kinds)), *kueue.RIGHTS, *LOOK)

    def refuse(self, found: Subject) -> None:
        """Refuse a RayJob that KubeRay would not suspend, or that is over."""
        if found.kind.kind != "RayJob":
            return
        if at(found.obj, "/spec/clusterSelector") not in (MISSING, None, {}):
            raise RefusedError(f"{found} runs in a cluster of somebody else's (clusterSelector)")
        if at(found.obj, "/spec/shutdownAfterJobFinishes") is not True:
            raise RefusedError(f"{found} cannot be suspended without shutdownAfterJobFinishes")
        state = at(found.obj, "/status/jobDeploymentStatus")
        if state in _RAY_OVER:
            raise RefusedError(f"{found} is over: {state}")
