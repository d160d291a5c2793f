"""Produce due reports and send each to each destination at most once, despite any kill.

    with Outbox.open(outbox_path(settings)) as outbox:
        Deliveries(settings, warehouse, outbox, clock=clock).turn()

Mail and chats cannot report what they have received. So a delivery is `sending` on disk before its
first byte is sent. A delivery that is still `sending` when no process sends is `unknown`: it is not
sent again, and the log reports it. A bucket can report what it has: the same delivery is repeated
and stays one object.
"""

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal

import msgspec

from actions.notices.apprise_delivery import DeliveryAttempt
from fallow.errors import FallowError
from fallow.protocols import Views
from fallow.settings import Settings
from fallow.settings.reports import Schedule
from fallow.window import Window
from runtime.operations.acting.journal_anchor import read_anchor_line
from runtime.operations.answers import reports
from runtime.operations.answers.reports import Report
from runtime.service.delivery import destinations
from runtime.service.delivery.outbox import Delivery, Outbox

log = logging.getLogger("fallow.reports")

LONGEST_PAUSE = timedelta(hours=1)
"""Time between two attempts."""
HandOver = Callable[[Settings, Delivery, Report, str], DeliveryAttempt]


class Deliveries:
    """Sends reports. `produce`, `hand` and the clock are injected by tests.

    `on_result(result)` is called with one of `outbox.RESULTS` for each attempt,
    `on_backlog(waiting, oldest_s)` after each turn.
    """

    def __init__(
        self,
        settings: Settings,
        views: Views,
        outbox: Outbox,
        *,
        clock: Callable[[], datetime],
        on_result: Callable[[str], None] = lambda _: None,
        on_backlog: Callable[[int, float], None] = lambda *_: None,
        stop: threading.Event | None = None,
        produce: Callable[..., Report] = reports.produce,
        hand: HandOver = destinations.deliver_report,
    ) -> None:
        self._settings, self._views, self._outbox, self._clock = settings, views, outbox, clock
        self._on_result, self._on_backlog, self._stop = (
            on_result,
            on_backlog,
            stop or threading.Event(),
        )
        self._produce, self._hand = produce, hand
        self._schedules = {s.name: s for s in settings.reports.schedules}

    def turn(self, only: tuple[str, datetime] | None = None) -> bool:
        """Send what waits, or one schedule's due time; False = another process is sending."""
        with self._outbox.alone() as alone:
            if alone:
                self._recover()
                self._drop(only)
                now = self._clock()
                waiting = [d for d in self._outbox.unsettled("waiting") if d.try_at <= now]
                for (name, due), rows in groupby(waiting, lambda d: (d.schedule, d.due)):
                    if self._stop.is_set():
                        break
                    if only not in (None, (name, due)):
                        continue
                    self._send_report(self._schedules[name], due, list(rows))
                self._outbox.tidy(self._clock())
        waiting = self._outbox.unsettled("waiting")
        oldest = min((d.since for d in waiting), default=self._clock())
        age_s = (self._clock() - oldest).total_seconds()
        self._on_backlog(len(waiting), max(age_s, 0.0))  # less than 0: the clock was set back
        return alone

    def _recover(self) -> None:
        """Settle the deliveries that a dead process left unfinished."""
        now = self._clock()
        for delivery in self._outbox.unsettled("sending"):
            if destinations.is_repeatable(self._settings, delivery.destination):
                self._outbox.put_off(delivery, now, now, delivery.message)
                continue
            reason = "whoever sent it ended before the answer: it may have arrived"
            self._settle(delivery, "unknown", reason)

    def _drop(self, requested: tuple[str, datetime] | None) -> None:
        """Give up deliveries that are not requested any more: removed, or a newer report is due."""
        waiting = self._outbox.unsettled("waiting")
        newest = {delivery.schedule: delivery.due for delivery in waiting}  # the newest comes last
        for delivery in waiting:
            schedule = self._schedules.get(delivery.schedule)
            if schedule is None or delivery.destination not in schedule.to:
                self._settle(delivery, "failed", "the settings do not send it there any more")
            elif (
                delivery.due < newest[delivery.schedule]
                and (delivery.schedule, delivery.due) != requested
            ):
                self._settle(
                    delivery, "failed", f"a newer one is due; {delivery.message}".rstrip("; ")
                )

    def _send_report(self, schedule: Schedule, due: datetime, rows: list[Delivery]) -> None:
        """Send one report to waiting destinations, buckets first: chats can name its location."""
        now = self._clock()
        rows.sort(key=lambda d: not destinations.is_repeatable(self._settings, d.destination))
        for delivery in rows:
            self._outbox.tried(delivery, now + self._pause(delivery))
        report = self._get_report(schedule, due, rows)
        if report is None:
            return
        for delivery in rows:
            if self._stop.is_set():  # it still waits: the next process continues
                return
            self._send(delivery, report)

    def _get_report(self, schedule: Schedule, due: datetime, rows: list[Delivery]) -> Report | None:
        """Return the report as it was first produced, or produce it now."""
        stored = self._outbox.report(schedule.name, due)
        if stored is not None:
            return stored
        try:
            report = self._produce(
                self._views,
                self._settings,
                audience=schedule.audience,
                window=Window(due - schedule.window, due),
                fmt=schedule.format,
                team=schedule.team or None,
                now=due,
                focus_version=schedule.focus_version,
            )
        except Exception as error:  # noqa: BLE001  (whatever it is, the others go out)
            reason = str(error) if isinstance(error, FallowError) else type(error).__name__
            log.warning("a report cannot be made", extra={"schedule": schedule.name, "why": reason})
            for delivery in rows:
                self._retry_or_fail(
                    delivery, DeliveryAttempt(False, f"it cannot be made: {reason}", again=True)
                )
            return None
        if line := read_anchor_line(self._settings, self._clock):
            report = msgspec.structs.replace(report, summary=f"{report.summary}\n\n{line}")
        self._outbox.keep(schedule.name, due, report)
        return report

    def _send(self, delivery: Delivery, report: Report) -> None:
        location = self._stored_location(delivery)
        self._outbox.settle(delivery, "sending", self._clock())
        try:
            handed = self._hand(self._settings, delivery, report, location)
        except Exception as error:  # noqa: BLE001  (it is not known how far it came)
            name = type(error).__name__
            handed = DeliveryAttempt(False, f"it may have arrived: {name}", sure=False)
        if not handed.is_accepted:
            self._retry_or_fail(delivery, handed)
            return
        self._settle(delivery, "sent", handed.message)

    def _retry_or_fail(self, delivery: Delivery, handed: DeliveryAttempt) -> None:
        repeatable = destinations.is_repeatable(self._settings, delivery.destination)
        if not handed.sure and not repeatable:
            self._settle(delivery, "unknown", handed.message)
            return
        now = self._clock()
        until = now + self._pause(delivery)
        if not handed.again and handed.sure:
            self._settle(delivery, "failed", handed.message)
        elif until > delivery.since + self._settings.reports.give_up:
            self._settle(
                delivery, "failed", f"given up after {delivery.tries + 1} tries: {handed.message}"
            )
        else:
            self._outbox.put_off(delivery, until, now, handed.message)
            self._on_result("put off")
            extra = {**_log_fields(delivery), "why": handed.message, "try_again": until.isoformat()}
            log.warning("a report was not taken, will try again", extra=extra)

    def _settle(
        self, delivery: Delivery, state: Literal["sent", "failed", "unknown"], reason: str
    ) -> None:
        self._outbox.settle(delivery, state, self._clock(), reason)
        self._on_result(state)
        if state == "sent":
            log.info("report sent", extra={**_log_fields(delivery), "answer": reason})
            return
        then = f"fallow schedule run {delivery.schedule} --due {delivery.due.isoformat()}"
        log.error("report %s", state, extra={**_log_fields(delivery), "why": reason, "again": then})

    def _pause(self, delivery: Delivery) -> timedelta:
        """Return how long to wait after this attempt: twice as long as after the last one."""
        first = self._settings.reports.try_again
        doubled: timedelta = first * 2 ** min(delivery.tries, 12)
        return min(doubled, max(LONGEST_PAUSE, first))

    def _stored_location(self, delivery: Delivery) -> str:
        """Return the location of the report in a bucket, if it is already there."""
        for other in self._outbox.of(delivery.schedule, delivery.due):
            stored = destinations.is_repeatable(self._settings, other.destination)
            if stored and other.state == "sent":
                return other.message
        return ""


def _log_fields(delivery: Delivery) -> dict[str, str]:
    return {
        "schedule": delivery.schedule,
        "due": delivery.due.isoformat(),
        "destination": delivery.destination,
        "tries": str(delivery.tries + 1),
    }
