"""Send changes one after the other, each journalled before and after, none twice.

A change whose answer did not come stays open: `reconcile` reads what became of it. What the API
refused did not happen, and the changes after it are not sent.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from actions.cluster.explain import Answer
from actions.cluster.members import gpus, pods_on
from actions.cluster.objects import name, namespace
from actions.journal import Record, Told, words
from actions.loop.pointers import differing, fresh, read_path
from actions.loop.seams import Door, Way
from fallow.acting import Change, Reason
from fallow.errors import FallowError, RefusedError, TemporaryError

Pulse = Callable[[str], None]
"""Called at every step of an action; the tests of crashes stop the process here."""
KUBERNETES = "kubernetes"


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
            holding = [p for p in pods_on(change.vacant, self._cluster) if gpus(p)]
            if holding:
                return f"pods hold GPUs of {change.vacant}: {_named(holding)}"
        return None

    def rehearse(self, changes: Sequence[Change]) -> Reason | None:
        """Send all changes as a server-side dry run; return the first refusal.

        Those that depend on others before them, or wait for what these bring about, cannot be
        judged alone: the first refusal of the writes themselves takes back what was done.
        """
        for change in changes:
            if change.depends or change.when:
                continue
            try:
                answer = self.way(change).send(change, dry_run=True)
            except FallowError as error:
                return Reason("dry run", error.message)
            if not answer.ok:
                return Reason("dry run", said(answer))
        return None

    def send(self, told: Told, changes: Sequence[Change]) -> Stopped | None:
        """Send an action's changes that were not sent yet; None = all of them took."""
        return self._send(told, changes, (words.SENDING, words.SENT), set(told.writes.sending))

    def unsend(self, told: Told, changes: Sequence[Change], skip: set[int]) -> Stopped | None:
        """Send the changes of its undo, except some; None = all of them took."""
        return self._send(told, changes, (words.UNSENDING, words.UNSENT), skip)

    def _send(
        self, told: Told, changes: Sequence[Change], rows: tuple[str, str], skip: set[int]
    ) -> Stopped | None:
        versions: dict[str, Mapping[str, Any]] = {}
        action = told.action.id
        for number, change in enumerate(changes):
            if number in skip:
                continue
            why = self._halted()
            if why:
                return Stopped(number, "halted", why[0])
            if change.when or change.vacant:
                late = self.waits(change)
                if late:
                    return Stopped(number, "waiting", Reason("waiting", late))
                versions[change.target.uid] = self.look(change) or {}
            change = fresh(change, versions.get(change.target.uid))  # noqa: PLW2901
            self._pulse(f"{rows[0]} {number}")
            self._record.append(rows[0], action, {"change": number})
            self._pulse(f"journalled {rows[0]} {number}")
            answer = self._one(change)
            self._pulse(f"answered {number}")
            if answer.verdict == "away":
                return Stopped(number, "away", Reason("no answer", answer.reason))
            self._record.append(rows[1], action, _document(number, answer))
            self._pulse(f"journalled {rows[1]} {number}")
            if not answer.ok:
                return Stopped(number, answer.verdict, Reason(answer.verdict, said(answer)))
            _remember(versions, answer)
        return None

    def _one(self, change: Change) -> Answer:
        try:
            return self.way(change).send(change, dry_run=False)
        except TemporaryError as error:
            return Answer("away", 0, reason=error.message)


def _named(pods: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted(f"{namespace(p)}/{name(p)}" for p in pods)[:3])


def said(answer: Answer) -> str:
    """Return why an answer is no success, with whom it conflicts."""
    why = answer.reason or f"HTTP {answer.code}"
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
