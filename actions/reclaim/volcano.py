"""Volcano's Job has no switch: it is aborted and resumed by Commands."""

from typing import ClassVar

import msgspec

from actions.cluster.objects import deep
from actions.reclaim.subjects import LOOK, Subject, intent, plural, subject
from actions.reclaim.writes import Writes
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

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
        Right("batch.volcano.sh", plural("VolcanoJob"), ("get",)),
        Right(BUS, "commands", ("create",)),
        *LOOK,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the Command that aborts the job, and the one that resumes it.

        Raises:
            RefusedError: it is gone, owned, not running, or a resume would fail it for good.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        phase = deep(found.obj, "status", "state", "phase")
        if phase not in STOPPABLE:
            raise RefusedError(f"{found} is {phase or 'in no known state'}: nothing to abort")
        limit = deep(found.obj, "spec", "maxRetry")
        limit = MAX_RETRY if limit is None else int(limit)
        spent = int(deep(found.obj, "status", "retryCount") or 0)
        if spent + 1 >= limit:
            raise RefusedError(
                f"{found} has {spent} of {limit} retries behind it: to resume it would fail it",
                hint="raise spec.maxRetry first",
            )
        path = cluster.collection("Command", BUS, found.target.namespace)
        if path is None:
            raise RefusedError(f"{cluster.name} serves no Command of {BUS}")
        change = _command(found, path, "AbortJob", decision.id)
        change = msgspec.structs.replace(change, was={PHASE: phase}, becomes={PHASE: "Aborted"})
        undo = _command(found, path, "ResumeJob", decision.id)
        undo = msgspec.structs.replace(undo, target=found.later, was={PHASE: "Aborted"})
        return intent(found, cluster, "suspend", (Writes(change, undo),))


def _command(found: Subject, path: str, action: str, token: str) -> Change:
    """Return the Command as Volcano's own tool makes it: owned by the job, so tidied with it."""
    whole = found.target
    job = {
        "apiVersion": whole.api_version,
        "kind": whole.kind,
        "name": whole.name,
        "uid": whole.uid,
        "controller": True,
    }
    meta = {
        "name": f"fallow-{action.lower()}-{token}",
        "namespace": whole.namespace,
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
        whole,
        "POST",
        path,
        body,
        content_type="application/json",
        read=found.path,
        guarded=False,
    )
