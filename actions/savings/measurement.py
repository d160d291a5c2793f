"""Measure what each action saved, from the later allocations of its devices.

    Each second since the act, until the workload came back, of every device that it had:

    allocated to itself     nothing is saved
    its node is gone        cash      (a cloud's node that is no longer paid for)
    allocated to another    served    (work that ran there)
    not allocated           released  (free)
    of a reservation        sunk      (gone or free, and paid for in any case), also the share of a
                                      node that a commitment pays
    unseen                  unknown   (its telemetry ended: neither saved nor spent)

A node is gone where an event reports its removal, or where the cluster's inventory was read later
without it. The parts of a device add up to its seconds, and no second belongs to two actions: if
the next workload on a device was stopped too, the second belongs to the later stop. The cost of the
restart is subtracted.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_UP, Decimal
from typing import Any

import msgspec

from actions.savings.forecast import (
    HOUR_S,
    IdleStretches,
    SavingForecast,
    compute_expected_rest,
    forecast_savings,
)
from actions.savings.idle_history import IdleHistory
from actions.savings.measured_action import MeasuredAction
from fallow.action_models import LedgerEntry, SavingKind
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.window import Window

SLACK_S = 600.0
"""An allocation that ended at most this long before the act belongs to the act."""
GONE_S = 900.0
"""A device without samples for longer than this is unknown. A node missing from an inventory read
this much later is gone. The value is three samples at five minutes."""
REMOVALS = ("RemovingNode", "DeletingNode")
"""Reasons of the node controller's and the cloud controller's events when a node leaves."""
STARTUP_S = 6 * HOUR_S
"""A restart is attributed to the return of a workload within this time."""
CLOUDS = frozenset({"aws", "gcp", "azure"})
SMALLEST = Decimal("0.00000001")
Row = Mapping[str, Any]


class SavingParts(msgspec.Struct):
    """GPU-hours and dollars of one action, by kind."""

    hours: dict[SavingKind, float] = {}
    usd: dict[SavingKind, Decimal] = {}
    unpriced: bool = False
    shares: list[tuple[float, datetime | None]] = []
    """GPUs that it had, and when later stops took them over."""
    unknown_hours: float = 0.0
    """GPU-hours of devices whose telemetry ended while nothing shows that their node is gone."""
    held_hours: float = 0.0
    held_usd: Decimal = Decimal()
    """GPU-hours and dollars of its devices since the act: the savings are a part of them."""

    def add(self, kind: SavingKind, hours: float, rate: Decimal | None) -> None:
        """Count hours of one kind at a rate per GPU-hour; None = no price."""
        if hours <= 0:
            return
        self.hours[kind] = self.hours.get(kind, 0.0) + hours
        if rate is None:
            self.unpriced = True
        else:
            self.usd[kind] = self.usd.get(kind, Decimal()) + rate * Decimal(repr(hours))


def measure_savings(
    views: Views, actions: Sequence[MeasuredAction], rates: Sequence[Row], now: datetime
) -> list[LedgerEntry]:
    """Return what actions saved so far, an entry per action and kind of dollars.

    `rates`: rows of `warehouse.pricing.derive_device_rates` over the time since the first act.
    """
    if not actions:
        return []
    parts = {a.action: SavingParts() for a in actions}
    ends = {a.action: min((now, *a.ends)) for a in actions}
    by_device = _group_rates(rates)
    for row in _read_devices_after(views, actions, ends):
        _split(parts[row["action"]], row, by_device)
    past = IdleHistory.of(views, actions, now)
    startups = _read_startups(views, actions)
    return [
        entry
        for action in actions
        for entry in _list_entries(
            action,
            parts[action.action],
            (ends[action.action], _find_horizon(action, now)),
            past,
            startups,
        )
    ]


def predict_savings(
    views: Views, actions: Sequence[MeasuredAction], now: datetime
) -> SavingForecast:
    """Return the expected release of all these actions together by now, with its interval.

    It uses only what was known before each act, and nothing later.
    """
    if not actions:
        return SavingForecast(0.0, 0.0, 0.0)
    parts = {a.action: SavingParts() for a in actions}
    ends = {a.action: min((now, *a.ends)) for a in actions}
    for row in _read_devices_after(views, actions, ends):
        _split(parts[row["action"]], row, {})
    past = IdleHistory.of(views, actions, now)
    stretches = []
    for action in actions:
        lengths, ended, age, numbers = past.before(action)
        last = _find_horizon(action, now)
        gpus_and_horizons = tuple(
            (gpus, (min(taken_at or last, last) - action.at).total_seconds() / HOUR_S)
            for gpus, taken_at in parts[action.action].shares
        )
        stretches.append(IdleStretches(lengths, ended, age, numbers, gpus_and_horizons))
    return forecast_savings(stretches)


def _split(parts: SavingParts, row: Row, rates: Mapping[tuple[str, str], list[Row]]) -> None:
    """Assign every second of one stretch of a device since the act to one kind."""
    since, until = _convert_utc(row["since"]), _convert_utc(row["until"])
    length = (until - since).total_seconds()
    share, weight = float(row["kept_share"]), float(row["weight"] or 0.0)
    if row["is_first"]:
        taken_at = row["taken_over"]
        parts.shares.append(
            (float(row["share"]) * weight, _convert_utc(taken_at) if taken_at else None)
        )
    gone_s, unknown_s = _split_absence(row, since, until)
    own_s = min(row["own_s"], share * length)
    served_s = min(row["served_s"], share * length - own_s)
    gone_s = min(gone_s * share, share * length - own_s - served_s)
    unknown_s = min(unknown_s * share, share * length - own_s - served_s - gone_s)
    free_s = share * length - own_s - served_s - gone_s - unknown_s
    parts.unknown_hours += unknown_s * weight / HOUR_S
    prices = rates.get((row["cluster"], row["device"]), [])
    rate = _compute_rate(prices, since, until, weight)
    parts.held_hours += share * length * weight / HOUR_S
    if rate is not None:
        parts.held_usd += rate * Decimal(repr(share * length * weight / HOUR_S))
    sunk = 1.0 if row["capacity_type"] == "reserved" else _compute_committed(prices, since, until)
    gone_kind: SavingKind = "cash" if row["provider"] in CLOUDS else "released"
    split: tuple[tuple[SavingKind, float], ...] = (
        ("served", served_s),
        ("sunk", (gone_s + free_s) * sunk),
        (gone_kind, gone_s * (1 - sunk)),
        ("released", free_s * (1 - sunk)),
    )
    for kind, seconds in split:
        parts.add(kind, seconds * weight / HOUR_S, rate)


def _split_absence(row: Row, since: datetime, until: datetime) -> tuple[float, float]:
    """Return the seconds a device's node was gone, and those its state was unknown before that."""
    gone_at = (
        until if row["gone_at"] is None else min(max(_convert_utc(row["gone_at"]), since), until)
    )
    gone_s = (until - gone_at).total_seconds()
    seen_until = _convert_utc(row["seen_until"]) if row["seen_until"] else since
    silent_s = (gone_at - max(min(seen_until, gone_at), since)).total_seconds()
    end = _convert_utc(row["back"]) if row["gone_at"] is None else gone_at
    return gone_s, silent_s if (end - seen_until).total_seconds() > GONE_S else 0.0


