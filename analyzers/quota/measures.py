"""Measure the cost of quotas: hours starved, hoarded, stranded and reserved without use."""

import msgspec
import numpy as np

from analyzers.arrays import Doubles
from analyzers.quota.cohorts import measure_room
from analyzers.quota.fair import (
    EPS,
    compute_dominant_shares,
    compute_drf,
    compute_fair_share,
    compute_jain,
)
from analyzers.quota.groups import QuotaGroup


class QuotaMeasures(msgspec.Struct, frozen=True):
    """GPUs per hour (row) of the window and member (column)."""

    starved: Doubles
    """Guaranteed and requested, but not used: min(demand, nominal) - used.

    Source: telemetry-and-waste.md#queues-and-quota."""
    above: Doubles
    """Used above the nominal quota."""
    hoarded: Doubles
    """Allocated and idle while others of the group waited, at most what they waited for."""
    blocked: Doubles
    """Waited for, with no room left under the quota."""
    stranded: Doubles
    """Free GPUs that blocked members could have had, by the member with the unused quota."""
    served: Doubles
    """The same, by the blocked member."""
    reserved: Doubles
    """Counted as used, though no pod holds it or waits for a node."""
    unfair: Doubles
    """Used above the fair share, while others have less than theirs."""

    def total(self, name: str, column: int | None = None) -> float:
        """Return GPU-hours of one measure."""
        values: Doubles = getattr(self, name)
        return round(float(values.sum() if column is None else values[:, column].sum()), 6)


def measure_group(group: QuotaGroup) -> QuotaMeasures:
    """Return a group's measures over the window."""
    rows = group.inside
    nominal, limit = group.nominal[rows], group.limit[rows]
    used, waiting, idle = group.used[rows], group.waiting[rows], group.idle[rows]
    free = group.money.free[rows]
    above = np.maximum(used - nominal, 0)
    starved = np.minimum(waiting, np.maximum(nominal - used, 0))
    blocked = np.maximum(waiting - _compute_room(group)[rows], 0)
    others = blocked.sum(axis=1, keepdims=True) - blocked
    unused = np.maximum(nominal - used - waiting, 0)
    # A member's idle allocation helps only others; several holders are counted in proportion.
    elsewhere = waiting.sum(axis=1, keepdims=True) - waiting
    rest = np.minimum(idle, used)
    hoarded = np.minimum(rest, elsewhere)
    hoarded *= _divide(waiting.sum(axis=1), hoarded.sum(axis=1))[:, None]
    lent = np.minimum(unused, others)
    most = np.minimum(np.minimum(blocked.sum(axis=1), lent.sum(axis=1)), free)
    stranded = lent * _divide(most, lent.sum(axis=1))[:, None]
    served = blocked * _divide(most, blocked.sum(axis=1))[:, None]
    reserved = np.maximum(used - group.allocated[rows] - group.queued[rows], 0)
    fair = compute_fair_share(
        used.sum(axis=1) + free, nominal, limit, used + waiting, _compute_weights(nominal)
    )
    short = np.maximum(np.minimum(fair, used + waiting) - used, 0).sum(axis=1)
    over = np.maximum(used - fair, 0)
    unfair = over * _divide(short, over.sum(axis=1))[:, None]
    return QuotaMeasures(starved, above, hoarded, blocked, stranded, served, reserved, unfair)


def compute_shares(group: QuotaGroup) -> dict[str, object]:
    """Return nominal quota, use, demand and shares of each member, and how equal they are.

    Jain's index is of used / entitled; `served` is of used / demand among members with demand.
    """
    rows = group.inside
    nominal, used = group.nominal[rows].mean(axis=0), group.used[rows].mean(axis=0)
    demand = group.demand[rows].mean(axis=0)
    totals = np.array([group.money.gpus, group.money.cpu, group.money.memory])
    usage = np.stack([used, group.cpu[rows].mean(axis=0), group.memory[rows].mean(axis=0)], axis=1)
    per_gpu = np.divide(usage, used[:, None], out=np.zeros_like(usage), where=used[:, None] > 0)
    requests = np.where(used[:, None] > 0, per_gpu * demand[:, None], 0.0)
    requests[:, 0] = demand
    dominant, wanted = (
        compute_dominant_shares(totals, usage),
        compute_dominant_shares(totals, requests),
    )
    fair = compute_drf(totals, requests, _compute_weights(nominal[None])[0]) * wanted
    entitled, wants = nominal > 0, demand > 0
    return {
        "jain": _round_value(compute_jain(used[entitled] / nominal[entitled])),
        "jain_served": _round_value(compute_jain(used[wants] / demand[wants])),
        "members": [
            {
                "name": group.label(n),
                "entitled_gpus": round(float(nominal[n]), 3),
                "used_gpus": round(float(used[n]), 3),
                "demand_gpus": round(float(demand[n]), 3),
                "dominant_share": round(float(dominant[n]), 4),
                "drf_share": round(float(fair[n]), 4),
            }
            for n in range(len(group.members))
        ],
    }


def compute_pooling(group: QuotaGroup, quantile: float) -> tuple[float, float]:
    """Return the sum of the members' demand quantiles and the quantile of their sum, in GPUs.

    The difference is the saving of pooled quotas: the multiplexing gain.
    """
    each = np.quantile(group.demand, quantile, axis=0, method="higher")
    return float(each.sum()), float(
        np.quantile(group.demand.sum(axis=1), quantile, method="higher")
    )


def _compute_room(group: QuotaGroup) -> Doubles:
    """Return how much more each member could have under the quota, hour by hour."""
    if group.tree is not None:
        return measure_room(group.tree, group.used)
    own = np.maximum(np.minimum(group.limit, 1e12) - group.used, 0)
    if not group.lends:
        return np.maximum(np.minimum(own, group.nominal - group.used), 0)
    within = np.maximum(group.nominal - group.used, 0)
    pool = np.maximum(group.nominal.sum(axis=1) - group.used.sum(axis=1), 0)
    room: Doubles = np.maximum(np.minimum(own, pool[:, None]), np.minimum(own, within))
    return room


def _compute_weights(nominal: Doubles) -> Doubles:
    """Return weights for the rest: the nominal quotas; equal weights where no member has one."""
    return np.where(nominal.sum(axis=1, keepdims=True) > 0, nominal, 1.0)


def _divide(amount: Doubles, whole: Doubles) -> Doubles:
    part = np.divide(amount, whole, out=np.zeros_like(whole), where=whole > EPS)
    return np.minimum(part, 1.0)


def _round_value(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
