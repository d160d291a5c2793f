"""Compute a lower bound of the cost of any placement, and the mix of types closest to it.

Pods may be split and nodes bought in parts, within constraints that hold for every placement: the
total CPU, memory, pods and GPUs of all pods, the remainder when pods of one size fill a node or a
GPU, and how many pods of one shape fit on a node. Small problems buy whole nodes. HiGHS solves it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from analyzers.arrays import Doubles, Ints
from analyzers.pools.shapes import CPU, MEMORY, PODS, WHOLE, PackingProblem

WHOLE_NODES = 2_000
"""Pairs of shape and type up to which nodes are bought whole."""
BRANCHES = 200
"""Branches after which the bound is the proved one: a count, so that it is repeatable."""
CPU_FOLDS, MEMORY_FOLDS, GPU_FOLDS = 8, 4, 3
"""Roundings of each resource that the bound uses (`_compute_parts`)."""
SLACK = 1e-6
"""Subtracted from the bound: the solver's own tolerance."""


class LowerBound(msgspec.Struct, frozen=True):
    """The lower bound of the cost, and how it distributes the pods."""

    usd_h: float
    split: Ints
    """Pods of each shape (row) on each type (column)."""


def compute_bound(problem: PackingProblem) -> LowerBound:
    """Return the lower bound in USD/h; 0 and no split where there are no pods.

    Raises:
        ValueError: a shape fits no type.
    """
    if problem.unplaceable():
        raise ValueError(f"no type takes {problem.unplaceable()[0]}")
    shapes, types = problem.most.shape
    if not shapes:
        return LowerBound(0.0, np.zeros((0, types), dtype=np.int64))
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (loads in 0.3 s)

    of_shape, of_type = np.nonzero(problem.most)
    pairs = len(of_shape)
    cost = np.concatenate([np.zeros(pairs), problem.price])
    whole = np.zeros(pairs + types)
    if pairs <= WHOLE_NODES:
        whole[pairs:] = 1
    matrix, low, high = _build_rows(problem, of_shape, of_type)
    with _silence_solver():
        answer = milp(
            cost,
            integrality=whole,
            bounds=Bounds(0, np.inf),
            constraints=LinearConstraint(matrix, low, high),
            options={"node_limit": BRANCHES},
        )
    if answer.x is None:
        raise ValueError(f"HiGHS found no bound: {answer.message}")
    least = answer.mip_dual_bound if whole.any() else answer.fun
    placed = np.zeros((shapes, types))
    placed[of_shape, of_type] = answer.x[:pairs]
    return LowerBound(max(float(least), 0.0) * (1 - SLACK), _round_split(placed, problem.count))


@contextmanager
def _silence_solver() -> Iterator[None]:
    """Suppress standard output: scipy 1.17's HiGHS prints its own lines, whatever the options."""
    sys.stdout.flush()
    stdout = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)


def count_nodes(problem: PackingProblem, kind: int) -> int:
    """Return the fewest nodes of one type that can suffice: the maximum over all dimensions."""
    if not len(problem.count):
        return 0
    total_need = problem.count @ problem.need
    counts = [-(-total_need // problem.room[kind])]
    if problem.node_gpus[kind]:
        gpu_milli = int(problem.count @ (problem.gpus * problem.milli))
        counts.append(np.array([-(-gpu_milli // (WHOLE * problem.node_gpus[kind]))]))
        big = int(problem.count @ np.where(problem.milli > WHOLE // 2, problem.gpus, 0))
        counts.append(np.array([-(-big // problem.node_gpus[kind])]))
    most = problem.most[:, kind]
    counts.append(-(-problem.count[most > 0] // most[most > 0]))
    return int(np.concatenate(counts).max())


def _build_rows(
    problem: PackingProblem, of_shape: Ints, of_type: Ints
) -> tuple[object, Doubles, Doubles]:
    from scipy.sparse import coo_array  # noqa: PLC0415

    shapes, types = problem.most.shape
    pairs = len(of_shape)
    every = np.arange(pairs)
    at, column, value = [of_shape], [every], [np.ones(pairs)]  # every pod is placed
    row = shapes
    for part in _compute_parts(problem, of_shape, of_type):  # no node holds more than its capacity
        at += [row + of_type, row + np.arange(types)]
        column += [every, pairs + np.arange(types)]
        value += [part, -np.ones(types)]
        row += types
    at += [row + every, row + every]  # at most the pods of one shape that fit on it
    column += [every, pairs + of_type]
    value += [np.ones(pairs), -problem.most[of_shape, of_type].astype(np.float64)]
    row += pairs
    matrix = coo_array(
        (np.concatenate(value), (np.concatenate(at), np.concatenate(column))),
        shape=(row, pairs + types),
    ).tocsr()
    placed = problem.count.astype(np.float64)
    low = np.concatenate([placed, np.full(row - shapes, -np.inf)])
    high = np.concatenate([placed, np.zeros(row - shapes)])
    return matrix, low, high


def _compute_parts(problem: PackingProblem, of_shape: Ints, of_type: Ints) -> Iterator[Doubles]:
    """Yield each pod's share of its node: of each resource, and rounded so that all still fit.

    Pods of 12 of 94 cores take an eighth, whatever the count of the remaining cores: the dual
    feasible functions u(k) of Fekete and Schepers (Mathematical Programming 91, 2001).
    """
    for dimension, folds in ((CPU, CPU_FOLDS), (MEMORY, MEMORY_FOLDS), (PODS, 0)):
        need, room = problem.need[of_shape, dimension], problem.room[of_type, dimension]
        for k in range(folds + 1):
            yield _fold(need, np.maximum(room, 1), k)
    gpu_parts = problem.gpus[of_shape] / np.maximum(problem.node_gpus[of_type], 1)
    for k in range(GPU_FOLDS + 1):
        yield _fold(problem.milli[of_shape], np.full(len(of_shape), WHOLE), k) * gpu_parts


def _fold(need: Ints, room: Ints, k: int) -> Doubles:
    part: Doubles = need / room
    if not k:
        return part
    times = (k + 1) * need
    return np.where(times % room == 0, part, times // room / k)


def _round_split(split: Doubles, count: Ints) -> Ints:
    """Round each row to whole pods: down, and the remainder goes to the largest parts."""
    down = np.floor(split + SLACK)
    left = np.maximum(count - down.sum(axis=1), 0).astype(np.int64)
    order = np.argsort(-(split - down), axis=1, kind="stable")
    extra = np.zeros_like(down)
    np.put_along_axis(extra, order, (np.arange(split.shape[1]) < left[:, None]) * 1.0, axis=1)
    rounded: Ints = (down + extra).astype(np.int64)
    over = rounded.sum(axis=1) - count
    rounded[np.arange(len(rounded)), rounded.argmax(axis=1)] -= over
    return rounded