def _list_entries(
    action: MeasuredAction,
    parts: SavingParts,
    until: tuple[datetime, datetime],
    past: IdleHistory,
    startups: Mapping[str, Row],
) -> list[LedgerEntry]:
    """Return the entries of an action; prediction and restart are in the entry of the largest kind.

    `until`: the end of the saving, and of the prediction. The prediction extends to now even if the
    workload came back before: otherwise it would use knowledge of the outcome.
    """
    end, now = until
    kinds = sorted(parts.hours, key=lambda k: (-parts.hours[k], k)) or ["released"]
    predicted = _predict_gpu_hours(action, parts, past, now)
    total = sum(parts.hours.values())
    total_usd = sum(parts.usd.values(), Decimal())
    per_hour = None if parts.unpriced or not total else total_usd / Decimal(repr(total))
    cost, lost = _read_restart(startups.get(action.action))
    entries = []
    for n, kind in enumerate(kinds):
        usd = None if parts.unpriced else parts.usd.get(kind, Decimal())
        entries.append(
            LedgerEntry(
                action=action.action,
                policy=action.policy,
                kind=kind,
                start=action.at,
                end=end,
                predicted_gpu_hours=predicted if n == 0 else 0.0,
                gpu_hours=parts.hours.get(kind, 0.0) - (lost if n == 0 else 0.0),
                predicted_usd=_round_down(
                    None if per_hour is None else per_hour * Decimal(repr(predicted))
                )
                if n == 0
                else Decimal(),
                usd=_round_down(
                    None if usd is None else usd - ((cost or Decimal()) if n == 0 else 0)
                ),
                restart_usd=_round_down(cost) if n == 0 else None,
                is_reversed=action.is_reversed,
                unknown_gpu_hours=parts.unknown_hours if n == 0 else 0.0,
                held_gpu_hours=parts.held_hours if n == 0 else 0.0,
                held_usd=None
                if parts.unpriced
                else _round_up(parts.held_usd if n == 0 else Decimal()),
            )
        )
    return entries


def _read_restart(restart: Row | None) -> tuple[Decimal | None, float]:
    """Return the cost of the restart, in dollars (None = unknown) and GPU-hours."""
    if restart is None:
        return None, 0.0
    return (None if restart["unpriced"] else restart["usd"]), float(restart["gpu_hours"] or 0.0)


