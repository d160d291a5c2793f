"""Send changes one after the other, each journalled before and after, none twice.

A change whose answer did not come stays open: `reconcile` reads what became of it. What the API
refused did not happen, and the changes after it are not sent.

A 409 is not always somebody's: the controller of a Deployment writes its status after each
annotation, that of nodes a taint after each cordon. So the object is read again, and the change is
sent again only while the fields that it guards are as we left them. The first write of an action
is not sent again: what it found is what the decision was about, and the next turn decides anew.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from actions.cluster.allocations import allocated_gpus
from actions.cluster.explain import Answer
from actions.cluster.members import pods_on
from actions.cluster.objects import name, namespace, uid
from actions.journal import Record, Told, words
from actions.loop.pointers import EVICTION, differing, fresh, read_path, state
from actions.loop.seams import Door, Way
from fallow.acting import Change, Reason
from fallow.errors import FallowError, RefusedError, TemporaryError

Pulse = Callable[[str], None]
"""Called at every step of an action; the tests of crashes stop the process here."""
KUBERNETES = "kubernetes"
VERSION = "version"
"""The cause of a conflict in which nothing but the object's version is another."""
GONE = "the pod is gone already"
TRIES = 6
"""A controller writes its object within milliseconds after us; client-go's RetryOnConflict takes
five tries, ours is one more because each first reads the object."""


class Stopped(msgspec.Struct, frozen=True):
    """Why a row of changes was not sent to its end: at which change, and what that means."""

    change: int
    verdict: str
    """conflict | gone | refused | throttled | invalid (it did not happen), away (nobody knows),
    halted (it was not sent), waiting (nor was it: what it waits for is not there yet)"""
    reason: Reason


