"""Judge whether a job that Fallow suspended can run again: its reason ended, and it has room.

suspension ─► unchanged, without pods ─► its reason ended ─► nobody else waits ─► it fits
Whatever is not known, or contradicts the journal, holds.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from analyzers.suspended.rows import read_ends
from analyzers.suspended.sick_nodes import NamedNodes, SickNodes
from capacity.placement.fleet_state import PodRecord, to_micros
from capacity.queue.exclusions import NodeExclusion, read_node_exclusion
from capacity.queue.reading import QueueReader
from capacity.queue.suspensions import Suspension, read_last_pods
from fallow.protocols import Views
from fallow.window import Window
from warehouse.incidents import BEFORE_HANG, read_stored_incidents

_ENDED = frozenset({"Succeeded", "Failed"})


class ResumeVerdict(msgspec.Struct, frozen=True):
    """Whether a suspended job can run again, and where."""

    suspension: Suspension
    hold: str
    """Why not; empty = it can."""
    gpus: float = 0.0
    reason: str = ""
    """What ended the reason of its stop."""
    nodes: tuple[str, ...] = ()
    """The nodes of the placement that was found."""
    ended_exclusion: NodeExclusion | None = None
    """What an earlier restart elsewhere wrote, where its nodes are other ones now."""


class _HeldError(Exception):
    """Why a job stays suspended."""


class SuspensionJudge:
    """Judges suspensions at one time."""

    def __init__(self, views: Views, now: datetime) -> None:
        self._views, self._now, self._at = views, now, to_micros(now)

    def judge(self, suspension: Suspension) -> ResumeVerdict:
        """Return whether a suspended job can run again."""
        pods: Sequence[PodRecord] = ()
        try:
            pods = self._read_pods(suspension)
            reason = self._find_end(suspension)
            nodes = self._place(suspension, pods)
        except _HeldError as held:
            return ResumeVerdict(suspension, str(held), sum(pod.gpus for pod in pods))
        exclusion = self._find_ended_exclusion(suspension)
        gpus = sum(pod.gpus for pod in pods)
        return ResumeVerdict(suspension, "", gpus, reason, nodes, exclusion)

    def _read_pods(self, suspension: Suspension) -> list[PodRecord]:
        """Return the pods of before the stop, where nothing contradicts that it is that job."""
        intent, facts = suspension.action.intent, suspension.facts
        if facts is None or facts.uid is None or suspension.generation is None:
            raise _HeldError("the journal does not have the facts of before its stop")
        if facts.uid != intent.target.uid:
            raise _HeldError("the journal names two uids of it")
        if suspension.is_of_kueue:
            raise _HeldError(
                "Kueue manages it, and writes its spec itself: whether anybody else changed it "
                f"is not known (`fallow undo {suspension.action.id}`)"
            )
        if any(self._list_present(suspension)):
            raise _HeldError("it has pods, or its last ones were seen in the last ten minutes")
        pods = read_last_pods(self._views, suspension)
        if {pod.workload_uid for pod in pods} != {intent.target.uid}:
            raise _HeldError("its pods of before the stop are not stored, or are another object's")
        freed = {pod.uid for pod in intent.frees if pod.gpus > 0}
        if {pod.uid for pod in pods} != freed:
            raise _HeldError("the pods that its stop freed are not those that are stored")
        return pods

    def _list_present(self, suspension: Suspension) -> list[PodRecord]:
        state = self._queue.places.state
        return [
            pod
            for pod in state.all_pods
            if pod.key == suspension.key
            and pod.begin < self._at <= pod.end
            and pod.phase not in _ENDED
        ]

    def _find_end(self, suspension: Suspension) -> str:
        """Return what ended the reason of the stop."""
        facts, request = suspension.facts, suspension.pending_resume
        if facts is not None and suspension.reason == "hang":
            return self._find_incident_end(suspension, facts.finding.window.start)
        if suspension.reason == "pressure":
            return "it made room for others, and nobody waits any more"
        if request is not None:
            at = f"{request.at:%Y-%m-%d %H:%M} UTC"
            return f"{request.by} requested at {at} to resume it once it has room"
        action = suspension.action.id
        raise _HeldError(
            "it was idle: only its owner knows whether it has work again, and resumes it on the "
            f"page Mine (now: `fallow undo {action}`; once it has room: `fallow resume {action}`)"
        )

    def _find_incident_end(self, suspension: Suspension, start: datetime) -> str:
        cluster, namespace, kind, name = suspension.key
        window = Window(start - BEFORE_HANG, self._now)
        incidents = [
            incident
            for incident in read_stored_incidents(self._views, window)
            if incident.is_about(cluster, f"{namespace}/{kind}/{name}")
        ]
        steps = {incident.step for incident in incidents}
        if not steps:
            raise _HeldError("no incident of its hang is stored: its cause is not known")
        if len(steps) > 1:
            raise _HeldError(f"its incidents call for different steps: {', '.join(sorted(steps))}")
        first = incidents[0]
        about = f"incident {first.id} ({first.cause})"
        ends = read_ends().get(first.step)
        if ends is None:
            raise _HeldError(f"its {about} calls for: {first.step}")
        if ends == "stop":
            return f"its stop ended {about}"
        named = NamedNodes(
            {node for incident in incidents for node in incident.nodes},
            {device for incident in incidents for device in incident.devices},
            max(incident.end_at for incident in incidents),
        )
        if not named.nodes:
            raise _HeldError(f"the nodes of its {about} are not known")
        sick = SickNodes(self._views, self._queue.places.state, cluster, named, self._now)
        if still := sick.list_present():
            raise _HeldError(f"nodes of its {about} are still there: {', '.join(still)}")
        return f"the nodes of its {about} are gone: {', '.join(sick.describe_gone())}"

    def _find_ended_exclusion(self, suspension: Suspension) -> NodeExclusion | None:
        """Return the newest exclusion of nodes of a job where each of them was replaced."""
        exclusion = read_node_exclusion(self._views, suspension)
        if exclusion is None:
            return None
        named = NamedNodes(exclusion.nodes, (), exclusion.at.astimezone(UTC).replace(tzinfo=None))
        cluster, state = suspension.key[0], self._queue.places.state
        sick = SickNodes(self._views, state, cluster, named, self._now)
        return exclusion if sick.are_replaced() else None

    def _place(self, suspension: Suspension, pods: Sequence[PodRecord]) -> tuple[str, ...]:
        """Return the nodes on which its pods fit now; who waits comes first."""
        cluster = suspension.key[0]
        waiting = [key for key in self._queue.list_waiting() if key[0] == cluster]
        others = [record.key for record in self._queue.list_others() if record.key[0] == cluster]
        if waiting or others:
            count = len({*waiting, *others})
            raise _HeldError(f"{count} workloads wait for GPUs: they come first")
        pending = [
            msgspec.structs.replace(pod, node=None, phase="Pending", placed=None) for pod in pods
        ]
        answer = self._queue.places.explain(suspension.key, pending)
        own = [p for p in answer.places if p.cluster == cluster and p.pool is None]
        if answer.answer != "fits_here" or not own or not own[0].nodes:
            why = (own[0].why if own else "") or answer.why
            if answer.answer == "unknown" or (own and own[0].state == "unknown"):
                raise _HeldError(f"whether its pods have room is not known: {why}")
            raise _HeldError(f"its pods have no room: {why}")
        return own[0].nodes

    @cached_property
    def _queue(self) -> QueueReader:
        return QueueReader(self._views, self._now)
