"""Draw when which node or GPU fails or is reclaimed, from `hardware_faults.csv`."""

from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from fallow.resources import read_table
from simulator.cluster.nodes import SimulatedNode

DAY_S = 86_400.0


class HardwareFault(msgspec.Struct, frozen=True):
    """A node, or one of its GPUs (`index`), is unavailable for a time."""

    at_s: float
    node: str
    why: str
    until_s: float
    index: int | None = None


def draw_faults(
    nodes: Sequence[SimulatedNode], start_s: float, end_s: float, seed: int, *, often: float = 1.0
) -> list[HardwareFault]:
    """Return the faults in [start, end), oldest first, `often` times as often as in the table.

    A fault of a node that is already unavailable is left out.
    """
    rng = np.random.default_rng([seed, 9])
    faults: list[HardwareFault] = []
    for why, of, per_day, low, high in _read_rates():
        nodes_struck = [n for n in nodes if of == "gpu" or n.pool.capacity_type == "spot"]
        if not nodes_struck:
            continue
        weight = np.array(
            [n.pool.gpu_count if of == "gpu" else 1 for n in nodes_struck], np.float64
        )
        mean = per_day * often * weight.sum() * (end_s - start_s) / DAY_S
        for _ in range(int(rng.poisson(mean))):
            node = nodes_struck[int(rng.choice(len(nodes_struck), p=weight / weight.sum()))]
            at_s = float(np.floor(rng.uniform(start_s, end_s)))
            until_s = at_s + float(np.floor(rng.uniform(low, high)))
            index = int(rng.integers(node.pool.gpu_count)) if why == "xid" else None
            faults.append(HardwareFault(at_s, node.name, why, until_s, index))
    return _drop_overlaps(sorted(faults, key=lambda m: (m.at_s, m.node)))


def _drop_overlaps(faults: Sequence[HardwareFault]) -> list[HardwareFault]:
    away: dict[str, float] = {}
    accepted = []
    for fault in faults:
        # Reclaiming takes two minutes, and so may the return.
        if fault.at_s > away.get(fault.node, 0.0):
            away[fault.node] = fault.until_s + 600
            accepted.append(fault)
    return accepted


@cache
def _read_rates() -> tuple[tuple[str, str, float, float, float], ...]:
    return tuple(
        (r["why"], r["of"], float(r["per_day"]), float(r["low_s"]), float(r["high_s"]))
        for r in read_table("simulator", "hardware_faults.csv")
    )
