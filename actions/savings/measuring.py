"""Measure what each action saved, from who held its devices afterwards.

    seconds since the act, until it came back, of every device that it had held:

    held by itself        nothing is saved
    its node is gone      cash      (a cloud's node that nobody pays for any more)
    held by another       served    (work that ran there)
    held by nobody        released  (free, and nobody took it)
    of a reservation      sunk      (gone or free, and paid for whatever happens)
    unseen                unknown   (its telemetry ended: neither saved nor spent)

A node is gone where an event says that it was removed, or where the cluster's inventory was read
later without it. The parts of a device add up to its seconds, and no second is two actions': where
what came to a device was stopped there too, the later stop has it. What starting again cost is
taken off.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_UP, Decimal
from importlib.resources import files
from typing import Any

import msgspec

from actions.savings.acted import Acted
from actions.savings.forecast import HOUR_S, Forecast, Stretches, expected_rest, forecast
from actions.savings.past import Past
from fallow.acting import LedgerEntry, SavingKind
from fallow.seams import Views
from fallow.window import Window

SLACK_S = 600.0
"""An allocation that ended so shortly before the act is what was acted upon."""
GONE_S = 900.0
"""A device unseen for longer than this is unknown, and a node that the inventory was read so much
later without is gone: three samples at five minutes."""
REMOVALS = ("RemovingNode", "DeletingNode")
"""Reasons of the node controller's and the cloud controller's events when a node leaves."""
STARTUP_S = 6 * HOUR_S
"""Starting again is looked for within so long after it came back."""
CLOUDS = frozenset({"aws", "gcp", "azure"})
SMALLEST = Decimal("0.00000001")
Row = Mapping[str, Any]


class Parts(msgspec.Struct):
    """GPU-hours and dollars of one action, by kind."""

    hours: dict[SavingKind, float] = {}
    usd: dict[SavingKind, Decimal] = {}
    unpriced: bool = False
    held: list[tuple[float, datetime | None]] = []
    """Boards that it had held, and when later stops took them over."""
    unknown_hours: float = 0.0
    """Of boards whose telemetry ended while nothing says that their node is gone."""
    held_hours: float = 0.0
    held_usd: Decimal = Decimal()
    """GPU-hours and dollars of these since: what was saved is a part of them."""

    def add(self, kind: SavingKind, hours: float, rate: Decimal | None) -> None:
        """Count hours of one kind at a rate per GPU-hour; None = no price."""
        if hours <= 0:
            return
        self.hours[kind] = self.hours.get(kind, 0.0) + hours
        if rate is None:
            self.unpriced = True
        else:
            self.usd[kind] = self.usd.get(kind, Decimal()) + rate * Decimal(repr(hours))


def measure(
    views: Views,
    acted: Sequence[Acted],
    rates: Sequence[Row],
    now: datetime,
) -> list[LedgerEntry]:
    """Return what actions saved so far, an entry per action and kind of dollars.

    `rates`: rows of `warehouse.pricing.device_rates` over the time since the first act.
    """
    if not acted:
        return []
    parts = {a.action: Parts() for a in acted}
    ends = {a.action: min((now, *a.ends)) for a in acted}
    by_device = _rates(rates)
    for row in _after(views, acted, ends):
        _split(parts[row["action"]], row, by_device)
    past = Past.of(views, acted, now)
    startups = _startups(views, acted)
    return [
        entry
        for one in acted
        for entry in _entries(
            one,
            parts[one.action],
            (ends[one.action], _horizon(one, now)),
            past,
            startups,
        )
    ]


def predict(views: Views, acted: Sequence[Acted], now: datetime) -> Forecast:
    """Return what all these actions together should have released by now, and within what.

    It rests on what was known before each act, and on nothing that came after.
    """
    if not acted:
        return Forecast(0.0, 0.0, 0.0)
    parts = {a.action: Parts() for a in acted}
    ends = {a.action: min((now, *a.ends)) for a in acted}
    for row in _after(views, acted, ends):
        _split(parts[row["action"]], row, {})
    past = Past.of(views, acted, now)
    found = []
    for one in acted:
        lengths, ended, age, whose = past.before(one)
        last = _horizon(one, now)
        held = tuple(
            (boards, (min(taken or last, last) - one.at).total_seconds() / HOUR_S)
            for boards, taken in parts[one.action].held
        )
        found.append(Stretches(lengths, ended, age, whose, held))
    return forecast(found)


def _split(into: Parts, row: Row, rates: Mapping[tuple[str, str], list[Row]]) -> None:
    """Give every second of one stretch of a device since the act to one kind."""
    since, until = _utc(row["since"]), _utc(row["until"])
    length = (until - since).total_seconds()
    share, weight = float(row["kept"]), float(row["weight"] or 0.0)
    if row["is_first"]:
        taken = row["taken_over"]
        into.held.append((float(row["share"]) * weight, _utc(taken) if taken else None))
    gone, unknown = _absent(row, since, until)
    own = min(row["own_s"], share * length)
    served = min(row["served_s"], share * length - own)
    gone = min(gone * share, share * length - own - served)
    unknown = min(unknown * share, share * length - own - served - gone)
    free = share * length - own - served - gone - unknown
    into.unknown_hours += unknown * weight / HOUR_S
    rate = _rate(rates.get((row["cluster"], row["device"]), []), since, until, weight)
    into.held_hours += share * length * weight / HOUR_S
    if rate is not None:
        into.held_usd += rate * Decimal(repr(share * length * weight / HOUR_S))
    reserved = row["capacity_type"] == "reserved"
    away: SavingKind = "released"
    if reserved:
        away = "sunk"
    elif row["provider"] in CLOUDS:
        away = "cash"
    idle: SavingKind = "sunk" if reserved else "released"
    split: tuple[tuple[SavingKind, float], ...] = (("served", served), (away, gone), (idle, free))
    for kind, seconds in split:
        into.add(kind, seconds * weight / HOUR_S, rate)


def _absent(row: Row, since: datetime, until: datetime) -> tuple[float, float]:
    """Return for how many seconds a device's node was gone, and its state unknown before that."""
    left = until if row["gone_at"] is None else min(max(_utc(row["gone_at"]), since), until)
    gone = (until - left).total_seconds()
    seen = _utc(row["seen_until"]) if row["seen_until"] else since
    silent = (left - max(min(seen, left), since)).total_seconds()
    end = _utc(row["back"]) if row["gone_at"] is None else left
    return gone, silent if (end - seen).total_seconds() > GONE_S else 0.0


