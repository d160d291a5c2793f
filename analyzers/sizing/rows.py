"""Read what workloads use and request: devices, hosts, containers, prices, free hours."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

import msgspec
import polars as pl

from analyzers.queries import load_sql
from analyzers.rows import decode_frame
from analyzers.workload_rows import OWNER, Owner, WorkloadPlaceRow, WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window

Resource = Literal["cpu", "memory"]


class WorkloadUse(WorkloadPlaceRow, frozen=True):
    """What a workload does with its devices, and its hosts' limits (`usage.sum_workloads`)."""

    model: str | None
    kinds: int
    """GPU models that it works on."""
    profile: str | None
    instance: bool
    """True: some of its devices are MIG instances."""
    first_hour: datetime
    last_hour: datetime
    gpus: int
    pod_gpus: int
    """The most GPUs that one of its pods works on."""
    work_h: float
    device_s: float
    conflict_s: float
    spin_s: float
    spinning: int
    spin_w: float | None
    tdp_w: float | None
    memory_bytes: int | None
    power_share: float | None
    act: float | None
    engine: float | None
    sm: float | None
    tensor: float | None
    fp32: float | None
    dram: float | None
    pcie_bps: float | None
    nvlink_bps: float | None
    act_peak: float | None
    sm_peak: float | None
    dram_peak: float | None
    mem_most: int | None
    eff: float | None
    reserved: bool | None
    ranks: int | None
    rank_most: float | None
    rank_median: float | None
    rank_mean: float | None
    rank_busy: int | None
    slow_device: str | None
    slow_node: str | None
    slow_power: float | None
    slow_clock: float | None
    thin: bool
    throttled: float | None
    cpu_full: float | None
    net_bps: float | None


class SharedUse(WorkloadPlaceRow, frozen=True):
    """The hours at work of a workload on devices that several pods share."""

    hours: float


class ResourceUse(msgspec.Struct, frozen=True):
    """A pod's request of one resource, and its use; in millicores or bytes."""

    request: int | None
    fair: float | None
    """A GPU's share of the pod's node."""
    p95: float | None
    p99: float | None
    peak: float | None


class GpuPod(WorkloadRow, frozen=True):
    """A pod with GPUs: its requests, a GPU's share of its node, its use (`gpu_pods.sql`)."""

    pod: str
    node: str | None
    team: str | None
    gpus: int
    hours: float
    cpu_request_milli: int | None
    memory_request_bytes: int | None
    fair_milli: float | None
    fair_bytes: float | None
    gpu_model: str | None
    cpu_p95: float | None
    cpu_p99: float | None
    cpu_peak: float | None
    memory_p95: float | None
    memory_p99: float | None
    memory_peak: int | None

    def resource(self, resource: Resource) -> ResourceUse:
        """Return its request and use of a resource."""
        if resource == "memory":
            return ResourceUse(
                self.memory_request_bytes, self.fair_bytes,
                self.memory_p95, self.memory_p99, self.memory_peak,
            )  # fmt: skip
        milli = (
            None if cores is None else cores * 1000
            for cores in (self.cpu_p95, self.cpu_p99, self.cpu_peak)
        )
        return ResourceUse(self.cpu_request_milli, self.fair_milli, *milli)


class RequestedContainer(msgspec.Struct, frozen=True):
    """A container in the inventory: what it requests, and whether it was killed for memory."""

    name: str
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    oom_killed: bool = False


class PodContainers(WorkloadRow, frozen=True):
    """The containers of a pod (`container_requests.sql`)."""

    pod: str
    node: str | None
    team: str | None
    containers: str
    gpus: float | None
    lives: bool

    def decode_containers(self) -> list[RequestedContainer]:
        """Return its containers."""
        return msgspec.json.decode(self.containers, type=list[RequestedContainer])


class ContainerSamples(WorkloadRow, frozen=True):
    """The use of a container over the lookback, in cores and bytes (`container_use.sql`)."""

    container: str
    cpu_s: float | None
    memory_s: float | None
    cpu_p95: float | None
    cpu_max: float | None
    memory_max: int | None


class ModelPrice(Row, frozen=True):
    """What a GPU-hour of a model costs on a cluster (`model_prices.sql`)."""

    cluster: str
    model: str
    usd_h: float


class NodeFreeHours(Row, frozen=True):
    """The GPU-hours of a node that were not allocated (`free_hours.sql`)."""

    cluster: str
    node: str
    gpu_hours: float
    usd: Decimal | None
    priced: bool | None


def list_workloads(frame: pl.DataFrame) -> list[WorkloadUse]:
    """Return the rows of a frame of workloads."""
    return decode_frame(frame, WorkloadUse)


def list_shared(frame: pl.DataFrame) -> list[SharedUse]:
    """Return the rows of a frame of workloads that share devices."""
    return decode_frame(frame, SharedUse)


def list_pods(frame: pl.DataFrame) -> list[GpuPod]:
    """Return the rows of `read_pods` joined to `read_pod_hosts`."""
    return decode_frame(frame, GpuPod)


def read_pods(views: Views, window: Window) -> pl.DataFrame:
    """Return the requests of pods that hold GPUs, as columns."""
    return pl.DataFrame(views.query(load_sql("sizing/gpu_pods"), window.bounds()))


def read_pod_hosts(
    views: Views, since: datetime, until: datetime, pods: pl.DataFrame
) -> pl.DataFrame:
    """Return the host metrics of some pods, as columns."""
    parameters = {
        "since": since,
        "until": until,
        "pods": msgspec.json.encode(pods.unique(maintain_order=True).to_dicts()).decode(),
    }
    return pl.DataFrame(views.query(load_sql("pod_use"), parameters))


def read_containers(views: Views, window: Window, lookback: timedelta) -> list[PodContainers]:
    """Return the containers of pods of the workloads that hold GPUs in the window."""
    lookback_start = (window.end - lookback).replace(tzinfo=None)
    parameters = {**window.bounds(), "lookback_start": lookback_start}
    return decode_rows(
        views.query(load_sql("sizing/container_requests"), parameters), PodContainers
    )


def read_container_samples(
    views: Views, window: Window, lookback: timedelta, owners: Iterable[Owner]
) -> list[ContainerSamples]:
    """Return the use of the containers of some workloads over the lookback."""
    workloads = [dict(zip(OWNER, owner, strict=True)) for owner in owners]
    parameters = {
        "workloads": msgspec.json.encode(workloads).decode(),
        "since": (window.end - lookback).replace(tzinfo=None),
        "until": window.bounds()["until"],
    }
    return decode_rows(views.query(load_sql("sizing/container_use"), parameters), ContainerSamples)


def read_prices(views: Views, window: Window) -> dict[str, dict[str, float]]:
    """Return what a GPU-hour of each model costs, by cluster."""
    prices: dict[str, dict[str, float]] = {}
    table = views.query(load_sql("sizing/model_prices"), window.bounds())
    for row in decode_rows(table, ModelPrice):
        prices.setdefault(row.cluster, {})[row.model] = row.usd_h
    return prices


def read_free_hours(views: Views, window: Window) -> list[NodeFreeHours]:
    """Return the GPU-hours of each node that were not allocated."""
    return decode_rows(views.query(load_sql("sizing/free_hours"), window.bounds()), NodeFreeHours)
