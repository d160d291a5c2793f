"""Handle people's requests: approve, snooze, keep, undo, resume, freeze. The journal has each name.

The journal is a file of the acting process: a request from another machine goes to that process,
over HTTP (`runtime.service.api`). An undo, a keep and a freeze need the journal and the API server:
they are done and answered also while the warehouse does not answer.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from actions.journal import JournalState, event_types
from actions.journal.warehouse_copy import copy_journal, read_copied_hashes
from actions.loop.actor import approve
from actions.loop.resume_requests import describe_pending_resume, request_resume
from dashboards.figures.policy_actions import count_waiting
from dashboards.figures.query import Filters
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.settings import Settings
from fallow.window import format_duration
from runtime.operations.acting import live_actor, plans
from runtime.operations.acting.keeps import keep_workload
from runtime.operations.acting.live_evidence import NoEvidence
from runtime.operations.analysis import findings

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient
    from actions.journal.log import BrokenLink
    from warehouse.lake import Warehouse

COPY_WAIT_S = 5.0
"""How long a request waits for its rows to be in the warehouse, where pages read them."""
LONGEST = timedelta(days=366)
"""Longest keep or snooze of one request: anything longer belongs in a policy."""


class ActionRequests:
    """People's requests to one process that has the journal open. Threads may share it.

    No warehouse = it is not open yet, because its catalog is away.
    """

    def __init__(
        self,
        settings: Settings,
        warehouse: "Warehouse | None",
        clock: Callable[[], datetime],
        connect: "Callable[[Settings], KubeClient]" = live_actor.connect_cluster,
    ) -> None:
        self._settings, self._warehouse = settings, warehouse
        self._clock, self._connect = clock, connect
        self._copying = threading.Lock()

    def approve(self, request: str, by: str, subject: str = "") -> dict[str, Any]:
        """Approve an action that waits for approval; return `request`, its complete id.

        `subject` is that of the person's sign-in, by which approvers are compared.

        Raises:
            UsageError: no pending action has that name.
            RefusedError: the requester approves it, or a person approves it twice.
        """
        with self._record(by, needed=True) as record:
            return {"request": approve(record, request, by, subject)}

    def snooze(self, finding: str, length: timedelta, by: str) -> dict[str, Any]:
        """Suspend all actions on a finding for a while; return `finding` and `until`.

        Raises:
            UsageError: there is no such finding, or the length is not legal.
        """
        until = self._until(length)
        if self._warehouse is None:
            raise TemporaryError(
                "the warehouse is not open yet: a finding cannot be read",
                hint="try again when /readyz says so",
            )
        finding_id = findings.read(self._warehouse, finding).id
        with self._record(by) as record:
            record.append(event_types.SNOOZED, finding_id, {"until": until.isoformat()})
        return {"finding": finding_id, "until": until}

    def keep(self, workload: str, length: timedelta, by: str) -> dict[str, Any]:
        """Annotate a workload so that nothing stops it for a while; return it and `until`.

        Raises:
            UsageError: it is no Kind/namespace/name, there is none such, or the length is illegal.
            RefusedError: the API does not permit this process to annotate it.
            TemporaryError: the cluster does not respond.
        """
        until = self._until(length)
        cluster = self._connect(self._settings)
        with self._record(by) as record:
            keep_workload(self._settings, record, cluster, workload, until)
        return {"workload": workload, "until": until}

    def undo(self, action: str, by: str) -> dict[str, Any]:
        """Undo an action; return `action` and the `result`.

        Raises:
            UsageError: no action, or several, begin with that text.
            RefusedError: it cannot be undone; the message has the reason.
            TemporaryError: another process is acting, or the cluster does not respond.
        """
        with self._record(by, needed=True) as record:
            actor = live_actor.build_actor(
                self._settings,
                record,
                NoEvidence(),
                cluster=self._connect(self._settings),
                policies=(),
                clock=self._clock,
            )
            outcome = actor.undo(action, by)
        return {"action": outcome.action, "result": outcome.result}

    def resume(self, action: str, by: str) -> dict[str, Any]:
        """Request that a suspended job is resumed once it has room; return `action` and `result`.

        `at` and `requested_by` are those of its first request. Nothing is written to the cluster.

        Raises:
            UsageError: no action, or several, begin with that text, or it suspended no job.
            RefusedError: it is not in force, or a request would change nothing.
            TemporaryError: it is under way.
        """
        with self._record(by, needed=True) as record:
            action_id, request = request_resume(record, action, by, self._clock())
            result = describe_resume(self._settings, record, action_id)
        return {
            "action": action_id,
            "result": result,
            "at": request.at,
            "requested_by": request.by,
        }

    def freeze(self, why: str, by: str) -> dict[str, Any]:
        """Stop everything that acts; return `why`, and the switches that could not be turned on.

        It works whatever the state of the journal and of the cluster is.
        """
        failures: list[str] = []
        cluster: KubeClient | None = None
        try:
            cluster = self._connect(self._settings)
        except FallowError as error:
            failures.append(error.message)
        failures += freeze_all(self._settings, self._clock, cluster, why, by)
        self.copy_soon()
        return {"why": why, "not_switched": failures}

    def _until(self, length: timedelta) -> datetime:
        if length > LONGEST:
            most = format_duration(LONGEST.total_seconds())
            raise UsageError(
                f"{format_duration(length.total_seconds())} is too long",
                hint=f"legal: up to {most}",
            )
        return self._clock() + length

    @contextmanager
    def _record(self, by: str, *, needed: bool = False) -> "Iterator[JournalState]":
        path = live_actor.get_journal_path(self._settings)
        if needed and not path.is_file():
            raise UsageError(
                f"there is no journal at {path}", hint="nothing has acted, or been asked for, yet"
            )
        with live_actor.open_journal(self._settings, self._clock, actor=by) as journal:
            yield JournalState(journal).catch_up()
        self.copy_soon()

    def copy_soon(self) -> None:
        """Copy the journal's rows to the warehouse; wait for it for a while only.

        A catalog that hangs does not hold an answer back. The next turn copies the rows in any
        case.
        """
        copier = threading.Thread(target=self._copy, daemon=True)
        copier.start()
        copier.join(COPY_WAIT_S)

    def _copy(self) -> None:
        if self._warehouse is None or not self._copying.acquire(blocking=False):
            return  # an earlier copy still waits for the catalog
        try:
            with (
                suppress(FallowError),
                live_actor.open_journal(self._settings, self._clock, write=False) as journal,
            ):
                copy_journal(journal, self._warehouse, self._settings.cluster)
        finally:
            self._copying.release()


def describe_resume(settings: Settings, record: JournalState, action: str) -> str:
    """Return what a requested resume waits for, by the policies of the site."""
    try:
        policies = plans.load_policies(settings)
    except UsageError as error:
        return f"it waits for room; which policy resumes it is not known: {error.message}"
    return describe_pending_resume(record, action, policies)


def freeze_all(
    settings: Settings,
    clock: Callable[[], datetime],
    cluster: "KubeClient | None",
    why: str,
    by: str,
) -> list[str]:
    """Turn every switch on that can be; return what could not, as sentences."""
    try:
        with live_actor.open_journal(settings, clock, actor=by) as journal:
            switch = live_actor.kill_switch(settings, JournalState(journal), cluster)
            return switch.freeze(why, journal.actor)
    except FallowError as error:  # a kill switch works whatever the state of the journal is
        switch = live_actor.kill_switch(settings, None, cluster)
        return [error.message, *switch.freeze(why, by or live_actor.get_actor_name(settings))]


def verify_journal(
    settings: Settings, warehouse: "Warehouse", clock: Callable[[], datetime]
) -> "tuple[int, BrokenLink | None, int] | None":
    """Check every link of the journal: rows, the first broken one, how many actions wait.

    None = there is no journal yet.
    """
    if not live_actor.get_journal_path(settings).is_file():
        return None
    with live_actor.open_journal(settings, clock, write=False) as journal:
        # The copy is made first: rows that are written meanwhile do not matter.
        broken = journal.verify(read_copied_hashes(warehouse, settings.cluster))
        rows = len(journal.entries())
    waits = count_waiting(warehouse, Filters(cluster=settings.cluster))
    return rows, broken, waits
