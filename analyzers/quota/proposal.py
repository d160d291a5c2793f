"""Propose quota moves: only from donors that would have missed little in the past."""

import math

import msgspec
import numpy as np

from analyzers.arrays import Doubles
from analyzers.quota.groups import QuotaGroup
from analyzers.quota.measures import QuotaMeasures
from fallow.settings.capacity import QuotaSettings

KEEP_QUANTILES = (0.9, 0.95, 0.99, 1.0)
"""Quantiles of its own past demand that a donor keeps; the first that its history permits."""
DAY = 24
AHEAD = 7 * DAY
"""Hours after a gift that count: given quota does not return the next day."""


class DonorTrial(msgspec.Struct, frozen=True):
    """The result for a donor if it had given by a rule at every step of its history."""

    keep_quantile: float
    steps: int
    missed_gpu_hours: float
    missed_share: float
    """Share of the demand within the nominal quota that it would have missed."""


class QuotaGift(msgspec.Struct, frozen=True):
    """One donor's part: its nominal quota before and after."""

    column: int
    before: float
    after: float
    trial: DonorTrial


class QuotaProposal(msgspec.Struct, frozen=True):
    """Moves of quota within a group: the sum that donors give equals the sum that receivers get."""

    gifts: tuple[QuotaGift, ...]
    receipts: tuple[tuple[int, float, float], ...]
    """Column, nominal quota before and after."""
    refused: tuple[tuple[int, str], ...]
    """Members with unused quota that keep it, and why."""

    @property
    def gpus(self) -> float:
        """Return how many GPUs of quota move."""
        return sum(g.before - g.after for g in self.gifts)


def backtest_donor(
    demand: Doubles, nominal: Doubles, keep: float, settings: QuotaSettings
) -> DonorTrial:
    """Return the demand missed by giving away all above a quantile of the past's, at each step.

    Each step uses only earlier data. Missed = GPU-hours of demand within the old nominal
    quota, of the
    week after each step, above the remaining nominal quota.
    """
    first, step = settings.least_history_days * DAY, settings.step_days * DAY
    missed = wanted = 0.0
    steps = 0
    for now in range(first, len(demand), step):
        left = _compute_remainder(demand[:now], float(nominal[now - 1]), keep, settings)
        ahead = slice(now, now + AHEAD)
        due = np.minimum(demand[ahead], nominal[ahead])
        missed += float(np.maximum(due - left, 0).sum())
        wanted += float(due.sum())
        steps += 1
    return DonorTrial(keep, steps, round(missed, 6), round(missed / wanted, 6) if wanted else 0.0)


def propose(
    group: QuotaGroup, measures: QuotaMeasures, settings: QuotaSettings
) -> QuotaProposal | None:
    """Return whole GPUs to move from donors that pass their back-test to blocked members.

    No donor falls below the quantile of its demand that it keeps, nor below its present use, and
    none gives more than `max_step` of its nominal quota at once. None = no member needs more,
    or none can give.
    """
    now = group.nominal[-1]
    needs = _count_needs(group, measures)
    if not needs:
        return None
    gifts: list[QuotaGift] = []
    refused: list[tuple[int, str]] = []
    for column in np.argsort(-(now - group.used[-1]), kind="stable"):
        n = int(column)
        if n in needs or now[n] <= group.used[-1, n] + settings.floor_gpus:
            continue
        gift = _offer_gift(group, n, settings)
        if isinstance(gift, str):
            refused.append((n, gift))
        elif gift is not None:
            gifts.append(gift)
    return _match_gifts(group, measures, gifts, needs, tuple(refused))


def _match_gifts(
    group: QuotaGroup,
    measures: QuotaMeasures,
    gifts: list[QuotaGift],
    needs: dict[int, int],
    refused: tuple[tuple[int, str], ...],
) -> QuotaProposal | None:
    now = group.nominal[-1]
    total = min(sum(math.floor(g.before - g.after) for g in gifts), sum(needs.values()))
    if total < 1:
        return QuotaProposal((), (), refused) if refused else None
    matched, left = [], total
    for gift in gifts:
        part = min(left, math.floor(gift.before - gift.after))
        if part:
            matched.append(msgspec.structs.replace(gift, after=gift.before - part))
        left -= part
    receipts, left = [], total
    for n, need in sorted(needs.items(), key=lambda i: (-measures.blocked[:, i[0]].sum(), i[0])):
        part = min(left, need)
        if part:
            receipts.append((n, float(now[n]), float(now[n]) + part))
        left -= part
    return QuotaProposal(tuple(matched), tuple(receipts), refused)


def _count_needs(group: QuotaGroup, measures: QuotaMeasures) -> dict[int, int]:
    """Return GPUs that members lack: median demand in blocked hours above their nominal quota."""
    needs: dict[int, int] = {}
    for n in range(len(group.members)):
        hours = measures.blocked[:, n] > 0
        if measures.blocked[:, n].sum() < 1 or not hours.any():
            continue
        demand = group.demand[group.inside][hours, n]
        lacking = math.ceil(float(np.median(demand)) - float(group.nominal[-1, n]) - 1e-9)
        if lacking > 0:
            needs[n] = lacking
    return needs


def _offer_gift(group: QuotaGroup, n: int, settings: QuotaSettings) -> QuotaGift | str | None:
    """Return a member's gift, and why not; None where it has nothing to give."""
    demand, nominal = group.demand[:, n], group.nominal[:, n]
    days = len(demand) / DAY
    if days < settings.least_history_days + 7:
        return f"{days:.0f} days of history: at least {settings.least_history_days + 7} are judged"
    worst = ""
    for keep in KEEP_QUANTILES:
        before = float(nominal[-1])
        after = max(_compute_remainder(demand, before, keep, settings), float(group.used[-1, n]))
        after = max(math.ceil(after), before - math.floor(settings.max_step * before))
        if after >= before:
            continue
        trial = backtest_donor(demand, nominal, keep, settings)
        if trial.missed_share <= settings.max_missed_demand:
            return QuotaGift(n, before, float(after), trial)
        worst = (
            f"had it kept the {keep:.0%} quantile of its past demand, it would have missed "
            f"{trial.missed_gpu_hours:,.1f} GPU-hours ({trial.missed_share:.1%})"
        )
    return worst or None


def _compute_remainder(
    past: Doubles, nominal: float, keep: float, settings: QuotaSettings
) -> float:
    """Return the remaining nominal quota: a quantile of the past demand, plus the floor."""
    kept_gpus = float(np.quantile(past, keep, method="higher")) + settings.floor_gpus
    return min(nominal, max(kept_gpus, nominal - settings.max_step * nominal))
