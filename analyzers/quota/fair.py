"""Compute fair allocations: nominal quotas first, the rest by weight; Jain's index; DRF.

Rows are times, columns are queues.
"""

import numpy as np

from analyzers.arrays import Doubles

EPS = 1e-9


def compute_fair_share(
    capacity: Doubles, nominal: Doubles, limit: Doubles, demand: Doubles, weight: Doubles
) -> Doubles:
    """Return each queue's fair share: its nominal quota, then the rest by weight.

    fair = min(nominal, demand), then fair += min(rest x weight / sum of weights, its unmet demand)
    until nothing changes (KAI's fairness document; ElasticQuota's min and max are `nominal` and
    `limit`). Guarantees that exceed the capacity are reduced in proportion.
    """
    want = np.minimum(demand, limit)
    share: Doubles = np.minimum(nominal, want)
    promised = share.sum(axis=1)
    cut = np.divide(capacity, promised, out=np.ones_like(promised), where=promised > capacity)
    share = share * cut[:, None]
    for _ in range(nominal.shape[1]):
        rest = np.maximum(capacity - share.sum(axis=1), 0)
        lacking = np.maximum(want - share, 0)
        pull = weight * (lacking > EPS)
        total = pull.sum(axis=1)
        if not ((rest > EPS) & (total > 0)).any():
            break
        part = np.divide(pull, total[:, None], out=np.zeros_like(pull), where=total[:, None] > 0)
        share += np.minimum(lacking, part * rest[:, None])
    return share


def compute_jain(x: Doubles) -> float | None:
    """Return Jain's index (sum x)^2 / (n sum x^2): 1 = equal, 1/n = one has all; None = no use."""
    squares = float(np.square(x).sum())
    if not len(x) or squares <= 0:
        return None
    return min(1.0, float(x.sum()) ** 2 / (len(x) * squares))


@np.errstate(over="ignore")  # a division by a tiny request gives infinity
def compute_drf(totals: Doubles, requests: Doubles, weight: Doubles | None = None) -> Doubles:
    """Return the share of each user's requests that dominant resource fairness grants.

    `requests` has a row per user and a column per resource, in the units of `totals`. Dominant
    shares (the greatest of request / total) divided by weights rise together until a resource is
    full or a user has all (progressive filling: Ghodsi et al., NSDI 2011).
    """
    share = np.divide(requests, totals, out=np.zeros_like(requests), where=totals > 0).max(axis=1)
    share[share < EPS] = 0
    speed = np.divide(
        np.ones(len(share)) if weight is None else weight,
        share,
        out=np.zeros_like(share),
        where=share > 0,
    )
    granted = np.where(share > 0, 0.0, 1.0)
    active = speed > 0
    room = totals.astype(np.float64).copy()
    while active.any():
        flow = (requests * (speed * active)[:, None]).sum(axis=0)
        until_full = np.divide(
            np.maximum(room, 0), flow, out=np.full_like(room, np.inf), where=flow > 0
        )
        left = np.divide(
            1 - granted, speed, out=np.full_like(share, np.inf), where=active & (speed > 0)
        )
        step = min(float(until_full.min()), float(left[active].min()))
        granted = granted + step * speed * active
        room -= step * flow
        full = (room <= EPS * np.maximum(totals, 1)) & (flow > 0)
        blocked = (requests[:, full] > 0).any(axis=1) if full.any() else np.zeros_like(active)
        still = active & ~blocked & (granted < 1 - EPS)
        if (still == active).all():
            break
        active = still
    return np.minimum(granted, 1.0)


def compute_dominant_shares(totals: Doubles, used: Doubles) -> Doubles:
    """Return the greatest share of any resource that each user holds."""
    parts: Doubles = np.divide(used, totals, out=np.zeros_like(used), where=totals > 0)
    return parts.max(axis=1)  # type: ignore[no-any-return]
