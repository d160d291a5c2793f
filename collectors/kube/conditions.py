"""Judge from its conditions whether a job object waits: Kueue's Workload, the PodGroups."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from collectors.kube.pods import LONGEST_MESSAGE
from collectors.kube.shapes import CustomObject
from fallow.kube.values import list_maps
from fallow.redaction import redact

StateName = Literal["pending", "reserved", "contradictory", "started", "inactive", "ended"]
LATE = timedelta(hours=1)
"""An object that ended before this has no row: it waited for nobody lately."""
_WAITING_PHASES = frozenset({"", "Pending", "Inqueue", "PreScheduling", "Scheduling"})
_ENDED_PHASES = frozenset({"Completed", "Finished", "Failed"})
"""Phases of a PodGroup: Volcano's and those of scheduler-plugins."""


class ObjectState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a job object waits, with the words of its scheduler.

    `reserved`: it has its quota, and its admission checks are not done. `contradictory`: its
    conditions cannot all be true. `inactive`: somebody deactivated it, so it waits for no GPUs.
    """

    name: StateName
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    def encode(self) -> str:
        """Return reason, message and time as JSON, as `pod.unscheduled` has them."""
        words = {"reason": self.reason, "message": self.message, "since": self.since}
        return msgspec.json.encode({k: v for k, v in words.items() if v}, order="sorted").decode()


def judge_workload(workload: CustomObject, now: datetime) -> ObjectState | None:
    """Return the state of a Kueue Workload; None = it ended long ago."""
    status = workload.status or {}
    conditions = {str(c.get("type")): c for c in list_maps(status.get("conditions"))}
    finished = conditions.get("Finished", {})
    if finished.get("status") == "True":
        ended = _parse_time(finished.get("lastTransitionTime"))
        return None if ended is None or now - ended > LATE else ObjectState("ended")
    if (workload.spec or {}).get("active") is False:
        return ObjectState("inactive")
    admission = isinstance(status.get("admission"), dict) and bool(status["admission"])
    holds = {name: c.get("status") == "True" for name, c in conditions.items()}
    reserved, admitted = holds.get("QuotaReserved", False), holds.get("Admitted", False)
    if admission != (reserved or admitted) or (admitted and not reserved):
        return ObjectState("contradictory", "Unknown", _describe_conflict(admission, holds))
    if admitted:
        return ObjectState("started")
    if reserved:
        return _describe_checks(status, conditions["QuotaReserved"])
    return _describe_condition(conditions.get("QuotaReserved", {}))


def judge_group(group: CustomObject) -> ObjectState | None:
    """Return the state of a PodGroup of Volcano or of scheduler-plugins; None = it has ended."""
    status = group.status or {}
    phase = str(status.get("phase") or "")
    if phase in _ENDED_PHASES:
        return None
    if phase not in _WAITING_PHASES:
        return ObjectState("started")
    scheduled = status.get("running") or status.get("scheduled")
    if isinstance(scheduled, int) and scheduled > 0 and phase != "Scheduling":
        words = f"its phase is {phase or 'not set'}, and {scheduled} of its pods run"
        return ObjectState("contradictory", "Unknown", words)
    for condition in list_maps(status.get("conditions")):
        if condition.get("type") == "Unschedulable" and condition.get("status") == "True":
            return _describe_condition(condition)
    return ObjectState("pending", phase)


def _describe_conflict(admission: bool, holds: Mapping[str, bool]) -> str:
    names = ", ".join(
        f"{name} is {holds[name]}" for name in ("QuotaReserved", "Admitted") if name in holds
    )
    return f"its conditions contradict: {names}, and it has {'an' if admission else 'no'} admission"


def _describe_checks(status: Mapping[str, Any], reserved: Mapping[str, Any]) -> ObjectState:
    """Return the state of a Workload with quota whose admission checks are not all ready."""
    words = [
        ": ".join(
            filter(None, (f"admission check {c.get('name')} is {c.get('state')}", c.get("message")))
        )
        for c in list_maps(status.get("admissionChecks"))
        if c.get("state") != "Ready"
    ]
    text = "; ".join(words) or "it has its quota and is not admitted"
    return ObjectState("reserved", "AdmissionChecks", _cut(text), _read_since(reserved))


def _describe_condition(condition: Mapping[str, Any]) -> ObjectState:
    reason, message = (str(condition.get(key) or "") for key in ("reason", "message"))
    return ObjectState("pending", reason, _cut(message), _read_since(condition))


def _cut(text: str) -> str:
    return redact(text)[:LONGEST_MESSAGE]


def _read_since(condition: Mapping[str, Any]) -> datetime | None:
    return _parse_time(condition.get("lastTransitionTime"))


def _parse_time(value: object) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(str(value))
    return None
