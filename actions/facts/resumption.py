"""Build the facts of a job that Fallow suspended: it has no pods, so those of before its stop.

What the job is comes from the journal: its uid, its owner, labels and protections, and the
generation that the stop left. What may have changed since is read now: the polls of the API, the
nodes of the placement, the clocks. What the journal does not have stays unknown.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from capacity.placement.fleet_state import MICRO, FleetState, convert_micros, to_micros
from capacity.queue.suspensions import Suspension, read_suspensions
from fallow.action_models import CaseHistory, Facts
from fallow.models import Finding, Recommendation
from fallow.protocols import Views

SUSPENDED = "suspended_job"
"""Kind of the findings of analyzers/suspended."""


class SuspendedJobs:
    """The suspensions that stand at one time, by the id of their action."""

    def __init__(self, views: Views, findings: Sequence[Finding], now: datetime) -> None:
        self._by_action: dict[str, Suspension] = {}
        if any(finding.kind == SUSPENDED for finding in findings):
            self._by_action = {s.action.id: s for s in read_suspensions(views, now)}

    def build_facts(
        self,
        fleet_state: FleetState,
        finding: Finding,
        advice: Recommendation,
        now: datetime,
        inventory: Mapping[str, Any] | None,
    ) -> Facts:
        """Return the facts of one finding; `inventory` is that of its cluster's polls."""
        suspension = self._by_action.get(str(finding.details.get("action")))
        before = suspension.facts if suspension is not None else None
        seen_us = inventory["seen_us"] if inventory is not None else None
        current = Facts(
            finding=finding,
            recommendation=advice,
            at=now,
            gpus=float(finding.details["gpus"]),
            seen_until=None if seen_us is None else convert_micros(seen_us),
            interval_s=None if inventory is None else inventory["interval_s"],
            coverage=None if inventory is None else inventory["coverage"],
            shared=False,
            nodes_ready=_is_ready(fleet_state, finding, to_micros(now)),
            skew_s=_find_skew(fleet_state, finding.subject.cluster, before),
            waiting=(),
        )
        if suspension is None or before is None:
            return current
        return msgspec.structs.replace(
            current,
            pods=before.pods,
            models=before.models,
            uid=suspension.action.intent.target.uid,
            generation=suspension.generation,
            owner=before.owner,
            queue=before.queue,
            labels=before.labels,
            annotations=before.annotations,
            namespace_labels=before.namespace_labels,
            namespace_annotations=before.namespace_annotations,
            priority_class=before.priority_class,
            created_at=before.created_at,
            owner_resolved=before.owner_resolved,
            history=CaseHistory(),
        )


def _is_ready(fleet_state: FleetState, finding: Finding, at: int) -> bool | None:
    """Return whether the nodes of the placement are ready; None = one is not known."""
    states = [
        fleet_state.ready((finding.subject.cluster, node), at) for node in finding.subject.nodes
    ]
    if False in states:
        return False
    return None if None in states or not states else True


def _find_skew(fleet_state: FleetState, cluster: str, before: Facts | None) -> float | None:
    """Return a lower bound of the seconds by which the API's clock is ahead.

    It is that of all pods of the last hour; a cluster without one has that of before the stop.
    """
    leads = [p.ahead for p in fleet_state.all_pods if p.key[0] == cluster and p.ahead is not None]
    if leads:
        return max(0.0, max(leads) / MICRO)
    return None if before is None else before.skew_s
