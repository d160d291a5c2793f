"""Whether kinds of workloads tolerate the loss of a pod, and why."""

from collections.abc import Mapping
from functools import cache
from typing import Literal

import msgspec

from fallow.resources import read_table

Tolerance = Literal["retried", "replicated", "never", "unknown"]


class KindTolerance(msgspec.Struct, frozen=True):
    """One row of `tolerances.csv`."""

    workload_kind: str
    tolerance: Tolerance
    why: str


@cache
def read_tolerances() -> Mapping[str, KindTolerance]:
    """Return by kind of workload whether it tolerates an interruption, and why."""
    rows = msgspec.convert(read_table("fallow", "tolerances.csv"), list[KindTolerance])
    return {row.workload_kind: row for row in rows}
