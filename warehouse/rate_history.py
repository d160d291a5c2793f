"""Decide from when on reported prices hold: hours that have a price keep it.

A price without a time of its own holds for all hours that the ledger has not priced. A price that
says its time (`prices.valid_from`, a dated row of a rate card, a commitment's term) holds from
then on; hours of ended months keep what they had until they are restated.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby, pairwise

import msgspec

from fallow.settings.prices import ALWAYS, SPOT_ESTIMATE
from warehouse.dirty import FAR

UNPRICED = "unpriced"
"""The term of a price for hours of before that no other rate prices."""
SHIPPED = ("rate-card", "derived", SPOT_ESTIMATE)
"""Prices that every home has; of a home they are where its settings have a card or a discount."""
BEGIN = ALWAYS.replace(tzinfo=None)


class RateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table `rate`; naive UTC."""

    source: str
    provider: str
    region: str
    zone: str
    instance_type: str
    gpu_model: str
    cluster: str
    term: str
    valid_from: datetime
    valid_to: datetime | None = None
    as_of: datetime | None = None
    gpu_count: int | None = None
    vcpu: float | None = None
    memory_gib: float | None = None
    node_usd_h: Decimal | None = None
    gpu_usd_h: Decimal | None = None
    cpu_usd_h: Decimal | None = None
    memory_usd_h: Decimal | None = None
    home: str | None = None
    nodes: int | None = None
    reference: str | None = None

    @property
    def offer(self) -> tuple[str, ...]:
        """Return what it prices: rows of one offer are the history of its price."""
        return tuple(str(getattr(self, name)) for name in RateRow.__struct_fields__[:8])

    @property
    def price(self) -> tuple[object, ...]:
        """Return the columns by whose change a price is another one."""
        return (
            self.gpu_count, self.vcpu, self.memory_gib, self.node_usd_h, self.gpu_usd_h,
            self.cpu_usd_h, self.memory_usd_h, self.nodes,
        )  # fmt: skip

    def holds_at(self, at: datetime) -> bool:
        """Return whether a time is within its validity."""
        return self.valid_from <= at < (self.valid_to or FAR)


class PricedHours(msgspec.Struct, frozen=True):
    """From when to when the ledger has prices of a model in a cluster."""

    cluster: str
    gpu_model: str
    first: datetime
    last: datetime

    def fits(self, rate: RateRow) -> bool:
        """Return whether a rate may price them."""
        return rate.cluster in {"", self.cluster} and rate.gpu_model in {"", self.gpu_model}


class RateChange(msgspec.Struct, frozen=True):
    """A time in which a rate is another one than before; `is_first`: it had none."""

    cluster: str
    gpu_model: str
    from_at: datetime
    to_at: datetime
    is_first: bool
    is_waiting: bool
    """The time is of ended months, which keep their price until they are restated."""

    def fits(self, hours: PricedHours) -> bool:
        """Return whether hours with another price could have had this one."""
        is_theirs = self.cluster in {"", hours.cluster}
        return is_theirs and self.gpu_model in {"", hours.gpu_model} and not self.is_first


class History(msgspec.Struct, frozen=True):
    """Rates as they are stored, what that changes, and what waits for a restatement."""

    rows: tuple[RateRow, ...]
    changes: tuple[RateChange, ...]


class Validity(msgspec.Struct, frozen=True):
    """From when on what is reported holds; naive UTC.

    `stated`: the settings say so; None = they do not. `open_from`: priced hours before it keep
    their price, whatever is stated.
    """

    stated: datetime | None
    open_from: datetime
    priced: tuple[PricedHours, ...]

    def find_priced(self, rate: RateRow) -> tuple[datetime, datetime] | None:
        """Return from when to when hours that a rate may price have a price."""
        hours = [priced for priced in self.priced if priced.fits(rate)]
        if not hours:
            return None
        return min(h.first for h in hours), max(h.last for h in hours)


def merge_rates(
    stored: Iterable[RateRow],
    reported: Iterable[RateRow],
    validity: Validity,
    *,
    is_whole: bool = True,
) -> History:
    """Return the stored rates of some sources with what these sources report now.

    `is_whole`: it is all that they say, and an offer that they report no more has ended. Otherwise
    a report adds a change to a price's history, in any order. The same report again changes
    nothing.
    """
    rows: list[RateRow] = []
    changes: list[RateChange] = []
    old, new = _group(stored), _group(reported)
    for offer in sorted({*old, *new}):
        before, now = old.get(offer, []), _end_at_next(new.get(offer, []))
        if offer[-1] == UNPRICED or not (now or is_whole):
            rows += before
            continue
        if not is_whole:
            now = [_end_at_change(row, before) for row in now]
        first = old.get((*offer[:-1], UNPRICED), [])
        joined: list[_Piece] = []
        for piece in _merge_offer(before, now, first, validity, is_whole=is_whole):
            changes += piece.list_changes()
            if piece.is_first and piece.now is not None:
                rows.append(_cut(piece.now, piece.start, piece.end, UNPRICED))
            if joined and _is_continued(joined[-1], piece, is_whole=is_whole):
                after = piece.after if piece.after is piece.now else joined[-1].after
                joined[-1] = msgspec.structs.replace(joined[-1], end=piece.end, after=after)
            else:
                joined.append(piece)
        rows += [_cut(p.after, p.start, p.end, p.after.term) for p in joined if p.after is not None]
    return History(tuple(rows), tuple(changes))


