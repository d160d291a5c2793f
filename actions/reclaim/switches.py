"""Stop kinds with their own switch: one field of spec, or one annotation."""

from datetime import datetime
from typing import ClassVar

import msgspec

from actions.cluster.pointers import MISSING, resolve_pointer
from actions.reclaim import kueue
from actions.reclaim.subjects import (
    POD_RIGHTS,
    LiveWorkload,
    build_intent,
    build_rights,
    read_workload,
)
from actions.reclaim.writes import UndoableChange, set_field
from fallow.action_models import Decision, Intent
from fallow.errors import RefusedError
from fallow.protocols import ClusterReader, Right

FUTURE_ONLY = {"CronWorkflow"}
"""Kinds whose switch stops only future runs: active runs continue, and nothing is freed."""


class SwitchExecutor:
    """Set the field that `kinds.csv` names; under Kueue switch the Workload instead."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the write that stops the workload, and the one that restores the field.

        Raises:
            RefusedError: it is gone, owned, complete, stopped already, or must not be stopped.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        self.refuse(workload)
        writes = build_writes(workload, cluster, decision.at)
        queued = writes[0].change.target.uid != workload.target.uid
        notes = (kueue.RETURNS,) if queued else ()
        intent = build_intent(workload, cluster, "suspend", writes, notes)
        if workload.kind.kind in FUTURE_ONLY:
            return msgspec.structs.replace(intent, frees=())
        return intent

    def refuse(self, workload: LiveWorkload) -> None:
        """Refuse objects that must not be stopped; subclasses define which."""


def build_writes(
    workload: LiveWorkload, cluster: ClusterReader, now: datetime
) -> tuple[UndoableChange, ...]:
    """Return the writes that stop an object by its switch, or by its Workloads.

    Raises:
        RefusedError: it is stopped already.
    """
    if workload.kind.kueue == "workload":
        through_kueue = kueue.build_writes(workload.obj, cluster)
        if through_kueue is not None:
            return through_kueue
    if is_stopped(workload):
        raise RefusedError(f"{workload} is stopped already")
    value = workload.kind.value(now)
    return (set_field(workload.obj, workload.target, workload.path, workload.kind.pointer, value),)


def is_stopped(workload: LiveWorkload) -> bool:
    """Return whether the switch is set to stopped; an annotation with a time only has to exist."""
    value = resolve_pointer(workload.obj, workload.kind.pointer)
    if workload.kind.is_timestamp:
        return value is not MISSING and bool(value)
    return bool(value == workload.kind.fixed)


LOCK = "odh-notebook-controller-lock"


class NotebookExecutor(SwitchExecutor):
    """Stop notebooks of Kubeflow and Eclipse Che; home volumes stay."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Notebook", "Workspace", "DevWorkspace"})
    verbs: ClassVar[frozenset[str]] = frozenset({"stop"})
    rights: ClassVar[tuple[Right, ...]] = (*build_rights(*sorted(kinds)), *POD_RIGHTS)

    def refuse(self, workload: LiveWorkload) -> None:
        """Refuse a Notebook that its own controller holds back at the time."""
        if resolve_pointer(workload.obj, workload.kind.pointer) == LOCK:
            raise RefusedError(f"{workload} is locked by its controller ({LOCK}): try again later")


class ServingExecutor(SwitchExecutor):
    """Stop KServe's services by their stop annotation.

    In some modes minReplicas 0 is raised to 1.
    """

    kinds: ClassVar[frozenset[str]] = frozenset(
        {"InferenceService", "LLMInferenceService", "InferenceGraph"}
    )
    verbs: ClassVar[frozenset[str]] = frozenset({"stop"})
    rights: ClassVar[tuple[Right, ...]] = (*build_rights(*sorted(kinds)), *POD_RIGHTS)


class BatchExecutor(SwitchExecutor):
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
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights(*sorted(kinds)),
        *kueue.RIGHTS,
        *POD_RIGHTS,
    )


_RAY_ENDED = {"Complete", "Failed"}


class RayExecutor(SwitchExecutor):
    """Suspend Ray's jobs, clusters and services."""

    kinds: ClassVar[frozenset[str]] = frozenset({"RayJob", "RayCluster", "RayService"})
    verbs: ClassVar[frozenset[str]] = frozenset({"suspend"})
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights(*sorted(kinds)),
        *kueue.RIGHTS,
        *POD_RIGHTS,
    )

    def refuse(self, workload: LiveWorkload) -> None:
        """Refuse a RayJob that KubeRay would not suspend, or that is complete."""
        if workload.kind.kind != "RayJob":
            return
        if resolve_pointer(workload.obj, "/spec/clusterSelector") not in (MISSING, None, {}):
            raise RefusedError(f"{workload} runs in a cluster of somebody else's (clusterSelector)")
        if resolve_pointer(workload.obj, "/spec/shutdownAfterJobFinishes") is not True:
            raise RefusedError(f"{workload} cannot be suspended without shutdownAfterJobFinishes")
        state = resolve_pointer(workload.obj, "/status/jobDeploymentStatus")
        if state in _RAY_ENDED:
            raise RefusedError(f"{workload} is over: {state}")
