"""The ledger's cells: every GPU-hour in them can be granted once.

Hours are counted in whole GPU-microseconds and money in hundred-millionths of a dollar. So the
granted amounts never exceed the available ones, whatever the grouping.
"""

from collections.abc import Sequence
from copy import copy
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyzers.arrays import Ints
from analyzers.workload_rows import OWNER
from fallow.models import WASTED, Claim, Finding

HOUR_US = 3_600_000_000
CENT_E8 = 100_000_000
"""Units of money in a dollar."""

PLACE = ("pool", "node", "model")

SAME = {"stranded": ("free", "stranded"), "free": ("free", "stranded")}
"""Both are unallocated: the part that no job can use depends on the jobs."""

_NONE: Ints = np.empty(0, dtype=np.int64)
MOST_US = 2**62
_MOST_E8 = Decimal(2**62)


class CellGrant:
    """The grant of one claim: rows of the cells, hours, their cost, and the saving in them."""

    def __init__(self, rows: Ints, gpu_us: Ints, cost: Ints, saved: Ints) -> None:
        self.rows, self.gpu_us, self.cost, self.saved = rows, gpu_us, cost, saved


class LedgerCells:
    """Columns of `waterfall_cells.sql`, and the remainder of each cell."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        self.priced: npt.NDArray[np.bool_] = _read_numbers(table, "priced").astype(bool)
        self.all_us, self.all_e8 = _read_numbers(table, "gpu_us"), _read_numbers(table, "usd_e8")
        self.left_us, self.left_e8 = self.all_us.copy(), self.all_e8.copy()
        self._shared_us: Ints | None = None
        """What is left where the first analyzer takes shares."""
        self._turn_us: Ints | None = None
        self._codes: dict[str, Ints] = {}
        self._numbered: dict[str, dict[Any, int]] = {}
        for name in (*OWNER, *PLACE, "state"):
            column = self.table[name].combine_chunks().dictionary_encode()
            self._codes[name] = column.indices.fill_null(-1).to_numpy(False).astype(np.int64)
            self._numbered[name] = {v: n for n, v in enumerate(column.dictionary.tolist())}
        self._by_owner: dict[tuple[int, ...], Ints] = {}
        owners = np.stack([self._codes[name] for name in OWNER], axis=1)
        if len(owners):
            owner_codes, inverse = np.unique(owners, axis=0, return_inverse=True)
            order = np.argsort(inverse.ravel(), kind="stable")
            edges = np.cumsum(np.bincount(inverse.ravel()))[:-1]
            parts = np.split(order, edges)
            self._by_owner = dict(zip(map(tuple, owner_codes.tolist()), parts, strict=True))

    def matching(self, claim: Claim) -> Ints:
        """Return the rows that a claim covers, in the cells' order."""
        states = [
            self._numbered["state"][name]
            for name in SAME.get(claim.state, (claim.state,))
            if name in self._numbered["state"]
        ]
        conditions = {name: getattr(claim, name) for name in (*OWNER, *PLACE)}
        wanted = {name: value for name, value in conditions.items() if value is not None}
        if not states or any(v not in self._numbered[name] for name, v in wanted.items()):
            return _NONE
        codes = {name: self._numbered[name][value] for name, value in wanted.items()}
        if all(name in codes for name in OWNER):
            rows = self._by_owner.get(tuple(codes[name] for name in OWNER))
            rows = _NONE if rows is None else rows
            codes = {name: code for name, code in codes.items() if name not in OWNER}
        else:
            rows = np.arange(len(self.all_us), dtype=np.int64)
        for name, code in codes.items():
            rows = rows[self._codes[name][rows] == code]
        state_codes = self._codes["state"][rows]
        # This runs for every claim: `isin` would take most of its time.
        mine: npt.NDArray[np.bool_] = state_codes == states[0]
        for other in states[1:]:
            mine |= state_codes == other
        return rows[mine]

    def take(self, claim: Claim, most_us: int = MOST_US, rows: Ints | None = None) -> CellGrant:
        """Take the amount of a claim, up to `most_us`; cells give in proportion to their remainder.

        An analyzer that takes shares of hours in use takes the same share of what those before it
        left, so that their advice for one job never saves all its hours together. The saving is the
        claim's own dollars for the granted part, never more than the cost of these hours; without
        dollars of its own it is their cost. Cells without a price save no dollars. `rows` are the
        matching rows, where known.
        """
        rows = self.matching(claim) if rows is None else rows
        if len(rows) == 1:
            return self._take_one(rows, claim, most_us)
        left, wanted = self.left_us[rows], convert_to_us(claim.gpu_hours)
        total = int(left.sum())
        granted = min(self._share(wanted, claim, rows), most_us, total)
        if granted <= 0:
            return CellGrant(_NONE, _NONE, _NONE, _NONE)
        hours = split_amount(left, granted)
        nonzero = hours > 0
        if not nonzero.all():
            rows, left, hours = rows[nonzero], left[nonzero], hours[nonzero]
        cost = self.left_e8[rows]
        if granted < total:
            part = np.minimum(cost, (cost * (hours / left)).astype(np.int64))
            cost = np.where(hours == left, cost, part)
        worth = int(cost.sum())
        if claim.usd is not None and wanted:
            worth = min(worth, _convert_usd(claim.usd) * granted // wanted)
        self.left_us[rows] -= hours
        self.left_e8[rows] -= cost
        return CellGrant(rows, hours, cost, split_amount(cost, worth))

    def _take_one(self, rows: Ints, claim: Claim, most_us: int) -> CellGrant:
        """Take from one cell, as most claims do: without arrays, which took most of the time."""
        row, wanted = rows[0], convert_to_us(claim.gpu_hours)
        left, money = int(self.left_us[row]), int(self.left_e8[row])
        granted = min(self._share(wanted, claim, rows), most_us, left)
        if granted <= 0:
            return CellGrant(_NONE, _NONE, _NONE, _NONE)
        cost = money if granted == left else min(money, int(money * (granted / left)))
        worth = cost
        if claim.usd is not None and wanted:
            worth = min(worth, _convert_usd(claim.usd) * granted // wanted)
        self.left_us[row] -= granted
        self.left_e8[row] -= cost
        return CellGrant(rows, np.array([granted]), np.array([cost]), np.array([worth]))

    def take_granted(self, finding: Finding) -> None:
        """Take what an earlier waterfall granted to a finding: certain hours, not shares again."""
        turn_us, self._turn_us = self._turn_us, None
        for advice in finding.recommendations:
            for claim in advice.claims:
                self.take(claim)
        self._turn_us = turn_us

    def begin_turn(self, *, takes_hours: bool) -> None:
        """Let the next analyzer take certain hours, or its shares of what is left now."""
        self._turn_us = None if takes_hours else self.left_us.copy()
        if takes_hours or self._shared_us is None:
            self._shared_us = self._turn_us

    def _share(self, wanted: int, claim: Claim, rows: Ints) -> int:
        if self._turn_us is None or self._shared_us is None or claim.state in WASTED:
            return wanted
        whole, left = int(self._shared_us[rows].sum()), int(self._turn_us[rows].sum())
        return wanted if left >= whole else wanted * left // whole

    def whole(self) -> "LedgerCells":
        """Return the same cells with their full amounts."""
        other = copy(self)
        other.left_us, other.left_e8 = self.all_us.copy(), self.all_e8.copy()
        return other

    def give_back(self, grants: Sequence[CellGrant]) -> None:
        """Undo what `take` did."""
        for grant in grants:
            self.left_us[grant.rows] += grant.gpu_us
            self.left_e8[grant.rows] += grant.cost


def convert_to_us(gpu_hours: float) -> int:
    """Return GPU-hours in GPU-microseconds; a value that is no positive number gives 0."""
    if not gpu_hours > 0:
        return 0
    return int(min(gpu_hours * HOUR_US, float(MOST_US)))


def split_amount(have: Ints, amount: int) -> Ints:
    """Split `amount` (at most the sum) in proportion to what each has; whole units, exact sum."""
    total = int(have.sum())
    if amount >= total:
        return have.copy()
    if amount <= 0:
        return np.zeros_like(have)
    parts = np.minimum(have, (have * (amount / total)).astype(np.int64))
    rest = amount - int(parts.sum())
    if not rest:
        return parts
    # Rounding down loses a unit per cell: the first cells with a remainder get it.
    return (
        parts + _fill_cells(rest, have - parts) if rest >= 0 else parts - _fill_cells(-rest, parts)
    )


def _fill_cells(amount: int, room: Ints) -> Ints:
    before = np.cumsum(room) - room
    filled: Ints = np.clip(amount - before, 0, room)
    return filled


def _convert_usd(usd: Decimal) -> int:
    if usd.is_nan() or usd <= 0:
        return 0
    return int(min(usd * CENT_E8, _MOST_E8))


def _read_numbers(table: pa.Table, name: str) -> Ints:
    numbers: Ints = table[name].combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers.copy()
