"""What people ask of the actor: approve, snooze, keep, undo. All of it is in the journal by name.

The journal is a file of the process that acts: whoever asks from another machine asks that
process, over HTTP (`runtime.api`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fallow.errors import FallowError, UsageError
from fallow.settings import Settings
from fallow.window import format_duration
from runtime import acting, findings

if TYPE_CHECKING:
    from actions.cluster.door import Door
    from actions.journal import Record
    from actions.journal.book import Broken
    from warehouse.lake import Warehouse

LONGEST = timedelta(days=366)
"""Nothing is kept or snoozed for longer at a time: what lasts belongs into a policy."""


class People:
    """Requests of people to one process that holds the journal. Threads may share it."""

    def __init__(
        self,
        settings: Settings,
        warehouse: "Warehouse",
        clock: Callable[[], datetime],
        door: "Callable[[Settings], Door]" = acting.door,
    ) -> None:
        self._settings, self._warehouse = settings, warehouse
        self._clock, self._door = clock, door

    def approve(self, request: str, by: str) -> dict[str, Any]:
        """Agree to an action that waits for approval; return `request`, its whole id.

        Raises:
            UsageError: nothing of that name waits.
            RefusedError: whoever asked cannot approve, nor anybody twice.
        """
        from actions.loop.actor import approve  # noqa: PLC0415

        with self._record(by, needed=True) as record:
            return {"request": approve(record, request, by)}

    def snooze(self, finding: str, length: timedelta, by: str) -> dict[str, Any]:
        """Leave a finding alone for a while: nothing acts on it; return `finding` and `until`.

        Raises:
            UsageError: there is no such finding, or the length is not legal.
        """
        from actions.journal import words  # noqa: PLC0415

        until = self._until(length)
        known = findings.read(self._warehouse, finding).id
        with self._record(by) as record:
            record.append(words.SNOOZED, known, {"until": until.isoformat()})
        return {"finding": known, "until": until}

    def keep(self, workload: str, length: timedelta, by: str) -> dict[str, Any]:
        """Annotate a workload so that nothing stops it for a while; return it and `until`.

        Raises:
            UsageError: it is no Kind/namespace/name, there is none such, or the length is illegal.
            RefusedError: the API does not let this process annotate it.
            TemporaryError: the cluster does not answer.
        """
        until = self._until(length)
        door = self._door(self._settings)
        with self._record(by) as record:
            acting.keep(self._settings, record, door, workload, until)
        return {"workload": workload, "until": until}

    def undo(self, action: str, by: str) -> dict[str, Any]:
        """Give back what an action took; return `action` and what came of it, `result`.

        Raises:
            UsageError: no action, or several, begin with that.
            RefusedError: it cannot be undone, and why.
            TemporaryError: another process is acting, or the cluster does not answer.
        """
        with self._record(by, needed=True) as record:
            actor = acting.actor(
                self._settings,
                record,
                acting.NoCluster(),
                door=self._door(self._settings),
                policies=(),
                clock=self._clock,
            )
            outcome = actor.undo(action, by)
        return {"action": outcome.action, "result": outcome.result}

    def _until(self, length: timedelta) -> datetime:
        if length > LONGEST:
            most = format_duration(LONGEST.total_seconds())
            raise UsageError(
                f"{format_duration(length.total_seconds())} is too long",
                hint=f"legal: up to {most}",
            )
        return self._clock() + length

    @contextmanager
    def _record(self, by: str, *, needed: bool = False) -> "Iterator[Record]":
        from actions.journal import Record  # noqa: PLC0415
        from actions.journal.copying import copy  # noqa: PLC0415

        path = acting.journal_path(self._settings)
        if needed and not path.is_file():
            raise UsageError(
                f"there is no journal at {path}", hint="nothing has acted, or been asked for, yet"
            )
        with acting.journal(self._settings, self._clock, actor=by) as opened:
            yield Record(opened).catch_up()
            with suppress(FallowError):  # pages see it now; the next turn copies it anyway
                copy(opened, self._warehouse, self._settings.cluster)


def vouch(
    settings: Settings, warehouse: "Warehouse", clock: Callable[[], datetime]
) -> "tuple[int, Broken | None, int] | None":
    """Check every link of the journal: rows, the first broken one, how many actions wait.

    None = there is no journal yet.
    """
    from actions.journal import Record  # noqa: PLC0415
    from actions.journal.copying import known  # noqa: PLC0415
    from runtime import acting_shown  # noqa: PLC0415

    if not acting.journal_path(settings).is_file():
        return None
    with acting.journal(settings, clock, write=False) as journal:
        # The copy first: rows that are written meanwhile are no loss.
        broken = journal.verify(known(warehouse, settings.cluster))
        rows = len(journal.entries())
        waits = 0 if broken else len(acting_shown.waiting(Record(journal).catch_up()))
    return rows, broken, waits