class Writes:
    """Sends changes through the doors they name."""

    def __init__(
        self,
        ways: Mapping[str, Way],
        record: Record,
        halted: Callable[[], tuple[Reason, ...]],
        pulse: Pulse,
    ) -> None:
        self.ways, self._record, self._halted, self._pulse = ways, record, halted, pulse

    @property
    def _cluster(self) -> Door:
        return cast(Door, self.ways[KUBERNETES])

    def way(self, change: Change) -> Way:
        """Return the door that a change names.

        Raises:
            RefusedError: nothing is configured that leads there.
        """
        found = self.ways.get(change.door)
        if found is None:
            raise RefusedError(
                f"no way to {change.door} is configured",
                hint=f"there is: {', '.join(sorted(self.ways))}",
            )
        return found

    def look(self, change: Change) -> Mapping[str, Any] | None:
        """Return the object that shows whether a change took; None = it is not there.

        Raises:
            TemporaryError: no answer.
            RefusedError: it may not be read.
        """
        return self.way(change).get(read_path(change))

    def waits(self, change: Change) -> str | None:
        """Say what a change still waits for; None = it may be sent.

        Raises:
            TemporaryError: no answer.
            RefusedError: what it waits for may not be read.
        """
        found = self.look(change) if change.when else {}
        missing = differing(change.when, found or {})
        if missing:
            asked = ", ".join(f"{p} = {change.when[p]}" for p in missing)
            return f"{change.target.kind} {change.target.name} does not show {asked}"
        if change.vacant:
            pods = pods_on(change.vacant, self._cluster)
            gpus = allocated_gpus(pods, self._cluster)
            holding = [p for p in pods if gpus[uid(p)]]
            if holding:
                return f"pods hold GPUs of {change.vacant}: {_named(holding)}"
        return None

    def rehearse(self, changes: Sequence[Change]) -> Reason | None:
        """Send all changes as a server-side dry run; return the first refusal.

        Those that depend on others before them, or wait for what these bring about, cannot be
        judged alone: the first refusal of the writes themselves takes back what was done.

        Raises:
            TemporaryError: a disruption budget, or the API's own limit, allows it later.
        """
        for change in changes:
            if change.depends or change.when:
                continue
            try:
                answer = self.way(change).send(change, dry_run=True)
            except FallowError as error:
                return Reason("dry run", error.message)
            if answer.verdict == "throttled":
                raise TemporaryError(said(answer, change))
            if not answer.ok:
                return Reason("dry run", said(answer, change))
        return None

    def send(self, told: Told, changes: Sequence[Change]) -> Stopped | None:
        """Send an action's changes that were not sent yet; None = all of them took.

        What was refused did not happen: it is sent once more where the process died before it
        could go on from there.
        """
        skip = told.writes.took | set(told.writes.open)
        return self._send(told, changes, (words.SENDING, words.SENT), skip)

    def unsend(self, told: Told, changes: Sequence[Change], skip: set[int]) -> Stopped | None:
        """Send the changes of its undo, except some; None = all of them took."""
        return self._send(told, changes, (words.UNSENDING, words.UNSENT), skip)

    def _send(
        self, told: Told, changes: Sequence[Change], rows: tuple[str, str], skip: set[int]
    ) -> Stopped | None:
        versions: dict[str, Mapping[str, Any]] = {}
        for number, change in enumerate(changes):
            if number in skip:
                continue
            if change.path.endswith(EVICTION) and self._is_evicted(told, number, change, rows[1]):
                continue
            stopped = self._send_change(told, number, change, rows, versions)
            if stopped is not None:
                return stopped
        return None

    def _is_evicted(self, told: Told, number: int, change: Change, row: str) -> bool:
        """Tell whether a pod is gone already: one of its name may run elsewhere by now."""
        how = state(change, self.look(change))
        if how == "becomes":
            document = {"change": number, "code": 0, "why": GONE}
            self._record.append(row, told.action.id, document)
        return how == "becomes"

    def _send_change(
        self,
        told: Told,
        number: int,
        change: Change,
        rows: tuple[str, str],
        versions: dict[str, Mapping[str, Any]],
    ) -> Stopped | None:
        """Send one change, again where only its object's version is another by now."""
        action, undoing = told.action.id, rows[0] == words.UNSENDING
        mine = undoing or change.target.uid in versions
        for left in range(TRIES - 1, -1, -1):
            why = self._halted()
            if why:
                return Stopped(number, "halted", why[0])
            if change.when or change.vacant:
                late = self.waits(change)
                if late:
                    return Stopped(number, "waiting", Reason("waiting", late))
                versions[change.target.uid] = self.look(change) or {}
                mine = True
            self._pulse(f"{rows[0]} {number}")
            self._record.append(rows[0], action, {"change": number})
            self._pulse(f"journalled {rows[0]} {number}")
            answer = self._one(fresh(change, versions.get(change.target.uid)))
            self._pulse(f"answered {number}")
            if answer.verdict == "away":
                return Stopped(number, "away", Reason("no answer", answer.reason))
            if left and mine and answer.cause == VERSION:
                found = self._read_again(change)
                if found is not None:
                    # It did not happen, for sure: the next row says that it is sent once more.
                    document = {"change": number, "why": said(answer)}
                    document |= {"undo": True} if undoing else {}
                    self._record.append(words.WITHDRAWN, action, document)
                    self._pulse(f"read again {number}")
                    versions[change.target.uid] = found
                    continue
            if answer.verdict == "gone" and change.path.endswith(EVICTION):
                document = {"change": number, "code": 0, "why": GONE}
                self._record.append(rows[1], action, document)
                return None
            self._record.append(rows[1], action, _document(number, answer))
            self._pulse(f"journalled {rows[1]} {number}")
            if not answer.ok:
                text = said(answer, change) + self._next_step(answer, change, action, rows[0])
                return Stopped(number, answer.verdict, Reason(answer.verdict, text))
            _remember(versions, answer)
            return None
        raise AssertionError(TRIES)

    def _read_again(self, change: Change) -> Mapping[str, Any] | None:
        """Return the object if it shows what the change is to find; None = not, or not known."""
        try:
            found = self.look(change)
        except FallowError:
            return None
        return found if state(change, found) == "was" else None

    def _next_step(self, answer: Answer, change: Change, action: str, row: str) -> str:
        """Say what to do about a conflict that remains."""
        if answer.verdict != "conflict":
            return ""
        if row == words.SENDING:
            return "; the next turn reads it again and decides anew"
        if self._read_again(change) is not None:
            return f"; what was left still stands, so try again: fallow undo {action}"
        return f"; that change stays, and what it was before is in: fallow actions {action}"

    def _one(self, change: Change) -> Answer:
        try:
            return self.way(change).send(change, dry_run=False)
        except TemporaryError as error:
            return Answer("away", 0, reason=error.message)


def _named(pods: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted(f"{namespace(p)}/{name(p)}" for p in pods)[:3])


def said(answer: Answer, change: Change | None = None) -> str:
    """Return why an answer is no success, with whom it conflicts; of an eviction, whose it is."""
    why = answer.reason or f"HTTP {answer.code}"
    if change is not None and change.path.endswith(EVICTION):
        why = f"pod {change.target.namespace}/{change.target.name}: {why}"
    return f"{why} (field manager {answer.manager})" if answer.manager else why


def _remember(versions: dict[str, Mapping[str, Any]], answer: Answer) -> None:
    """Keep what version an object has now: the next change of it carries that."""
    uid = ((answer.object or {}).get("metadata") or {}).get("uid")
    if uid and answer.object is not None:
        versions[uid] = answer.object


def _document(number: int, answer: Answer) -> dict[str, Any]:
    document: dict[str, Any] = {"change": number, "code": answer.code}
    if not answer.ok:
        document |= {"verdict": answer.verdict, "why": said(answer)}
    meta = (answer.object or {}).get("metadata") or {}
    if meta.get("resourceVersion"):
        document["version"] = meta["resourceVersion"]
    return document
