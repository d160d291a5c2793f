"""Send changes one after the other, each journalled before and after, none twice.

A change without an answer stays open: `reconcile` reads its effect. A change that the API refused
did not happen, and the changes after it are not sent.

A 409 is not always a conflict with a person: the controller of a Deployment writes its status after
each annotation, that of nodes a taint after each cordon. So the object is read again, and the
change is sent again only while its guarded fields are as we left them. The first write to an object
is sent again only while the decision is confirmed (`confirmation.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from actions.cluster.allocations import count_allocated_gpus
from actions.cluster.workload_pods import list_node_pods
from actions.cluster.write_results import WriteResult
from actions.journal import ActionState, JournalState, event_types
from actions.loop.change_state import (
    EVICTION,
    compare_object,
    find_differences,
    get_read_path,
    set_current_version,
)
from actions.loop.confirmation import CONFLICT, Confirmation
from actions.loop.protocols import ClusterClient, Transport
from fallow.action_models import Change, FreedPod, Reason
from fallow.errors import FallowError, RefusedError, TemporaryError
from fallow.kube.objects import get_namespace, get_uid, has_ended, name

Pulse = Callable[[str], None]
"""Called at every step of an action; the crash tests stop the process here."""
KUBERNETES = "kubernetes"
VERSION = "version"
"""The cause of a conflict in which only the object's version differs."""
ALREADY_GONE = "the pod was deleted already"
MAX_ATTEMPTS = 6
"""A controller writes its object within milliseconds after us. client-go's RetryOnConflict takes
five tries; ours takes one more because each first reads the object."""


class Interruption(msgspec.Struct, frozen=True):
    """Why a sequence of changes stopped: at which change, and what that means."""

    change: int
    verdict: str
    """conflict | gone | refused | throttled | invalid (it did not happen), away (unknown), halted
    (it was not sent), waiting (it was not sent: its condition is not met yet)"""
    reason: Reason


