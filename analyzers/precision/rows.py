"""Read the pipes that workloads used, and the memory that their frameworks reserved."""

from datetime import datetime

from analyzers.queries import DEVICE_OWNERS, OWNERS, POD_HOURS, compose_steps
from analyzers.workload_rows import WorkloadPlaceRow, WorkloadRow
from fallow.protocols import Views
from fallow.rows import decode_rows
from fallow.window import Window

PIPES = (DEVICE_OWNERS, "precision/busy_hours", POD_HOURS, "precision/pipes")


class WorkloadPipes(WorkloadPlaceRow, frozen=True):
    """The activity of a workload's pipes on one GPU model, in its hours at work (`pipes.sql`)."""

    model: str | None
    first_hour: datetime
    last_hour: datetime
    work_h: float
    sm: float | None
    tensor: float | None
    fp32: float | None
    dram: float | None


class AllocatorMemory(WorkloadRow, frozen=True):
    """Bytes that a workload's framework reserved and used for tensors (`allocators.sql`)."""

    team: str | None
    pod_hours: float | None
    """None = no source says how far apart the samples are."""
    pods: int
    reserved: float
    allocated: float
    most_allocated: float
    fragmented: float
    least_fragmented: float


def read_pipes(views: Views, window: Window, least_gpu_hours: float) -> list[WorkloadPipes]:
    """Return the pipes that workloads with at least so many GPU-hours at work used."""
    parameters = {
        "since": window.start,
        "until": window.end,
        "least_gpu_hours": least_gpu_hours,
    }
    steps = compose_steps(*PIPES, once="busy_hours")
    return decode_rows(views.query(steps, parameters), WorkloadPipes)


def read_allocators(views: Views, window: Window) -> list[AllocatorMemory]:
    """Return the memory that the frameworks of workloads reserved."""
    steps = compose_steps(OWNERS, "precision/allocators")
    parameters = {"since": window.start, "until": window.end}
    return decode_rows(views.query(steps, parameters), AllocatorMemory)
