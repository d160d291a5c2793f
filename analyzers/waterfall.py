"""The waterfall: every GPU-hour of the bill belongs to at most one recommendation.

    ledger ──► cells (owner x place x state) ──► recommendations take in order ──► what is left

Order: the analyzer's place in `waterfall_order.csv` (others after it, by name); confirmed before
suspected; the dearest finding first; a finding's recommendations as it lists them. Together these
save at most the waste that the finding shows, for they may be alternatives. A recommendation's
*gross* is what its claims would get if it were alone, its *marginal* what those before it left.
"""

from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyzers.queries import rows_of, sql
from analyzers.waterfall_cells import CENT_E8, HOUR_US, Cells, Grant, Ints, spend_name, units
from fallow.nouns import Claim, Effort, Evidence, Finding, Recommendation, Saving
from fallow.seams import Views
from fallow.window import Window

_MICRO = Decimal("0.000001")


class Amount(msgspec.Struct, frozen=True):
    """GPU-hours and their dollars; `usd` leaves out what has no price, None = nothing has one."""

    gpu_hours: float
    usd: Decimal | None
    unpriced_gpu_hours: float = 0.0


class Step(msgspec.Struct, frozen=True):
    """One recommendation's turn: what it would save alone, and what it saves on top."""

    finding: str
    analyzer: str
    kind: str
    evidence: Evidence
    number: int
    """Which of the finding's recommendations, from 0."""
    verb: str
    target: str
    saving: Saving
    effort: Effort
    gross: Amount
    marginal: Amount


class Waterfall(msgspec.Struct, frozen=True):
    """The bill of a window, and the steps by which it could fall."""

    bill: Amount
    steps: tuple[Step, ...]
    cells: pa.Table
    """The bill's cells: owner, place, state, gpu_us, usd_e8, priced."""
    grants: pa.Table
    """What was granted: step, cell (row of `cells`), gpu_us, usd_e8 (the saving)."""

    def saved(self, **only: str) -> Amount:
        """Return what the steps save together, of those whose fields are as given."""
        wanted = [n for n, s in enumerate(self.steps) if _is(s, only)]
        mask = np.isin(self.grants["step"].to_numpy(), wanted)
        return _sum(self.grants.filter(pa.array(mask)), self.cells["priced"].to_numpy())

    def by(self, *names: str, named: bool = False) -> list[dict[str, Any]]:
        """Return gpu_hours and usd saved per value of the cells' columns `names`.

        With `named` the values are those of `fallow spend`: what nobody held is `(platform)`'s.
        """
        rows = self.cells.take(self.grants["cell"])
        keys = {name: spend_name(rows, name) if named else rows[name] for name in names}
        table = pa.table({**keys, "gpu_us": self.grants["gpu_us"], "usd_e8": self.grants["usd_e8"]})
        sums = table.group_by(list(names)).aggregate([("gpu_us", "sum"), ("usd_e8", "sum")])
        return [
            {
                **{name: row[name] for name in names},
                "gpu_hours": hours(row["gpu_us_sum"]),
                "usd": dollars(row["usd_e8_sum"]),
            }
            for row in sums.to_pylist()
        ]


def fall(
    views: Views, window: Window, found: Sequence[Finding], cluster: str | None = None
) -> Waterfall:
    """Return the waterfall of findings over the ledger's hours that the window touches."""
    asked = {"since": window.start, "until": window.end, "cluster": cluster}
    return poured(views.query(sql("waterfall_cells"), asked), found)


def poured(cells: pa.Table, found: Sequence[Finding]) -> Waterfall:
    """Return the waterfall of findings over cells (columns of `waterfall_cells.sql`)."""
    books = Cells(cells)
    steps: list[Step] = []
    given: list[Grant] = []
    numbers: list[int] = []
    alone = books.whole()
    for finding in sorted(found, key=_turn):
        shown = _shown(finding)
        for number, advice in enumerate(finding.recommendations):
            if not advice.claims:
                continue
            asked = [(claim, books.matching(claim)) for claim in advice.claims]
            gross = [alone.take(claim, rows=rows) for claim, rows in asked]
            alone.give_back(gross)
            granted = []
            for claim, rows in asked:
                granted.append(books.take(claim, shown, rows))
                shown -= int(granted[-1].gpu_us.sum())
            given += granted
            numbers += [len(steps)] * len(granted)
            steps.append(_step(finding, number, advice, _of(gross, books), _of(granted, books)))
    bill = _amount(books.all_us, books.all_e8, books.priced)
    if bill.usd is not None:  # every digit: the bill is rounded once, where it is shown
        bill = msgspec.structs.replace(bill, usd=Decimal(int(books.all_e8.sum())) / CENT_E8)
    return Waterfall(
        bill=bill,
        steps=tuple(steps),
        cells=books.table,
        grants=_table(given, numbers),
    )