class _Run(msgspec.Struct, frozen=True):
    """One pass over changes: the kinds of its journal rows, and what its objects are by now."""

    rows: tuple[str, str]
    confirmation: Confirmation | None = None
    versions: dict[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """Objects by uid as our own writes left them."""

    @property
    def is_undo(self) -> bool:
        return self.rows[0] == event_types.UNDO_SENDING

    def get_latest(self, change: Change) -> Mapping[str, Any] | None:
        """Return the newest version of a change's object on which the change may be sent."""
        confirmed = self.confirmation.objects if self.confirmation is not None else {}
        return self.versions.get(change.target.uid, confirmed.get(change.target.uid))


class ChangeSender:
    """Sends changes through their transports."""

    def __init__(
        self,
        ways: Mapping[str, Transport],
        record: JournalState,
        halted: Callable[[], tuple[Reason, ...]],
        pulse: Pulse,
    ) -> None:
        self.transports, self._record, self._halted, self._pulse = ways, record, halted, pulse

    @property
    def _cluster(self) -> ClusterClient:
        return cast(ClusterClient, self.transports[KUBERNETES])

    def get_transport(self, change: Change) -> Transport:
        """Return the transport that a change names.

        Raises:
            RefusedError: no such transport is configured.
        """
        transport = self.transports.get(change.client)
        if transport is None:
            raise RefusedError(
                f"no way to {change.client} is configured",
                hint=f"there is: {', '.join(sorted(self.transports))}",
            )
        return transport

    def read_object(self, change: Change) -> Mapping[str, Any] | None:
        """Return the object that shows whether a change was applied; None = it does not exist.

        Raises:
            TemporaryError: no answer.
            RefusedError: it may not be read.
        """
        return self.get_transport(change).get(get_read_path(change))

    def explain_wait(self, change: Change) -> str | None:
        """Return what a change still waits for; None = it may be sent.

        Raises:
            TemporaryError: no answer.
            RefusedError: what it waits for may not be read.
        """
        obj = self.read_object(change) if change.when else {}
        missing = find_differences(change.when, obj or {})
        if missing:
            conditions = ", ".join(f"{p} = {change.when[p]}" for p in missing)
            return f"{change.target.kind} {change.target.name} does not show {conditions}"
        if change.vacant:
            pods = list_node_pods(change.vacant, self._cluster)
            gpus = count_allocated_gpus(pods, self._cluster)
            holding = [p for p in pods if gpus[get_uid(p)]]
            if holding:
                return f"pods hold GPUs of {change.vacant}: {_join_names(holding)}"
        staying = [f"{p.namespace}/{p.pod}" for p in change.after if not self.has_gone(p)]
        return f"pods are not gone: {', '.join(staying[:3])}" if staying else None

    def has_gone(self, freed: FreedPod) -> bool:
        """Return whether a pod is gone or has ended; one of its name with another uid is another.

        Raises:
            TemporaryError: no answer.
            RefusedError: it may not be read.
        """
        pod = self._cluster.get(f"/api/v1/namespaces/{freed.namespace}/pods/{freed.pod}")
        return pod is None or get_uid(pod) != freed.uid or has_ended(pod)

    def dry_run(self, changes: Sequence[Change], confirmation: Confirmation) -> Reason | None:
        """Send all changes as a server-side dry run; return the first refusal.

        Changes that depend on others before them, or wait for their effect, cannot be tested alone.
        If the real write of such a change is refused, the changes before it are undone.

        Raises:
            TemporaryError: a disruption budget, or the API's own limit, allows it later.
        """
        for change in changes:
            if change.depends or change.when or change.after:
                continue
            try:
                result = self._rehearse(change, confirmation)
            except FallowError as error:
                return Reason("dry run", error.message)
            if isinstance(result, Reason):
                return result
            if result.verdict == "throttled":
                raise TemporaryError(explain_failure(result, change))
            if not result.ok:
                return Reason("dry run", explain_failure(result, change))
        return None

    def _rehearse(self, change: Change, confirmation: Confirmation) -> WriteResult | Reason:
        """Send one change as a dry run; return its result, or why it must not be sent any more."""
        transport, uid = self.get_transport(change), change.target.uid
        for _ in range(MAX_ATTEMPTS - 1):
            current = set_current_version(change, confirmation.objects.get(uid))
            result = transport.send(current, dry_run=True)
            if result.cause != VERSION:
                return result
            if why := confirmation.renew(change):
                return why
        return transport.send(
            set_current_version(change, confirmation.objects.get(uid)), dry_run=True
        )

    def send(
        self,
        state: ActionState,
        changes: Sequence[Change],
        confirmation: Confirmation | None = None,
    ) -> Interruption | None:
        """Send an action's changes that were not sent yet; None = all of them were applied.

        A refused change did not happen: it is sent once more where the process died before it could
        continue.
        """
        skip = state.writes.took | set(state.writes.open)
        run = _Run((event_types.SENDING, event_types.SENT), confirmation)
        return self._send(state, changes, run, skip)

    def send_undo(
        self, state: ActionState, changes: Sequence[Change], skip: set[int]
    ) -> Interruption | None:
        """Send the changes of its undo, except some; None = all of them were applied."""
        run = _Run((event_types.UNDO_SENDING, event_types.UNDO_SENT))
        return self._send(state, changes, run, skip)

    def _send(
        self, state: ActionState, changes: Sequence[Change], run: _Run, skip: set[int]
    ) -> Interruption | None:
        for number, change in enumerate(changes):
            if number in skip:
                continue
            if change.path.endswith(EVICTION) and self._is_evicted(
                state, number, change, run.rows[1]
            ):
                continue
            interruption = self._send_change(state, number, change, run)
            if interruption is not None:
                return interruption
        return None

    def _is_evicted(self, state: ActionState, number: int, change: Change, row: str) -> bool:
        """Return whether a pod is gone already: one of its name may run elsewhere by now."""
        object_state = compare_object(change, self.read_object(change))
        if object_state == "becomes":
            document = {"change": number, "code": 0, "why": ALREADY_GONE}
            self._record.append(row, state.action.id, document)
        return object_state == "becomes"

    def _send_change(
        self, state: ActionState, number: int, change: Change, run: _Run
    ) -> Interruption | None:
        """Send one change; send it again only where just its object's version differs."""
        action, uid = state.action.id, change.target.uid
        for attempts_left in range(MAX_ATTEMPTS - 1, -1, -1):
            why = self._halted()
            if why:
                return Interruption(number, "halted", why[0])
            if change.when or change.vacant or change.after:
                wait_reason = self.explain_wait(change)
                if wait_reason:
                    return Interruption(number, "waiting", Reason("waiting", wait_reason))
                run.versions[uid] = self.read_object(change) or {}
            self._pulse(f"{run.rows[0]} {number}")
            self._record.append(run.rows[0], action, {"change": number})
            self._pulse(f"journalled {run.rows[0]} {number}")
            result = self._send_once(set_current_version(change, run.get_latest(change)))
            self._pulse(f"answered {number}")
            if result.verdict == "away":
                return Interruption(number, "away", Reason("no answer", result.reason))
            why_not = ""
            if attempts_left and result.cause == VERSION:
                renewed = self._renew(change, run)
                if renewed is None:
                    # It certainly did not happen: the next row records that it is sent once more.
                    document = {"change": number, "why": explain_failure(result)}
                    document |= {"undo": True} if run.is_undo else {}
                    self._record.append(event_types.WITHDRAWN, action, document)
                    self._pulse(f"read again {number}")
                    continue
                why_not = renewed
            if result.verdict == "gone" and change.path.endswith(EVICTION):
                document = {"change": number, "code": 0, "why": ALREADY_GONE}
                self._record.append(run.rows[1], action, document)
                return None
            self._record.append(run.rows[1], action, _to_document(number, result))
            self._pulse(f"journalled {run.rows[1]} {number}")
            if not result.ok:
                text = why_not or explain_failure(result, change)
                text += self._advise(result, change, action, run)
                return Interruption(number, result.verdict, Reason(result.verdict, text))
            _keep_version(run.versions, result)
            return None
        raise AssertionError(MAX_ATTEMPTS)

    def _renew(self, change: Change, run: _Run) -> str | None:
        """Read a change's object again; return why the change is not sent again, None = it is."""
        if not run.is_undo and change.target.uid not in run.versions:
            if run.confirmation is None:
                return ""
            reason = run.confirmation.renew(change)
            if reason is None:
                return None
            return reason.text if reason.gate == CONFLICT else f"{reason.gate}: {reason.text}"
        obj = self._read_again(change)
        if obj is None:
            return ""
        run.versions[change.target.uid] = obj
        return None

    def _read_again(self, change: Change) -> Mapping[str, Any] | None:
        """Return the object if it shows the state that the change expects.

        None = no, or unknown.
        """
        try:
            obj = self.read_object(change)
        except FallowError:
            return None
        return obj if compare_object(change, obj) == "was" else None

    def _advise(self, result: WriteResult, change: Change, action: str, run: _Run) -> str:
        """Return advice about a conflict that remains."""
        if result.verdict != "conflict":
            return ""
        if not run.is_undo:
            return "; the next turn reads it again and decides anew"
        if self._read_again(change) is not None:
            return f"; what was left still stands, so try again: fallow undo {action}"
        return f"; that change stays, and what it was before is in: fallow actions {action}"

    def _send_once(self, change: Change) -> WriteResult:
        try:
            return self.get_transport(change).send(change, dry_run=False)
        except TemporaryError as error:
            return WriteResult("away", 0, reason=error.message)


def _join_names(pods: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted(f"{get_namespace(p)}/{name(p)}" for p in pods)[:3])


def explain_failure(result: WriteResult, change: Change | None = None) -> str:
    """Return why a change failed, and with whom it conflicts; for an eviction, the pod's owner."""
    why = result.reason or f"HTTP {result.code}"
    if change is not None and change.path.endswith(EVICTION):
        why = f"pod {change.target.namespace}/{change.target.name}: {why}"
    return f"{why} (field manager {result.manager})" if result.manager else why


def _keep_version(versions: dict[str, Mapping[str, Any]], result: WriteResult) -> None:
    """Store the object's current version for its next change."""
    uid = ((result.object or {}).get("metadata") or {}).get("uid")
    if uid and result.object is not None:
        versions[uid] = result.object


def _to_document(number: int, result: WriteResult) -> dict[str, Any]:
    document: dict[str, Any] = {"change": number, "code": result.code}
    if not result.ok:
        document |= {"verdict": result.verdict, "why": explain_failure(result)}
    meta = (result.object or {}).get("metadata") or {}
    if meta.get("resourceVersion"):
        document["version"] = meta["resourceVersion"]
    return document