def _predict_gpu_hours(
    action: MeasuredAction, parts: SavingParts, past: IdleHistory, now: datetime
) -> float:
    """Return the GPU-hours that idle times of the past let expect until now."""
    lengths, ended, age, _ = past.before(action)
    remaining: dict[datetime, float] = {}
    predicted = 0.0
    for gpus, taken_at in parts.shares:
        last = now if taken_at is None else min(taken_at, now)
        if last not in remaining:
            within = (last - action.at).total_seconds() / HOUR_S
            remaining[last] = compute_expected_rest(lengths, ended, age, within)
        predicted += gpus * remaining[last]
    return predicted


def _read_devices_after(
    views: Views, actions: Sequence[MeasuredAction], ends: Mapping[str, datetime]
) -> list[dict[str, Any]]:
    documents = [
        {**_to_names(a), "acted": _format_naive(a.at), "back": _format_naive(ends[a.action])}
        for a in actions
    ]
    parameters = {
        "acts": msgspec.json.encode(documents).decode(),
        "slack_s": SLACK_S,
        "gone_s": GONE_S,
        "removals": list(REMOVALS),
    }
    rows: list[dict[str, Any]] = views.query(_load_sql("after"), parameters).to_pylist()
    return rows


def _read_startups(views: Views, actions: Sequence[MeasuredAction]) -> dict[str, Row]:
    documents = [
        {**_to_names(a), "back": _format_naive(a.returned_at)} for a in actions if a.returned_at
    ]
    if not documents:
        return {}
    parameters = {"acts": msgspec.json.encode(documents).decode(), "within_s": STARTUP_S}
    return {row["action"]: row for row in views.query(_load_sql("startup"), parameters).to_pylist()}


def _group_rates(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    by_device: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_device.setdefault((row["cluster"], row["device"]), []).append(row)
    return by_device


def _compute_rate(
    rows: Sequence[Row], start: datetime, end: datetime, weight: float
) -> Decimal | None:
    """Return the mean rate per GPU-hour over a time; None where a part of it has no price."""
    total, seconds = Decimal(), 0.0
    for row, length in _list_overlaps(rows, start, end):
        if row["loaded_usd_h"] is not None:
            total += Decimal(str(row["loaded_usd_h"])) * Decimal(repr(length))
            seconds += length
    if not seconds or not weight:
        return None
    return total / Decimal(repr(seconds)) / Decimal(repr(weight))


def _compute_committed(rows: Sequence[Row], start: datetime, end: datetime) -> float:
    """Return the mean share of a device that commitments pay in a time.

    Of a node that is gone it is the share that they paid last. Nodes that a commitment is shared
    by save the rest only: of two nodes and a commitment for one, half of each.
    """

    def get_share(row: Row) -> float:
        return float(row.get("committed") or 0)

    parts = [(get_share(row) * length, length) for row, length in _list_overlaps(rows, start, end)]
    if parts:
        return sum(part for part, _ in parts) / sum(length for _, length in parts)
    before = [row for row in rows if _convert_utc(row["to_at"]) <= start]
    return get_share(max(before, key=lambda row: _convert_utc(row["from_at"]))) if before else 0.0


def _list_overlaps(
    rows: Sequence[Row], start: datetime, end: datetime
) -> Iterator[tuple[Row, float]]:
    """Yield the rates that hold in a time, each with its seconds in it."""
    for row in rows:
        since, until = _convert_utc(row["from_at"]), _convert_utc(row["to_at"])
        length = (min(until, end) - max(since, start)).total_seconds()
        if length > 0:
            yield row, length


def get_window(actions: Sequence[MeasuredAction], now: datetime) -> Window:
    """Return the time over which rates are needed."""
    return Window(min(a.at for a in actions) - timedelta(seconds=SLACK_S), now)


def _to_names(action: MeasuredAction) -> dict[str, str]:
    names = ("action", "cluster", "namespace", "workload_kind", "workload")
    return {name: getattr(action, name) for name in names}


def _format_naive(timestamp: datetime | None) -> str | None:
    return None if timestamp is None else timestamp.astimezone(UTC).replace(tzinfo=None).isoformat()


def _convert_utc(timestamp: datetime) -> datetime:
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def _round_down(usd: Decimal | None) -> Decimal | None:
    return None if usd is None else usd.quantize(SMALLEST, ROUND_DOWN)


def _round_up(usd: Decimal) -> Decimal:
    return usd.quantize(SMALLEST, ROUND_UP)


def _find_horizon(action: MeasuredAction, now: datetime) -> datetime:
    return now if action.until is None else min(action.until, now)


def _load_sql(name: str) -> str:
    return read_text("actions.savings", f"{name}.sql")