class _Piece(msgspec.Struct, frozen=True):
    """A time in which neither the stored rate nor the reported one changes."""

    start: datetime
    end: datetime
    before: RateRow | None
    now: RateRow | None
    after: RateRow | None
    is_first: bool = False
    is_waiting: bool = False

    def list_changes(self) -> list[RateChange]:
        """Return what it changes, or would change if its month were restated."""
        rate = self.now or self.before
        is_other = self.is_first or self.is_waiting or not _is_same(self.before, self.after)
        if rate is None or not is_other:
            return []
        where = (rate.cluster, rate.gpu_model, self.start, self.end)
        return [RateChange(*where, self.is_first, self.is_waiting)]


def _merge_offer(
    old: list[RateRow],
    new: list[RateRow],
    first: list[RateRow],
    validity: Validity,
    *,
    is_whole: bool,
) -> Iterator[_Piece]:
    rate = (new or old)[0]
    hours = validity.find_priced(rate)
    times = [validity.open_from, *(hours or ()), validity.stated or BEGIN]
    for start, end in pairwise(_list_edges((*old, *new, *first), times)):
        before = _find(old, start)
        now = _find(new, start) or (None if is_whole else before)
        is_priced = hours is not None and hours[0] <= start < hours[1]
        piece = _Piece(start, end, before, now, now)
        if _is_stated(start, before, now, new, validity):
            if is_priced and start < validity.open_from and not _is_same(before, now):
                piece = msgspec.structs.replace(piece, after=before, is_waiting=True)
        elif _is_silent(rate, before, validity):
            piece = msgspec.structs.replace(piece, after=before)
        elif is_priced:
            is_gap = now is not None and before is None and _find(first, start) is None
            is_first = is_gap and rate.source not in SHIPPED
            piece = msgspec.structs.replace(piece, after=before, is_first=is_first)
        yield piece


def _list_edges(rates: Iterable[RateRow], times: Iterable[datetime]) -> list[datetime]:
    edges = {BEGIN, FAR, *times}
    for rate in rates:
        edges |= {rate.valid_from, rate.valid_to or FAR}
    return sorted(edges)


def _is_silent(rate: RateRow, before: RateRow | None, validity: Validity) -> bool:
    """Return whether the settings say from when on they hold, and nothing of times before."""
    return validity.stated is not None and (before is not None or rate.source not in SHIPPED)


def _is_stated(
    at: datetime,
    before: RateRow | None,
    now: RateRow | None,
    new: list[RateRow],
    validity: Validity,
) -> bool:
    """Return whether what is reported names a time: by the settings, a date or a term."""
    if validity.stated is not None and at >= validity.stated:
        return True
    if any(row.nodes for row in new):
        return now is None or before is None
    return now is not None and now.valid_from > BEGIN


def _group(rates: Iterable[RateRow]) -> dict[tuple[str, ...], list[RateRow]]:
    ordered = sorted(rates, key=lambda rate: (rate.offer, rate.valid_from))
    return {offer: list(of) for offer, of in groupby(ordered, lambda rate: rate.offer)}


def _end_at_next(rates: list[RateRow]) -> list[RateRow]:
    ends = [*(later.valid_from for later in rates[1:]), FAR]
    return [
        msgspec.structs.replace(
            rate, valid_to=end if end < (rate.valid_to or FAR) else rate.valid_to
        )
        for rate, end in zip(rates, ends, strict=False)
    ]


def end_rates(rates: Iterable[RateRow]) -> list[RateRow]:
    """Return a source's rates; each ends at the latest where the next one of its offer begins."""
    return [rate for of in _group(rates).values() for rate in _end_at_next(of)]


def _end_at_change(rate: RateRow, stored: list[RateRow]) -> RateRow:
    later = [row.valid_from for row in stored if row.valid_from > rate.valid_from > BEGIN]
    return msgspec.structs.replace(rate, valid_to=min([rate.valid_to or FAR, *later]))


def _find(rates: Sequence[RateRow], at: datetime) -> RateRow | None:
    return next((rate for rate in rates if rate.holds_at(at)), None)


def _is_same(rate: RateRow | None, other: RateRow | None) -> bool:
    if rate is None or other is None:
        return rate is other
    return rate.price == other.price


def _is_continued(piece: _Piece, later: _Piece, *, is_whole: bool) -> bool:
    """Return whether one row has both; of a history each change stays, also to the same price."""
    is_cut = later.after is None or later.after.valid_from < later.start
    return piece.after is later.after or (
        _is_same(piece.after, later.after) and (is_whole or is_cut)
    )


def _cut(rate: RateRow, start: datetime, end: datetime, term: str) -> RateRow:
    return msgspec.structs.replace(
        rate, valid_from=start, valid_to=None if end == FAR else end, term=term
    )