def credited(found: Sequence[Finding], waterfall: Waterfall) -> list[Finding]:
    """Return findings whose recommendations say what they save, gross and marginal."""
    steps = {(step.finding, step.number): step for step in waterfall.steps}
    return [
        msgspec.structs.replace(
            finding,
            recommendations=tuple(
                _credited(advice, steps.get((finding.id, number)))
                for number, advice in enumerate(finding.recommendations)
            ),
        )
        for finding in found
    ]


def clipped(finding: Finding, window: Window) -> Finding:
    """Return a finding that claims only its window's part within another window, evenly."""
    start, end = max(finding.window.start, window.start), min(finding.window.end, window.end)
    part = max(0.0, (end - start).total_seconds()) / finding.window.seconds
    if part >= 1:
        return finding
    return msgspec.structs.replace(
        finding,
        recommendations=tuple(
            msgspec.structs.replace(
                advice, claims=tuple(_part(claim, part) for claim in advice.claims)
            )
            for advice in finding.recommendations
        ),
    )


def place(analyzer: str) -> int:
    """Return an analyzer's place in the order; those that have none come last, by name."""
    return _places().get(analyzer, len(_places()) + 1)


def hours(gpu_us: int) -> float:
    """Return GPU-hours, rounded down to a millionth: sums of them never exceed the bill."""
    return (gpu_us * 1_000_000 // HOUR_US) / 1_000_000


def dollars(usd_e8: int) -> Decimal:
    """Return dollars, rounded down to a millionth."""
    return (Decimal(usd_e8) / CENT_E8).quantize(_MICRO, ROUND_DOWN)


@cache
def _places() -> dict[str, int]:
    return {row["analyzer"]: int(row["place"]) for row in rows_of("waterfall_order")}


def _turn(finding: Finding) -> tuple[Any, ...]:
    return (
        place(finding.analyzer),
        finding.analyzer,
        finding.evidence != "confirmed",
        -(finding.usd or Decimal(0)),
        -finding.gpu_hours,
        finding.id,
    )


def _is(step: Step, only: dict[str, str]) -> bool:
    return all(getattr(step, name) == value for name, value in only.items())


def _step(
    finding: Finding, number: int, advice: Recommendation, gross: Amount, marginal: Amount
) -> Step:
    return Step(
        finding=finding.id,
        analyzer=finding.analyzer,
        kind=finding.kind,
        evidence=finding.evidence,
        number=number,
        verb=advice.verb,
        target=advice.target,
        saving=advice.saving,
        effort=advice.effort,
        gross=gross,
        marginal=marginal,
    )


def _credited(advice: Recommendation, step: Step | None) -> Recommendation:
    if step is None:
        return advice
    return msgspec.structs.replace(
        advice,
        gross_gpu_hours=step.gross.gpu_hours,
        gross_usd=step.gross.usd,
        marginal_gpu_hours=step.marginal.gpu_hours,
        marginal_usd=step.marginal.usd,
    )


def _shown(finding: Finding) -> int:
    """Return the most a finding may save: the waste it shows, or its largest advice's claims."""
    claimed = (sum(units(c.gpu_hours) for c in a.claims) for a in finding.recommendations)
    return max(units(finding.gpu_hours), *claimed, 0)


def _part(claim: Claim, part: float) -> Claim:
    usd = None if claim.usd is None else claim.usd * Decimal(repr(part))
    return msgspec.structs.replace(claim, gpu_hours=claim.gpu_hours * part, usd=usd)


def _of(grants: Sequence[Grant], books: Cells) -> Amount:
    if len(grants) == 1:  # as most have: tens of thousands of tables are not made
        (one,) = grants
        return _amount(one.gpu_us, one.saved, books.priced[one.rows])
    return _sum(_table(grants, [0] * len(grants)), books.priced)


def _sum(granted: pa.Table, priced: npt.NDArray[np.bool_]) -> Amount:
    us, e8 = granted["gpu_us"].to_numpy(), granted["usd_e8"].to_numpy()
    return _amount(us, e8, priced[granted["cell"].to_numpy()])


def _amount(gpu_us: Ints, usd_e8: Ints, priced: npt.NDArray[np.bool_]) -> Amount:
    if priced.all():
        return Amount(hours(int(gpu_us.sum())), dollars(int(usd_e8.sum())))
    known = bool(priced.any())
    return Amount(
        hours(int(gpu_us.sum())),
        dollars(int(usd_e8.sum())) if known else None,
        hours(int(gpu_us[~priced].sum())),
    )


def _table(grants: Sequence[Grant], steps: Sequence[int]) -> pa.Table:
    none = np.empty(0, dtype=np.int64)
    parts = [(np.full(len(g.rows), n), g) for n, g in zip(steps, grants, strict=True)]
    return pa.table(
        {
            "step": np.concatenate([none, *(n for n, _ in parts)]),
            "cell": np.concatenate([none, *(g.rows for _, g in parts)]),
            "gpu_us": np.concatenate([none, *(g.gpu_us for _, g in parts)]),
            "usd_e8": np.concatenate([none, *(g.saved for _, g in parts)]),
        }
    )
