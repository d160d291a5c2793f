"""Whether kinds of workloads tolerate the loss of a pod, and why."""

from collections.abc import Mapping
from functools import cache
from typing import Literal

from analyzers.queries import load_records
from fallow.rows import Row

Tolerance = Literal["retried", "replicated", "never", "unknown"]


class KindTolerance(Row, frozen=True):
    """One row of `tolerances.csv`."""

    workload_kind: str
    tolerance: Tolerance
    why: str


@cache
def read_tolerances() -> Mapping[str, KindTolerance]:
    """Return by kind of workload whether it tolerates an interruption, and why."""
    return {row.workload_kind: row for row in load_records("tolerances", KindTolerance)}
