"""Restart a job, or resume one that Fallow suspended, through its controller's own handle.

A restart is the stop of the kind's own executor, and the undo of that stop as soon as every pod of
it is gone. Nothing is deleted by Fallow. What the pods computed since the last checkpoint is lost,
so a restart cannot be undone; while its pods end, the undo only resumes it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec

from actions.cluster.pointers import build_merge_patch, get_value
from actions.reclaim import kueue
from actions.reclaim.subjects import LiveWorkload, build_intent, build_rights, read_workload
from actions.reclaim.switches import BatchExecutor, RayExecutor, is_stopped
from actions.reclaim.volcano import PHASE, VolcanoJobExecutor, build_command
from actions.reclaim.writes import UndoableChange, merge_bodies, set_field
from actions.recommend import RESTART, list_restartable_kinds
from capacity.queue.exclusions import ENDED_EXCLUSION
from fallow.action_models import Change, Decision, FreedPod, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import (
    Object,
    get_annotations,
    get_path,
    has_condition,
    has_ended,
    is_deleting,
    name,
)
from fallow.protections import parse_timestamp
from fallow.protocols import ClusterReader, Right

COUNT = "fallow.dev/restarts"
"""Annotation with the number of times that Fallow restarted an object."""
MOST = "max_restarts"
"""The parameter of a policy's act: restarts per object."""
MOST_RESTARTS = 1
SETTLED = timedelta(minutes=10)
"""A pod younger than this was just started: by its controller, or by its owner."""
RESTARTING = frozenset({"Restarting", "Retrying", "Initializing", "Waiting", "Suspending"})
"""States of a job whose controller restarts it (KubeRay, Volcano)."""
CRASHING = frozenset({"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull"})
ACTION = "fallow.dev/action"
LOST = "what it computed since its last checkpoint: a restart cannot be undone"
RIGHTS = (
    *build_rights("Job", "JobSet", "PyTorchJob", "MPIJob", "RayJob"),
    *kueue.RIGHTS,
    *VolcanoJobExecutor.rights,
)


class RestartExecutor:
    """Suspend a job and resume it when its pods are gone; at most `max_restarts` times."""

    kinds: ClassVar[frozenset[str]] = list_restartable_kinds()
    capabilities: ClassVar[frozenset[str]] = frozenset({RESTART})
    verbs: ClassVar[frozenset[str]] = frozenset({RESTART})
    rights: ClassVar[tuple[Right, ...]] = RIGHTS

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the stop and the start after it; the undo is the start alone.

        Raises:
            RefusedError: what its stop refuses; its controller restarts it, or it just started; it
                has no pods; Fallow restarted it as often as the policy allows.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        stop = _choose_stop(workload).writes(decision, cluster)
        if not stop.frees:
            raise RefusedError(f"{workload} has no pods: nothing runs that could be restarted")
        if why := explain_own_restart(workload, cluster.pods(workload.target), decision.at):
            raise RefusedError(f"{workload} is left to its controller: {why}")
        most = _read_most(decision)
        stops = tuple(_count_restart(change, cluster, most) for change in stop.changes)
        starts = tuple(_build_start(undo, stop.frees) for undo in stop.undo)
        return msgspec.structs.replace(
            stop, capability=RESTART, changes=(*stops, *starts), lost=LOST
        )


class ResumeExecutor:
    """Resume a job that Fallow suspended; what other people suspended is left alone."""

    kinds: ClassVar[frozenset[str]] = list_restartable_kinds()
    capabilities: ClassVar[frozenset[str]] = frozenset({"resume"})
    verbs: ClassVar[frozenset[str]] = frozenset({"resume"})
    rights: ClassVar[tuple[Right, ...]] = RIGHTS

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the write that starts a job again; the undo suspends it again.

        Raises:
            RefusedError: it is gone, owned, complete, not suspended, or not by Fallow.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        if ACTION not in get_annotations(workload.obj):
            raise RefusedError(f"{workload} is not resumed: Fallow did not suspend it")
        if workload.kind.switch == "command":
            return _resume_by_command(workload, decision, cluster)
        writes = kueue.build_writes(workload.obj, cluster, active=True)
        if writes is None:
            if not is_stopped(workload):
                raise RefusedError(f"{workload} is not suspended")
            pointer = workload.kind.pointer
            switch = set_field(workload.obj, workload.target, workload.path, pointer, value=False)
            start = _end_exclusion(switch.change, workload, decision.parameters)
            writes = (UndoableChange(start, switch.undo),)
        return build_intent(workload, cluster, "resume", writes)


def _end_exclusion(start: Change, workload: LiveWorkload, parameters: Mapping[str, Any]) -> Change:
    """Return a start that gives back the fields in which a restart elsewhere excluded nodes.

    A field that somebody changed since stays as it is.
    """
    ended = parameters.get(ENDED_EXCLUSION) or {}
    for pointer, was in (ended.get("was") or {}).items():
        left = ended["becomes"][pointer]
        if get_value(workload.obj, pointer) == left:
            start = msgspec.structs.replace(
                start,
                body=merge_bodies(start.body, build_merge_patch(pointer, _restore(left, was))),
                was={**start.was, pointer: left},
                becomes={**start.becomes, pointer: was},
            )
    return start


