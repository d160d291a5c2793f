"""Deliver notices: who is told by which channel, when not, in one digest, and what proves it.

A label or an annotation names a channel of the settings, never an address: whoever may label a
workload must not be able to make Fallow call a stranger.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from actions.loop.seams import Notice, Proof
from actions.notices.handing import hand, opened
from fallow.action_settings import Channel, NoticesSettings
from fallow.quiet_hours import parse

Deliver = Callable[[Channel, str, str, float], str | None]
"""(channel, title, text, timeout) -> why it was not delivered, None = it was."""


class Sent(msgspec.Struct):
    """What became of one notice so far."""

    delivered: list[str] = []
    failed: list[str] = []
    waits_until: datetime | None = None


class Channels:
    """The notifier of the settings. `deliver` is injected by tests."""

    def __init__(self, settings: NoticesSettings, deliver: Deliver | None = None) -> None:
        self._settings = settings
        self._deliver = deliver or by_apprise
        self._last: dict[str, datetime] = {}

    def tell(self, notices: Sequence[Notice], now: datetime) -> list[Proof]:
        """Deliver notices, one digest per channel; return what came of each.

        A notice is proved when at least one of its channels took it.
        """
        outcome: list[Sent] = [Sent() for _ in notices]
        by_channel: dict[str, list[int]] = defaultdict(list)
        for number, notice in enumerate(notices):
            names = self._names(notice)
            if not names:
                outcome[number].failed.append("nobody to tell: set notices.default")
            for name in names:
                by_channel[name].append(number)
        for name, numbers in by_channel.items():
            self._digest(name, numbers, notices, outcome, now)
        return [
            Proof(
                notice,
                delivered=tuple(sent.delivered),
                failed=tuple(sent.failed),
                waits_until=None if sent.delivered else sent.waits_until,
            )
            for notice, sent in zip(notices, outcome, strict=True)
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
        outcome: list[Sent],
        now: datetime,
    ) -> None:
        channel = self._settings.channels.get(name)
        if channel is None:
            legal = ", ".join(self._settings.channels) or "none"
            for number in numbers:
                outcome[number].failed.append(f"no channel {name!r} (legal: {legal})")
            return
        urgent = [n for n in numbers if notices[n].operators]
        later = [n for n in numbers if not notices[n].operators]
        until = self._quiet(name, channel, now)
        most = self._settings.most_lines
        chosen = urgent if until is not None else [*urgent, *later[:most]]
        for number in set(later) - set(chosen):
            outcome[number].waits_until = until or now + self._settings.least_between
        if not chosen:
            return
        title, text = digest([notices[n] for n in chosen])
        timeout = self._settings.timeout.total_seconds()
        why = self._deliver(channel, title, text, timeout)
        if why is None and set(chosen) - set(urgent):
            self._last[name] = now
        for number in chosen:
            if why is None:
                outcome[number].delivered.append(name)
            else:
                outcome[number].failed.append(f"{name}: {why}")

    def _quiet(self, name: str, channel: Channel, now: datetime) -> datetime | None:
        """Return until when owners are not told by a channel, None = they may be told now."""
        ends = [end for text in channel.quiet if (end := parse(text).until(now)) is not None]
        last = self._last.get(name)
        if last is not None and now - last < self._settings.least_between:
            ends.append(last + self._settings.least_between)
        return max(ends, default=None)


def digest(notices: Sequence[Notice]) -> tuple[str, str]:
    """Return the title and the text of one message about all of these."""
    if len(notices) == 1:
        title = "Fallow: " + notices[0].text.partition("\n")[0][:120]
    else:
        title = f"Fallow: {len(notices)} things to look at"
    return title, "\n\n".join(_plain(notice.text) for notice in notices)


def by_apprise(channel: Channel, title: str, text: str, timeout: float) -> str | None:
    """Deliver by the channel's Apprise URL, which is never printed: it holds the password."""
    made = opened(channel.url.get_secret_value())
    if made is None:
        return "its url is no Apprise URL"
    handed = hand(made, title, text, timeout)
    return None if handed.taken else handed.said


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
