"""Compare what a workload holds by the inventory with what the devices in evidence cover.

    stretch ─► judged_stretches ─┬─► bound_pods ──┐
    pod ─────► workload_pods ────┤                ├─► covered_pods ─► workload_coverage
    allocation, device, node ────┴─► pod_devices ─┘

A verdict is about a whole workload, with or without telemetry. A pod that is bound to a node holds
the GPUs that it requests (DRA claims included, as the inventory counts them), whether an exporter
runs on that node or not. A pending pod holds none.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec
import polars as pl

from fallow.protocols import Views
from warehouse.steps import POD_OWNERS, compose_query

STEPS = (
    POD_OWNERS,
    *(
        f"workload_gpus/{name}"
        for name in (
            "judged_stretches",
            "workload_pods",
            "bound_pods",
            "pod_devices",
            "covered_pods",
            "workload_coverage",
        )
    ),
)
WHOLE = 0.95
"""A pod is covered where devices in evidence cover at least this share of what it holds. Below
this coverage no finding is confirmed (telemetry-and-waste.md#safety)."""
MICRO = 1_000_000
MOST_STRETCHES = 100_000
"""Stretches of one query: their text is 6 MB."""
_NAMES = ["cluster", "namespace", "workload_kind", "workload"]
SCHEMA = {
    "span": pl.Int64, **dict.fromkeys(_NAMES, pl.String), "start": pl.Int64, "end": pl.Int64,
}  # fmt: skip
"""Columns of stretches: the fields of `WorkloadStretch`."""


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


def read_workload_gpus(views: Views, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return one row per stretch, in the order of `span`: the fields of `WorkloadGpus`.

    `stretches` has the fields of `WorkloadStretch`. Read: pod, allocation, device, node. A query
    reads up to `MOST_STRETCHES` of them.
    """
    workloads = stretches.select(_NAMES).unique(maintain_order=True)
    workloads = workloads.with_row_index("workload_number")
    numbered = stretches.join(workloads, on=_NAMES, nulls_equal=True, maintain_order="left")
    numbered = numbered.select("span", "workload_number", "start", "end")
    sql = compose_query(STEPS, once=("workload_pods",))
    named = {"workloads": workloads.write_json(), "whole": WHOLE}
    parts = [
        pl.DataFrame(views.query(sql, {**named, "stretches": part.write_json()}))
        for part in numbered.iter_slices(MOST_STRETCHES)
    ]
    return pl.concat(parts).sort("span")


def build_frame(stretches: Iterable[WorkloadStretch]) -> pl.DataFrame:
    """Return stretches as the rows that `read_workload_gpus` reads."""
    rows = [msgspec.structs.astuple(stretch) for stretch in stretches]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def build_records(rows: pl.DataFrame) -> dict[int, WorkloadGpus]:
    """Return the rows of `read_workload_gpus` by span."""
    return {row["span"]: WorkloadGpus(**row) for row in rows.iter_rows(named=True)}


def convert_to_us(timestamp: datetime) -> int:
    """Return a timestamp as microseconds since 1970."""
    return round(timestamp.timestamp() * MICRO)
