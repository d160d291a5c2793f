"""Compare what a workload holds by the inventory with what the devices in evidence cover.

    stretch ─► judged_stretches ─┐
    pod ───────► bound_pods ─────┼─► covered_pods ─► workload_gpus
    allocation, device, node ────┘

A verdict is about a whole workload, with or without telemetry. A pod that is bound to a node holds
the GPUs that it requests (DRA claims included, as the inventory counts them), whether an exporter
runs on that node or not. A pending pod holds none.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec
import pyarrow as pa

from fallow.protocols import Views
from warehouse.steps import POD_OWNERS, compose_query

STEPS = (
    POD_OWNERS,
    *(
        f"workload_gpus/{name}"
        for name in ("judged_stretches", "bound_pods", "covered_pods", "workload_coverage")
    ),
)
WHOLE = 0.95
"""A pod is covered where devices in evidence cover at least this share of what it holds. Below
this coverage no finding is confirmed (telemetry-and-waste.md#safety)."""
MICRO = 1_000_000


class WorkloadStretch(msgspec.Struct, frozen=True):
    """A workload and the time in question, in microseconds since 1970."""

    span: int
    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    start: int
    end: int


class WorkloadGpus(msgspec.Struct, frozen=True):
    """What one workload held in a stretch; `replicas` and GPUs are those at its end."""

    span: int
    replicas: int
    """Pods bound to a node that hold GPUs."""
    replicas_unseen: int
    """Those of them without any device in evidence, or with too few."""
    unseen_us: int
    """The longest time without evidence of any pod that was bound in the stretch, in microseconds;
    a part of its devices counts as that part of the time."""
    gpus: float
    gpus_seen: float
    coverage: float | None
    """GPU-seconds in evidence over those held in the stretch (0-1); None = no pod is known."""
    unseen_pod: str | None
    unseen_node: str | None

    @property
    def gap(self) -> str | None:
        """Return a sentence about what has no telemetry; None = everything has."""
        if not self.replicas_unseen:
            return None
        where = f"{self.unseen_pod} on node {self.unseen_node}"
        more = self.replicas_unseen - 1
        rest = f" and {more} more" if more else ""
        has = "has" if self.replicas_unseen == 1 else "have"
        return (
            f"not judged: {self.replicas_unseen} of {self.replicas} replicas {has} no telemetry: "
            f"{where}{rest}"
        )


def read_workload_gpus(views: Views, stretches: Iterable[WorkloadStretch]) -> pa.Table:
    """Return one row per stretch, in the order of `span`: the fields of `WorkloadGpus`.

    Read: pod, allocation, device, node. One query computes the rows of all stretches.
    """
    listed = msgspec.json.encode(list(stretches)).decode()
    return views.query(compose_query(STEPS), {"stretches": listed, "whole": WHOLE})


def build_records(rows: pa.Table) -> dict[int, WorkloadGpus]:
    """Return the rows of `workload_gpus` by span."""
    return {row["span"]: WorkloadGpus(**row) for row in rows.to_pylist()}


def convert_to_us(timestamp: datetime) -> int:
    """Return a timestamp as microseconds since 1970."""
    return round(timestamp.timestamp() * MICRO)
