"""Make what is due, and send it: each report to each destination once, whatever is killed when.

    with Book.open(path_of(settings)) as book:
        Deliveries(settings, warehouse, book, clock=clock).turn()

Mail and chats cannot be asked what they have. So a delivery is `sending` on disk before its first
byte leaves, and one that is found so, when nobody sends, is `unknown`: it is not sent again, and
somebody is told. A bucket can be asked: there the same delivery is made again and stays one object.
"""

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal

from actions.notices.handing import Handed
from fallow.errors import FallowError
from fallow.report_settings import Schedule
from fallow.seams import Views
from fallow.settings import Settings
from fallow.window import Window
from runtime import reporting
from runtime.delivery import destinations
from runtime.delivery.book import Book, Delivery
from runtime.reporting import Report

log = logging.getLogger("fallow.reports")

LONGEST = timedelta(hours=1)
"""Between two tries."""
Hand = Callable[[Settings, Delivery, Report, str], Handed]


class Deliveries:
    """Reports on their way. `produce`, `hand` and the clock are injected by tests.

    `told(result)` is called with one of `book.RESULTS` for each try, `left(waiting, oldest_s)`
    after each turn.
    """

    def __init__(
        self,
        settings: Settings,
        views: Views,
        book: Book,
        *,
        clock: Callable[[], datetime],
        told: Callable[[str], None] = lambda _: None,
        left: Callable[[int, float], None] = lambda *_: None,
        stop: threading.Event | None = None,
        produce: Callable[..., Report] = reporting.produce,
        hand: Hand = destinations.hand,
    ) -> None:
        self._settings, self._views, self._book, self._clock = settings, views, book, clock
        self._told, self._left, self._stop = told, left, stop or threading.Event()
        self._produce, self._hand = produce, hand
        self._schedules = {s.name: s for s in settings.reports.schedules}

    def turn(self, only: tuple[str, datetime] | None = None) -> bool:
        """Send what waits, or one schedule's due moment; False = another process is sending."""
        with self._book.alone() as alone:
            if alone:
                self._recover()
                self._drop(only)
                now = self._clock()
                waiting = [d for d in self._book.unsettled("waiting") if d.try_at <= now]
                for (name, due), rows in groupby(waiting, lambda d: (d.schedule, d.due)):
                    if self._stop.is_set():
                        break
                    if only not in (None, (name, due)):
                        continue
                    self._one(self._schedules[name], due, list(rows))
                self._book.tidy(self._clock())
        waiting = self._book.unsettled("waiting")
        oldest = min((d.since for d in waiting), default=self._clock())
        self._left(len(waiting), (self._clock() - oldest).total_seconds())
        return alone

    def _recover(self) -> None:
        """Settle what a process that is no more left half-done."""
        now = self._clock()
        for one in self._book.unsettled("sending"):
            if destinations.repeatable(self._settings, one.destination):
                self._book.put_off(one, now, now, one.said)
                continue
            said = "whoever sent it ended before the answer: it may have arrived"
            self._settled(one, "unknown", said)

    def _drop(self, asked: tuple[str, datetime] | None) -> None:
        """Give up what is asked for no more: gone from the settings, or a newer one is due."""
        waiting = self._book.unsettled("waiting")
        newest = {one.schedule: one.due for one in waiting}  # the newest comes last
        for one in waiting:
            schedule = self._schedules.get(one.schedule)
            if schedule is None or one.destination not in schedule.to:
                self._settled(one, "failed", "the settings do not send it there any more")
            elif one.due < newest[one.schedule] and (one.schedule, one.due) != asked:
                self._settled(one, "failed", f"a newer one is due; {one.said}".rstrip("; "))

    def _one(self, schedule: Schedule, due: datetime, rows: list[Delivery]) -> None:
        """Send one report to those who wait for it, buckets first: chats can say where it lies."""
        now = self._clock()
        rows.sort(key=lambda d: not destinations.repeatable(self._settings, d.destination))
        for one in rows:
            self._book.tried(one, now + self._pause(one))
        report = self._made(schedule, due, rows)
        if report is None:
            return
        for one in rows:
            if self._stop.is_set():  # it waits: the next process goes on
                return
            self._send(one, report)

    def _made(self, schedule: Schedule, due: datetime, rows: list[Delivery]) -> Report | None:
        """Return the report as it was made first, or make it now."""
        kept = self._book.report(schedule.name, due)
        if kept is not None:
            return kept
        try:
            made = self._produce(
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
            said = str(error) if isinstance(error, FallowError) else type(error).__name__
            log.warning("a report cannot be made", extra={"schedule": schedule.name, "why": said})
            for one in rows:
                self._not_taken(one, Handed(False, f"it cannot be made: {said}", again=True))
            return None
        self._book.keep(schedule.name, due, made)
        return made

    def _send(self, one: Delivery, report: Report) -> None:
        lies = self._lies(one)
        self._book.settle(one, "sending", self._clock())
        try:
            handed = self._hand(self._settings, one, report, lies)
        except Exception as error:  # noqa: BLE001  (it is not known how far it came)
            name = type(error).__name__
            handed = Handed(False, f"it may have arrived: {name}", sure=False)
        if not handed.taken:
            self._not_taken(one, handed)
            return
        self._settled(one, "sent", handed.said)

    def _not_taken(self, one: Delivery, handed: Handed) -> None:
        repeatable = destinations.repeatable(self._settings, one.destination)
        if not handed.sure and not repeatable:
            self._settled(one, "unknown", handed.said)
            return
        now = self._clock()
        until = now + self._pause(one)
        if not handed.again and handed.sure:
            self._settled(one, "failed", handed.said)
        elif until > one.since + self._settings.reports.give_up:
            self._settled(one, "failed", f"given up after {one.tries + 1} tries: {handed.said}")
        else:
            self._book.put_off(one, until, now, handed.said)
            self._told("put off")
            extra = {**_named(one), "why": handed.said, "try_again": until.isoformat()}
            log.warning("a report was not taken, will try again", extra=extra)

    def _settled(
        self, one: Delivery, state: Literal["sent", "failed", "unknown"], said: str
    ) -> None:
        self._book.settle(one, state, self._clock(), said)
        self._told(state)
        if state == "sent":
            log.info("report sent", extra={**_named(one), "said": said})
            return
        then = f"fallow schedule run {one.schedule} --due {one.due.isoformat()}"
        log.error("report %s", state, extra={**_named(one), "why": said, "again": then})

    def _pause(self, one: Delivery) -> timedelta:
        """Return how long to wait after this try: twice as long as after the last."""
        first = self._settings.reports.try_again
        doubled: timedelta = first * 2 ** min(one.tries, 12)
        return min(doubled, max(LONGEST, first))

    def _lies(self, one: Delivery) -> str:
        """Say where a bucket has the report already."""
        for other in self._book.of(one.schedule, one.due):
            stored = destinations.repeatable(self._settings, other.destination)
            if stored and other.state == "sent":
                return other.said
        return ""


def _named(one: Delivery) -> dict[str, str]:
    return {
        "schedule": one.schedule,
        "due": one.due.isoformat(),
        "destination": one.destination,
        "tries": str(one.tries + 1),
    }
