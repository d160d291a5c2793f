"""Compute which jobs still fit on the free GPUs of a set of nodes, without moves.

Source: single-node jobs of q GPUs take q * floor(free / q) of a node's free whole GPUs; that sum
over all free whole GPUs is the packability of q.
"""

import numpy as np

from fallow.fragmentation import Integers

WHOLE = 1000
SIZES = (1, 2, 4, 8)
"""The job sizes in GPUs that are tried."""


def count_whole(gpu: Integers) -> Integers:
    """Return how many GPUs of each node are wholly free; `gpu` is free milli-GPU [node, device]."""
    whole: Integers = (gpu >= WHOLE).sum(axis=1)
    return whole


def count_fitting(free: Integers, gpus: int) -> int:
    """Return how many jobs of this many GPUs fit, each on one node, counting GPUs only."""
    return int((free // gpus).sum())


def compute_packability(free: Integers, gpus: int) -> float | None:
    """Return the share of the free whole GPUs that such jobs could use; None = nothing is free."""
    total = int(free.sum())
    return count_fitting(free, gpus) * gpus / total if total else None


def count_short(free: Integers, gpus: int) -> int:
    """Return the free whole GPUs on nodes with fewer than this number."""
    return int(free[free < gpus].sum())


def probe_request(free: Integers, cpu: Integers, gpus: int, cpu_milli: int) -> tuple[int, int]:
    """Return how many pods with such a request fit, and the free GPUs that lack the CPU."""
    by_gpu = free // gpus
    pods = np.minimum(by_gpu, cpu // cpu_milli) if cpu_milli else by_gpu
    return int(pods.sum()), int((by_gpu - pods).sum()) * gpus


def find_largest(free: Integers) -> int:
    """Return the GPUs of the largest job that one node could take."""
    return int(free.max(initial=0))
