"""Read the jobs that Fallow suspended, from the copy of the journal, with the facts of before.

A suspended job has no pods: who owns it, what it requests and which object it is are known only
from what was journalled with the stop, and from the rows of its last pods.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from capacity.placement.fleet_state import FleetState, PodRecord, WorkloadKey, to_micros
from fallow.action_models import Action, Facts, PendingResume
from fallow.models import STALLED_JOB
from fallow.protocols import Views
from fallow.resources import read_text

LOOKBACK = timedelta(days=14)
"""A suspension is read for this long, as it can be undone (`actions.watch`, unless a site sets
another), and for this long after its owner's request to resume it."""
BEFORE = timedelta(hours=1)
METADATA = "/metadata/"
RESUMABLE_KINDS = frozenset({"Job", "JobSet", "MPIJob", "PyTorchJob", "RayJob", "VolcanoJob"})
"""Kinds that their controller's own handle suspends and starts again."""
STOP_VERBS = frozenset({"suspend", "abort"})
StopReason = Literal["hang", "pressure", "idle"]


class Suspension(msgspec.Struct, frozen=True):
    """The journal's row of a stop that stands: the action, and the facts of just before it."""

    action: Action
    facts: Facts | None = None
    policy: Mapping[str, Any] = {}
    pending_resume: PendingResume | None = None

    @property
    def key(self) -> WorkloadKey:
        """Return the workload."""
        cluster, kind, namespace, name = self.action.decision.subject
        return cluster, namespace, kind, name

    @property
    def generation(self) -> int | None:
        """Return the generation that the stop left; None = not known.

        An API server counts each write of a spec. Any other number now means that somebody wrote
        the spec since: its owner, or a controller.
        """
        intent = self.action.intent
        if intent.target.generation is None:
            return None
        return intent.target.generation + sum(
            change.method == "PATCH"
            and change.target.uid == intent.target.uid
            and any(not pointer.startswith(METADATA) for pointer in change.becomes)
            for change in intent.changes
        )

    @property
    def reason(self) -> StopReason:
        """Return why it was stopped."""
        if self.facts is not None and self.facts.finding.kind == STALLED_JOB:
            return "hang"
        text = self.policy.get("text") or {}
        if text.get("on_pressure") or (text.get("match") or {}).get("over_quota"):
            return "pressure"
        return "idle"

    @property
    def is_of_job(self) -> bool:
        """Return whether it suspended a job that can be resumed."""
        decision = self.action.decision
        return decision.verb in STOP_VERBS and self.key[2] in RESUMABLE_KINDS

    def explain_no_request(self) -> str:
        """Return why a request to resume it once it has room changes nothing; empty = it does."""
        if self.is_of_kueue:
            return "Kueue manages it: undone, it waits in its queue until it has room"
        if self.reason == "hang":
            return "it hung: it is resumed once its incident ended and it has room, unrequested"
        if self.reason == "pressure":
            return "it made room for others: it is resumed once nobody waits, unrequested"
        return ""

    @property
    def is_of_kueue(self) -> bool:
        """Return whether the stop went through a Workload of Kueue."""
        return any(change.target.kind == "Workload" for change in self.action.intent.changes)


def read_suspensions(
    views: Views, now: datetime, until: datetime | None = None
) -> list[Suspension]:
    """Return the suspensions of jobs that stand at a time, oldest first.

    `until`: rows of the journal before it count; none = those before now.
    """
    sql = read_text("capacity.queue", "suspensions.sql")
    parameters = {"since": now - LOOKBACK, "until": until or now, "verbs": sorted(STOP_VERBS)}
    suspensions = [_build_suspension(row) for row in views.query(sql, parameters).to_pylist()]
    return [s for s in suspensions if s.is_of_job]


def _build_suspension(row: Mapping[str, Any]) -> Suspension:
    suspension = msgspec.json.decode(row["document"], type=Suspension, strict=False)
    if row["requested_at"] is None:
        return suspension
    request = PendingResume(row["requested_by"], row["requested_at"].replace(tzinfo=UTC))
    return msgspec.structs.replace(suspension, pending_resume=request)


def read_last_pods(views: Views, suspension: Suspension) -> list[PodRecord]:
    """Return the pods with GPUs that a job had just before it was suspended."""
    at = suspension.action.at
    state = FleetState(views, at - BEFORE, at, [suspension.key])
    return [pod for pod in state.pods(suspension.key, to_micros(at)) if pod.gpus > 0]
