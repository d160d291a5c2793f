"""Read the pods of jobs, their quiet devices, their progress and their hosts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import polars as pl

from analyzers.queries import LAST_SCRAPES, compose_steps, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows

PodKey = tuple[str, str, str]
"""Cluster, namespace and name."""


class JobPod(WorkloadRow, frozen=True):
    """A pod of a job (`ranks.sql`)."""

    team: str | None
    pod: str
    who: int
    """Hash of its cluster, namespace and name."""
    node: str | None
    phase: str
    gpus: float
    annotations: str | None
    start: datetime | None
    ended: datetime | None


class QuietStretch(WorkloadRow, frozen=True):
    """A stretch in which one device does no work (`quiet_stretches.sql`)."""

    device: str
    pod: str
    node: str | None
    model: str | None
    weight: float
    interval_s: float
    start: datetime
    end: datetime
    spins: int
    """Samples in which it spins."""
    blinds: int
    """Samples for which it is unknown whether it spins."""
    last_spin: datetime | None
    first_rest: datetime | None
    least_w: float | None
    power_w: float | None
    most_w: float | None
    level_w: float | None
    """Its median power while it works."""
    frozen: bool
    """True: its energy counter, or its fine-grained power, repeats one old value."""
    no_tensor: bool
    no_dram: bool
    no_link: bool

    @property
    def idle_since(self) -> datetime | None:
        """Return since when it is idle until the end; None = it spins, or this is unknown."""
        return self.left if self.spins else self.first_rest

    @property
    def left(self) -> datetime | None:
        """Return when it left the spin and did not return; None = it spins, or never did."""
        if self.first_rest is None or self.last_spin is None or self.first_rest <= self.last_spin:
            return None
        return self.first_rest


class UnchangedStretch(Row, frozen=True):
    """A stretch in which one series of a pod keeps its value (`unchanged_progress.sql`)."""

    cluster: str
    namespace: str
    pod: str
    metric: str
    value: float
    interval_s: float
    start: datetime
    end: datetime
    moved: bool
    """True: it had another value before."""

    @property
    def key(self) -> PodKey:
        """Return the pod that reports it."""
        return self.cluster, self.namespace, self.pod


class DevicePresence(Row, frozen=True):
    """The first and the last sample of a pod's device in the window (`device_presence.sql`)."""

    cluster: str
    namespace: str
    pod: str
    device: str
    first_ts: datetime
    last_ts: datetime


def read_job_pods(views: Views, parameters: Mapping[str, Any]) -> list[JobPod]:
    """Return the pods of jobs that existed in a window."""
    steps = compose_steps(LAST_SCRAPES, "stalled/ranks")
    return decode_rows(views.query(steps, parameters), JobPod)


def read_quiet(
    views: Views, parameters: Mapping[str, Any], above: pl.DataFrame | None = None
) -> list[QuietStretch]:
    """Return the stretches in which devices of jobs do no work.

    `above`: cluster, device and bucket of five minutes that are light work, not rest.
    """
    steps = compose_steps(LAST_SCRAPES, "stalled/ranks", "stalled/quiet_stretches")
    light = {
        f"above_{name}s": [] if above is None else above[name].to_list()
        for name in ("cluster", "device", "bucket")
    }
    return decode_rows(views.query(steps, {**parameters, **light}), QuietStretch)


def read_five_minutes(
    views: Views, parameters: Mapping[str, Any], devices: Sequence[tuple[str, str]]
) -> pl.DataFrame:
    """Return the power and energy of devices (cluster, name) in five minutes without activity."""
    chosen = {
        **{name: parameters[name] for name in ("since", "until", "rest_engine")},
        "clusters": [cluster for cluster, _ in devices],
        "devices": [name for _, name in devices],
    }
    return pl.DataFrame(views.query(load_sql("stalled/five_minutes"), chosen))


def read_unchanged(
    views: Views, parameters: Mapping[str, Any]
) -> dict[PodKey, list[UnchangedStretch]]:
    """Return the stretches of unchanged progress, by pod."""
    by_pod: dict[PodKey, list[UnchangedStretch]] = {}
    table = views.query(load_sql("stalled/unchanged_progress"), parameters)
    for row in decode_rows(table, UnchangedStretch):
        by_pod.setdefault(row.key, []).append(row)
    return by_pod


def read_presence(
    views: Views, bounds: Mapping[str, Any], pods: Sequence[int]
) -> dict[PodKey, list[DevicePresence]]:
    """Return the first and last sample of each device of these pods, by pod."""
    sql = load_sql("stalled/device_presence")
    by_pod: dict[PodKey, list[DevicePresence]] = {}
    for row in decode_rows(views.query(sql, {**bounds, "pods": pods}), DevicePresence):
        by_pod.setdefault((row.cluster, row.namespace, row.pod), []).append(row)
    return by_pod


def read_hosts(views: Views, bounds: Mapping[str, Any], pods: Sequence[int]) -> pl.DataFrame:
    """Return the host metrics of these pods, as columns."""
    return pl.DataFrame(views.query(load_sql("stalled/host_traffic"), {**bounds, "pods": pods}))
