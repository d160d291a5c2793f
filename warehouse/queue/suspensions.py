"""Read the jobs that Fallow suspended, from the copy of the journal, with the facts of before.

A suspended job has no pods: who owns it, what it requests and which object it is are known only
from what was journalled with the stop, and from the rows of its last pods.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fallow.action_models import Action, Facts
from fallow.protocols import Views
from fallow.resources import read_text
from warehouse.placement.fleet_state import FleetState, PodRecord, WorkloadKey, to_micros

LOOKBACK = timedelta(days=7)
"""A suspension is read for this long: as long as it can be undone (`actions.watch`)."""
BEFORE = timedelta(hours=1)
METADATA = "/metadata/"
RESUMABLE_KINDS = frozenset({"Job", "JobSet", "MPIJob", "PyTorchJob", "RayJob", "VolcanoJob"})
"""Kinds that their controller's own handle suspends and starts again."""


class Suspension(msgspec.Struct, frozen=True):
    """The journal's row of a stop that stands: the action, and the facts of just before it."""

    action: Action
    facts: Facts | None = None
    policy: Mapping[str, Any] = {}

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
    def is_of_kueue(self) -> bool:
        """Return whether the stop went through a Workload of Kueue."""
        return any(change.target.kind == "Workload" for change in self.action.intent.changes)


def read_suspensions(views: Views, now: datetime) -> list[Suspension]:
    """Return the suspensions of jobs that stand at a time, oldest first."""
    sql = read_text("warehouse.queue", "suspensions.sql")
    rows = views.query(sql, {"since": now - LOOKBACK, "until": now}).to_pylist()
    suspensions = [
        msgspec.json.decode(row["document"], type=Suspension, strict=False) for row in rows
    ]
    return [s for s in suspensions if s.key[2] in RESUMABLE_KINDS]


def read_last_pods(views: Views, suspension: Suspension) -> list[PodRecord]:
    """Return the pods with GPUs that a job had just before it was suspended."""
    at = suspension.action.at
    state = FleetState(views, at - BEFORE, at, [suspension.key])
    return [pod for pod in state.pods(suspension.key, to_micros(at)) if pod.gpus > 0]
