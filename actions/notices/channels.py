"""Deliver notices: which channel notifies whom, when not, in one digest, and what proves it.

A label or an annotation names a channel of the settings, never an address: a person who may label a
workload must not be able to make Fallow send to an unknown address.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from actions.loop.protocols import Notice, NoticeProof
from actions.notices.apprise_delivery import deliver_text, open_service
from fallow.quiet_hours import parse_quiet_hours
from fallow.settings.actions import Channel, NoticesSettings
from fallow.texts import make_printable

Deliver = Callable[[Channel, str, str, float], str | None]
"""(channel, title, text, timeout) -> why it was not delivered, None = it was."""


class NoticeProgress(msgspec.Struct):
    """The state of one notice so far."""

    delivered: list[str] = []
    failed: list[str] = []
    waits_until: datetime | None = None


class ChannelNotifier:
    """The notifier of the settings. Tests inject `deliver`; `closing` returns the last line."""

    def __init__(
        self,
        settings: NoticesSettings,
        deliver: Deliver | None = None,
        closing: Callable[[], str] = str,
    ) -> None:
        self._settings, self._closing = settings, closing
        self._deliver = deliver or deliver_by_apprise
        self._last: dict[str, datetime] = {}

    def tell(self, notices: Sequence[Notice], now: datetime) -> list[NoticeProof]:
        """Deliver notices, one digest per channel; return the result of each.

        A notice is proved when at least one of its channels accepted it.
        """
        progress: list[NoticeProgress] = [NoticeProgress() for _ in notices]
        by_channel: dict[str, list[int]] = defaultdict(list)
        for number, notice in enumerate(notices):
            names = self._names(notice)
            if not names:
                progress[number].failed.append("no recipient: set notices.default")
            for name in names:
                by_channel[name].append(number)
        for name, numbers in by_channel.items():
            self._digest(name, numbers, notices, progress, now)
        return [
            NoticeProof(
                notice,
                delivered=tuple(state.delivered),
                failed=tuple(state.failed),
                waits_until=None if state.delivered else state.waits_until,
            )
            for notice, state in zip(notices, progress, strict=True)
        ]

    def _names(self, notice: Notice) -> tuple[str, ...]:
        settings = self._settings
        if notice.operators:
            return tuple(settings.operators)
        if notice.channels:
            return notice.channels
        return tuple(settings.owners.get(notice.owner or "", settings.default))

    def _digest(
        self,
        name: str,
        numbers: Sequence[int],
        notices: Sequence[Notice],
        progress: list[NoticeProgress],
        now: datetime,
    ) -> None:
        channel = self._settings.channels.get(name)
        if channel is None:
            legal = ", ".join(self._settings.channels) or "none"
            for number in numbers:
                progress[number].failed.append(f"no channel {name!r} (legal: {legal})")
            return
        urgent = [n for n in numbers if notices[n].operators]
        waiting = [n for n in numbers if not notices[n].operators]
        until = self._quiet(name, channel, now)
        limit = self._settings.most_lines
        sent = urgent if until is not None else [*urgent, *waiting[:limit]]
        for number in set(waiting) - set(sent):
            progress[number].waits_until = until or now + self._settings.least_between
        if not sent:
            return
        title, text = build_digest([notices[n] for n in sent])
        if closing := self._closing():
            text = f"{text}\n\n{closing}"
        timeout = self._settings.timeout.total_seconds()
        why = self._deliver(channel, title, text, timeout)
        if why is None and set(sent) - set(urgent):
            self._last[name] = now
        for number in sent:
            if why is None:
                progress[number].delivered.append(name)
            else:
                progress[number].failed.append(f"{name}: {why}")

    def _quiet(self, name: str, channel: Channel, now: datetime) -> datetime | None:
        """Return until when a channel does not notify owners; None = it may notify them now."""
        ends = [
            end for text in channel.quiet if (end := parse_quiet_hours(text).until(now)) is not None
        ]
        last = self._last.get(name)
        if last is not None and now - last < self._settings.least_between:
            ends.append(last + self._settings.least_between)
        return max(ends, default=None)


def build_digest(notices: Sequence[Notice]) -> tuple[str, str]:
    """Return the title and the text of one message about all of these notices."""
    if len(notices) == 1:
        title = "Fallow: " + notices[0].text.partition("\n")[0][:120]
    else:
        title = f"Fallow: {len(notices)} findings to check"
    return title, "\n\n".join(make_printable(notice.text, also="\n") for notice in notices)


def deliver_by_apprise(channel: Channel, title: str, text: str, timeout: float) -> str | None:
    """Deliver by the channel's Apprise URL, which is never printed: it contains the password."""
    service = open_service(channel.url.get_secret_value())
    if service is None:
        return "its url is no Apprise URL"
    attempt = deliver_text(service, title, text, timeout)
    return None if attempt.is_accepted else attempt.message
