"""Read what stored incidents say of jobs that hang: the cause, the one step, the nodes to leave."""

from collections.abc import Sequence
from datetime import datetime

from capacity.placement.fleet_state import PodRecord, WorkloadAllocation
from capacity.placement.pending_queue import PendingWorkloads
from fallow.action_models import IncidentAdvice
from fallow.models import Finding
from fallow.protocols import Views
from fallow.window import Window
from warehouse.incidents import BEFORE_HANG, StoredIncident, read_stored_incidents

HOLD = "hold"


class JobIncidents:
    """The stored incidents of jobs that hang, at one time."""

    def __init__(
        self, views: Views, findings: Sequence[Finding], now: datetime, pending: PendingWorkloads
    ) -> None:
        self._pending = pending
        self._rows: list[StoredIncident] = []
        if findings:
            since = min(finding.window.start for finding in findings) - BEFORE_HANG
            self._rows = read_stored_incidents(views, Window(since, now))

    def of(
        self, finding: Finding, allocations: Sequence[WorkloadAllocation], pods: Sequence[PodRecord]
    ) -> IncidentAdvice | None:
        """Return the advice of the newest incident of a job; None = none of it is stored.

        Incidents that call for different steps call for none.
        """
        subject = finding.subject
        name = f"{subject.namespace}/{subject.workload_kind}/{subject.workload}"
        begin = finding.window.start.replace(tzinfo=None) - BEFORE_HANG
        mine = [
            row for row in self._rows if row.end_at >= begin and row.is_about(subject.cluster, name)
        ]
        if not mine:
            return None
        first, steps = mine[0], {row.step for row in mine}
        if len(steps) > 1:
            why = f"its incidents call for different steps: {', '.join(sorted(steps))}"
            return IncidentAdvice(first.id, first.cause, HOLD, why, ())
        nodes = first.nodes
        room = self._pending.fits_without(allocations, pods, nodes) if nodes else None
        return IncidentAdvice(first.id, first.cause, first.step, first.why or "", nodes, room)
