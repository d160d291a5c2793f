"""Abort and resume Volcano's Jobs by Commands, because a Job has no switch."""

from typing import ClassVar

import msgspec

from actions.reclaim.subjects import (
    POD_RIGHTS,
    LiveWorkload,
    build_intent,
    get_plural,
    read_workload,
)
from actions.reclaim.writes import UndoableChange
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import get_path
from fallow.protocols import ClusterReader, Right

BUS = "bus.volcano.sh"
MAX_RETRY = 3
"""Volcano's own default of spec.maxRetry."""
STOPPABLE = {"Pending", "Running", "Restarting"}
PHASE = "/status/state/phase"


class VolcanoJobExecutor:
    """Abort a Volcano Job while it can still be resumed: every resume uses up a retry."""

    kinds: ClassVar[frozenset[str]] = frozenset({"VolcanoJob"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})
    verbs: ClassVar[frozenset[str]] = frozenset({"abort"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("batch.volcano.sh", get_plural("VolcanoJob"), ("get",)),
        Right(BUS, "commands", ("create",)),
        *POD_RIGHTS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the Command that aborts the job, and the one that resumes it.

        Raises:
            RefusedError: it is gone, owned, not running, or a resume would fail it permanently.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        phase = get_path(workload.obj, "status", "state", "phase")
        if phase not in STOPPABLE:
            raise RefusedError(f"{workload} is {phase or 'in no known state'}: nothing to abort")
        limit = get_path(workload.obj, "spec", "maxRetry")
        limit = MAX_RETRY if limit is None else int(limit)
        retries = int(get_path(workload.obj, "status", "retryCount") or 0)
        if retries + 1 >= limit:
            raise RefusedError(
                f"{workload} has {retries} of {limit} retries behind it: "
                "to resume it would fail it",
                hint="raise spec.maxRetry first",
            )
        change = build_command(workload, cluster, "AbortJob", decision.id)
        change = msgspec.structs.replace(change, was={PHASE: phase}, becomes={PHASE: "Aborted"})
        undo = build_command(workload, cluster, "ResumeJob", decision.id)
        undo = msgspec.structs.replace(undo, target=workload.later, was={PHASE: "Aborted"})
        return build_intent(workload, cluster, "suspend", (UndoableChange(change, undo),))


def build_command(
    workload: LiveWorkload, cluster: ClusterReader, action: str, token: str
) -> Change:
    """Return the Command as Volcano's own tool creates it: owned by the job, so deleted with it.

    Raises:
        RefusedError: the cluster serves no Commands.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection("Command", BUS, workload.target.namespace)
    if path is None:
        raise RefusedError(f"{cluster.name} serves no Command of {BUS}")
    job_target = workload.target
    job = {
        "apiVersion": job_target.api_version,
        "kind": job_target.kind,
        "name": job_target.name,
        "uid": job_target.uid,
        "controller": True,
    }
    meta = {
        "name": f"fallow-{action.lower()}-{token}",
        "namespace": job_target.namespace,
        "ownerReferences": [job],
    }
    body = {
        "apiVersion": f"{BUS}/{path.split('/')[3]}",
        "kind": "Command",
        "metadata": meta,
        "action": action,
        "target": job,
        "reason": "Fallow",
    }
    return Change(
        job_target,
        "POST",
        path,
        body,
        content_type="application/json",
        read=workload.path,
        guarded=False,
    )