def _restore(left: Any, was: Any) -> Any:
    """Return the merge patch from one value to another: what is absent there is removed."""
    if not isinstance(left, dict) or not isinstance(was, dict):
        return was
    absent = dict.fromkeys(left.keys() - was.keys())
    return absent | {key: _restore(left.get(key), value) for key, value in was.items()}


def explain_own_restart(
    workload: LiveWorkload, pods: Iterable[Object], now: datetime
) -> str | None:
    """Return why a job is, or may be, in a restart of its own; None = it runs steadily."""
    state = get_path(workload.obj, "status", "jobDeploymentStatus") or get_path(
        workload.obj, "status", "state", "phase"
    )
    if state in RESTARTING or has_condition(workload.obj, "Restarting"):
        return f"it restarts now ({state or 'condition Restarting'})"
    return next(_list_unsteady(pods, now), None)


def _list_unsteady(pods: Iterable[Object], now: datetime) -> Iterator[str]:
    for pod in pods:
        if has_ended(pod):
            continue
        started = get_path(pod, "status", "startTime")
        if is_deleting(pod):
            yield f"pod {name(pod)} is being deleted"
        elif get_path(pod, "status", "phase") != "Running" or not started:
            yield f"pod {name(pod)} does not run"
        elif now - _parse_start(started) < SETTLED:
            yield f"pod {name(pod)} was started at {started}"
        for container in get_path(pod, "status", "containerStatuses") or ():
            reason = get_path(container, "state", "waiting", "reason")
            if reason in CRASHING:
                yield f"a container of pod {name(pod)} waits: {reason}"


def _parse_start(text: str) -> datetime:
    """Return when a pod started; what cannot be read counts as just now."""
    return parse_timestamp(text) or datetime.max.replace(tzinfo=UTC)


def _choose_stop(workload: LiveWorkload) -> BatchExecutor | RayExecutor | VolcanoJobExecutor:
    if workload.kind.kind == "VolcanoJob":
        return VolcanoJobExecutor()
    return RayExecutor() if workload.kind.kind == "RayJob" else BatchExecutor()


def _read_most(decision: Decision) -> int:
    value = decision.parameters.get(MOST, MOST_RESTARTS)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RefusedError(
            f"policy {decision.policy}: {MOST} is {value!r}",
            hint=f"legal is a whole number from 1 on: act: {{do: restart, with: {{{MOST}: 1}}}}",
        )
    return value


def _count_restart(change: Change, cluster: ClusterReader, most: int) -> Change:
    """Return a stop that counts itself on its object; a Volcano Job counts in its own status.

    Raises:
        RefusedError: the object was restarted as often as allowed, or its count is no number.
    """
    obj = cluster.get(change.read or change.path) or {}
    if change.method == "POST":
        text = str(get_path(obj, "status", "retryCount") or 0)
    else:
        text = get_annotations(obj).get(COUNT, "0")
    about = f"{change.target.kind}/{change.target.namespace}/{change.target.name}"
    if not text.isdecimal():
        raise RefusedError(f"{about}: annotation {COUNT} is {text!r}, no number")
    if int(text) >= most:
        raise RefusedError(
            f"{about} was restarted {text} times, {MOST} is {most}: its owner has to find out why"
        )
    if change.method == "POST":
        # The effect is a phase that goes on changing; the start waits for it (`when`).
        return msgspec.structs.replace(change, was={}, becomes={})
    note = {"metadata": {"annotations": {COUNT: str(int(text) + 1)}}}
    return msgspec.structs.replace(change, body=merge_bodies(change.body, note))


def _build_start(undo: Change, frees: tuple[FreedPod, ...]) -> Change:
    """Return the undo of a stop as a write that waits until the pods are gone."""
    if undo.method == "POST":
        return msgspec.structs.replace(undo, after=frees, when=undo.was, was={}, becomes={})
    return msgspec.structs.replace(undo, after=frees)


def _resume_by_command(
    workload: LiveWorkload, decision: Decision, cluster: ClusterReader
) -> Intent:
    phase = get_path(workload.obj, "status", "state", "phase")
    if phase != "Aborted":
        raise RefusedError(f"{workload} is {phase or 'in no known state'}: nothing to resume")
    start = build_command(workload, cluster, "ResumeJob", decision.id)
    stop = build_command(workload, cluster, "AbortJob", decision.id)
    start = msgspec.structs.replace(start, was={PHASE: "Aborted"}, becomes={PHASE: "Running"})
    stop = msgspec.structs.replace(stop, target=workload.later, was={PHASE: "Running"})
    return build_intent(workload, cluster, "resume", (UndoableChange(start, stop),))