def _entries(
    one: Acted,
    parts: Parts,
    until: tuple[datetime, datetime],
    past: Past,
    startups: Mapping[str, Row],
) -> list[LedgerEntry]:
    """Return the entries of an action; prediction and restart go with the largest kind.

    `until`: the end of what was saved, and of what was predicted. The prediction reaches to now
    whether or not the workload came back before: else it would know how it ended.
    """
    end, now = until
    kinds = sorted(parts.hours, key=lambda k: (-parts.hours[k], k)) or ["released"]
    lengths, ended, age, _ = past.before(one)
    rests: dict[datetime, float] = {}
    predicted = 0.0
    for boards, taken in parts.held:
        last = now if taken is None else min(taken, now)
        if last not in rests:
            within = (last - one.at).total_seconds() / HOUR_S
            rests[last] = expected_rest(lengths, ended, age, within)
        predicted += boards * rests[last]
    total = sum(parts.hours.values())
    whole = sum(parts.usd.values(), Decimal())
    per_hour = None if parts.unpriced or not total else whole / Decimal(repr(total))
    restart = startups.get(one.action)
    cost = None if restart is None or restart["unpriced"] else restart["usd"]
    lost = 0.0 if restart is None else float(restart["gpu_hours"] or 0.0)
    entries = []
    for n, kind in enumerate(kinds):
        usd = None if parts.unpriced else parts.usd.get(kind, Decimal())
        entries.append(
            LedgerEntry(
                action=one.action,
                policy=one.policy,
                kind=kind,
                start=one.at,
                end=end,
                predicted_gpu_hours=predicted if n == 0 else 0.0,
                gpu_hours=parts.hours.get(kind, 0.0) - (lost if n == 0 else 0.0),
                predicted_usd=_down(
                    None if per_hour is None else per_hour * Decimal(repr(predicted))
                )
                if n == 0
                else Decimal(),
                usd=_down(None if usd is None else usd - ((cost or Decimal()) if n == 0 else 0)),
                restart_usd=_down(cost) if n == 0 else None,
                regretted=one.regretted,
                unknown_gpu_hours=parts.unknown_hours if n == 0 else 0.0,
                held_gpu_hours=parts.held_hours if n == 0 else 0.0,
                held_usd=None if parts.unpriced else _up(parts.held_usd if n == 0 else Decimal()),
            )
        )
    return entries


def _after(
    views: Views, acted: Sequence[Acted], ends: Mapping[str, datetime]
) -> list[dict[str, Any]]:
    listed = [{**_named(a), "acted": _naive(a.at), "back": _naive(ends[a.action])} for a in acted]
    asked = {
        "acts": msgspec.json.encode(listed).decode(),
        "slack_s": SLACK_S,
        "gone_s": GONE_S,
        "removals": list(REMOVALS),
    }
    rows: list[dict[str, Any]] = views.query(_sql("after"), asked).to_pylist()
    return rows


def _startups(views: Views, acted: Sequence[Acted]) -> dict[str, Row]:
    listed = [{**_named(a), "back": _naive(a.back)} for a in acted if a.back]
    if not listed:
        return {}
    asked = {"acts": msgspec.json.encode(listed).decode(), "within_s": STARTUP_S}
    return {row["action"]: row for row in views.query(_sql("startup"), asked).to_pylist()}


def _rates(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["cluster"], row["device"]), []).append(row)
    return found


def _rate(rows: Sequence[Row], start: datetime, end: datetime, weight: float) -> Decimal | None:
    """Return the mean rate per GPU-hour over a time; None where a part of it has no price."""
    total, seconds = Decimal(), 0.0
    for row in rows:
        since, until = max(_utc(row["from_at"]), start), min(_utc(row["to_at"]), end)
        length = (until - since).total_seconds()
        if length > 0 and row["loaded_usd_h"] is not None:
            total += Decimal(str(row["loaded_usd_h"])) * Decimal(repr(length))
            seconds += length
    if not seconds or not weight:
        return None
    return total / Decimal(repr(seconds)) / Decimal(repr(weight))


def window(acted: Sequence[Acted], now: datetime) -> Window:
    """Return the time over which rates are needed."""
    return Window(min(a.at for a in acted) - timedelta(seconds=SLACK_S), now)


def _named(one: Acted) -> dict[str, str]:
    names = ("action", "cluster", "namespace", "workload_kind", "workload")
    return {name: getattr(one, name) for name in names}


def _naive(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None).isoformat()


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _down(usd: Decimal | None) -> Decimal | None:
    return None if usd is None else usd.quantize(SMALLEST, ROUND_DOWN)


def _up(usd: Decimal) -> Decimal:
    return usd.quantize(SMALLEST, ROUND_UP)


def _horizon(one: Acted, now: datetime) -> datetime:
    return now if one.until is None else min(one.until, now)


def _sql(name: str) -> str:
    return files("actions.savings").joinpath(f"{name}.sql").read_text(encoding="utf-8")
