"""A world for a real Prometheus: jobs that hang, each beside a near twin that does not.

Every series has the name and the labels that its exporter gives it: dcgm-exporter, cAdvisor,
kube-state-metrics version 2, and a trainer's own gauges. Every job has a namespace of its own, its
ranks are pods of one GPU each. Times are minutes before END; at HANGS, off the grid of five
minutes, the ranks of all jobs change what they do.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np

from tests.analyzers.gangs import SHOWN
from tests.servers.prometheus import History

END = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LASTS = timedelta(hours=3)
HANG_MIN = 26
HANGS = END - timedelta(minutes=HANG_MIN)
WORK_MIN = 180 - HANG_MIN
EVERY = 60
HOSTS_EVERY = 60
KSM_EVERY = 120
FIELDS: Mapping[str, str] = {
    "gr_engine_active": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "gpu_util_pct": "DCGM_FI_DEV_GPU_UTIL",
    "sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
    "pcie_tx_bps": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "pcie_rx_bps": "DCGM_FI_PROF_PCIE_RX_BYTES",
    "nvlink_tx_bps": "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "nvlink_rx_bps": "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "power_w": "DCGM_FI_DEV_POWER_USAGE",
}
NVLINK = {"nvlink_tx_bps": 0.0, "nvlink_rx_bps": 0.0}
DOES: Mapping[str, Mapping[str, float | None]] = {
    **{what: {**shown, **NVLINK} for what, shown in SHOWN.items()},
    # All-reduce over NVLink: few SMs, no tensor work, as good as no memory traffic of its own.
    "nccl": {
        **SHOWN["spin"], "sm_active": 0.2, "tensor_active": 0.004, "dram_active": 0.018,
        "nvlink_tx_bps": 9e10, "nvlink_rx_bps": 9e10, "power_w": 310.0,
    },
}  # fmt: skip
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Pieces = Sequence[tuple[str, float]]
"""What, and for how many minutes, up to END."""


class Host(msgspec.Struct, frozen=True):
    """What a rank's host does from HANGS on: cores, bytes a second. Before, it trains."""

    cores: float = 0.1
    read: float = 0.0
    written: float = 0.0
    received: float = 100.0


SPINNING = Host(cores=1.1)
"""A hung collective keeps a thread of its host busy."""


class Progress(msgspec.Struct, frozen=True):
    """A metric of rank 0: it moves each minute until `still` minutes before END."""

    metric: str = "train_global_step"
    still: float = HANG_MIN


class Job(msgspec.Struct, frozen=True):
    """A job whose ranks work until HANGS and then do these pieces."""

    name: str
    ranks: Sequence[Pieces]
    host: Host = SPINNING
    first_host: Host | None = None
    """Of rank 0; None = as the others."""
    progress: Sequence[Progress] = ()
    annotated: str = ""
    """The metric that its annotation names; empty = none."""
    bursts_min: Sequence[float] = ()
    """Minutes before END at which rank 0 writes a checkpoint, for three minutes."""
    absent: Sequence[str] = ()
    """Columns that its exporter does not have."""
    pending: int = 0
    """Ranks without a node."""
    silent: int = 0
    """Last ranks whose exporter falls silent at HANGS."""
    frozen: bool = False
    """From HANGS on its exporters repeat what they said."""
    evidence: str = ""
    """Of the finding that is due; empty = none is."""

    @property
    def namespace(self) -> str:
        """The namespace of this job alone."""
        return f"team-{self.name}"


SPIN, REST, WORK = (("spin", HANG_MIN),), (("rest", HANG_MIN),), (("work", HANG_MIN),)
EVERY_HALF_HOUR = tuple(range(30, 180, 30))
AT_REST = Host()
JOBS: Sequence[Job] = (
    # All ranks spin, and nothing else is known: the near twin talks over NVLink.
    Job("spins", [SPIN] * 4, evidence="suspected"),
    Job("talks", [(("nccl", HANG_MIN),)] * 4),
    # The near twin works again after nine minutes.
    Job("pauses", [(("spin", 9), ("work", HANG_MIN - 9))] * 4),
    # Progress stands still, or moves on in a kernel that no counter shows.
    Job("still", [SPIN] * 2, progress=[Progress()], evidence="confirmed"),
    Job("moves", [SPIN] * 2, progress=[Progress(still=0)]),
    # The metric that the owner names stands still, or moves, whatever a common one does.
    Job(
        "named-still", [SPIN] * 2, annotated="my_epochs",
        progress=[Progress("my_epochs"), Progress(still=0)], evidence="confirmed",
    ),
    Job(
        "named-moves", [SPIN] * 2, annotated="my_epochs",
        progress=[Progress("my_epochs", still=0), Progress()],
    ),
    # One rank left the spin after five minutes, or evaluates on its GPU while the others wait.
    Job(
        "left", [SPIN, SPIN, (("spin", 5), ("rest", HANG_MIN - 5)), SPIN], evidence="confirmed"
    ),
    Job("evaluates", [WORK, SPIN, SPIN, SPIN], progress=[Progress()]),
    # Rank 0 saves from its host, the device at rest: the others wait in the barrier.
    Job(
        "saves", [REST, SPIN, SPIN, SPIN], first_host=Host(cores=2.0, written=2e8),
        progress=[Progress()],
    ),
    # All ranks spin beside a host that writes: a sharded checkpoint to slow storage.
    Job("shards", [SPIN] * 2, first_host=Host(cores=2.0, written=2e8), progress=[Progress()]),
    # All rest and progress stands still; the near twin prepares data on the hosts.
    Job("rests", [REST] * 2, host=AT_REST, progress=[Progress()], evidence="confirmed"),
    Job(
        "prepares", [REST] * 2, host=Host(cores=7.0, received=4e7), progress=[Progress()],
    ),
    # Checkpoints came every half hour, and stopped; the near twin's next one is not late yet.
    Job("unsaved", [(("spin", 50),)] * 2, bursts_min=(*EVERY_HALF_HOUR,)[1:], evidence="confirmed"),
    Job("saved", [SPIN] * 2, bursts_min=EVERY_HALF_HOUR, evidence="suspected"),
    # A rank has no node yet; a rank's fields do not tell work from a spin.
    Job("waits", [SPIN] * 3, pending=1),
    Job("blind", [SPIN] * 2, absent=["tensor_active"]),
    # An exporter falls silent; all of them repeat what they said in a barrier.
    Job("silent", [SPIN] * 4, silent=1, progress=[Progress()]),
    Job("frozen", [SPIN] * 2, frozen=True),
    Job("works", [WORK] * 2, progress=[Progress(still=0)]),
)  # fmt: skip


class World:
    """The series of the jobs."""

    def __init__(self, jobs: Sequence[Job] = JOBS) -> None:
        self.history = History()
        for place, job in enumerate(jobs):
            for rank, pieces in enumerate(job.ranks):
                self._device(job, place, rank, pieces)
                self._host(job, rank)
            for rank in range(len(job.ranks) + job.pending):
                self._pod(job, rank)
            for one in job.progress:
                self._progress(job, one)

    def _device(self, job: Job, place: int, rank: int, pieces: Pieces) -> None:
        ts = _times(EVERY, 7 + place % 5)
        words = {
            "gpu": "0", "UUID": f"GPU-{place:04d}-{rank}", "device": "nvidia0",
            "modelName": "NVIDIA H100 80GB HBM3", "Hostname": _node(job, rank),
            "container": "main", "namespace": job.namespace, "pod": _pod(job, rank),
            "job": "dcgm-exporter", "instance": f"10.2.{place}.{rank}:9400",
        }  # fmt: skip
        done = sum(minutes for _, minutes in pieces)
        begin, does = END.timestamp() - 60 * done, np.full(len(ts), "work", dtype=object)
        for what, minutes in pieces:
            does[ts >= begin] = what
            begin += 60 * minutes
        stalls = ts >= HANGS.timestamp()
        if rank >= len(job.ranks) - job.silent:
            ts, does, stalls = ts[~stalls], does[~stalls], stalls[~stalls]
        watts: Floats = np.array([DOES[what]["power_w"] or 0.0 for what in does])
        used = np.where(stalls & job.frozen, 0.0, watts * EVERY * 1000)
        spent = 4e9 + np.floor(np.cumsum(used))
        self.history.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", words, ts, spent)
        for column, name in FIELDS.items():
            if column in job.absent:
                continue
            values: Floats = np.array([DOES[what][column] or 0.0 for what in does])
            if column == "power_w":
                noise = self.history.rng.normal(0, 0.4, len(ts))
                values = np.round(values + np.where(stalls & job.frozen, 0.25, noise), 3)
            self.history.add(name, words, ts, values)
        self.history.add("DCGM_FI_DEV_FB_USED", words, ts, 60_000.0)
        self.history.add("DCGM_FI_DEV_FB_FREE", words, ts, 21_000.0)

    def _pod(self, job: Job, rank: int) -> None:
        add, ts = self.history.add, _times(KSM_EVERY, 3)
        waits = rank >= len(job.ranks)
        node, born = "" if waits else _node(job, rank), ts[0] - 3600
        key = {
            "job": "kube-state-metrics", "instance": "10.0.0.3:8080", "namespace": job.namespace,
            "pod": _pod(job, rank), "uid": f"uid-{_pod(job, rank)}",
        }  # fmt: skip
        by = {"created_by_kind": "PyTorchJob", "created_by_name": job.name}
        add("kube_pod_info", {**key, **by, "node": node}, ts, 1.0)
        owner = {"owner_kind": "PyTorchJob", "owner_name": job.name, "owner_is_controller": "true"}
        add("kube_pod_owner", {**key, **owner}, ts, 1.0)
        add("kube_pod_labels", {**key, "label_team": job.name}, ts, 1.0)
        if job.annotated:
            answer = {"annotation_fallow_dev_progress_metric": job.annotated}
            add("kube_pod_annotations", {**key, **answer}, ts, 1.0)
        for phase in ("Pending", "Running"):
            value = float((phase == "Pending") == waits)
            add("kube_pod_status_phase", {**key, "phase": phase}, ts, value)
        add("kube_pod_created", key, ts, born)
        if not waits:
            add("kube_pod_start_time", key, ts, born + 2)
            add("kube_pod_status_scheduled_time", key, ts, born + 1)
            self._node(node, ts)
        requests = {"container": "main", "node": node, "resource": "nvidia_com_gpu"}
        add("kube_pod_container_resource_requests", {**key, **requests, "unit": "integer"}, ts, 1.0)

    def _node(self, node: str, ts: Floats) -> None:
        add, key = self.history.add, {"job": "kube-state-metrics", "node": node}
        add("kube_node_info", {**key, "system_uuid": f"u-{node}", "provider_id": node}, ts, 1.0)
        ready = {**key, "condition": "Ready", "status": "true"}
        add("kube_node_status_condition", ready, ts, 1.0)
        add("kube_node_labels", {**key, "label_nvidia_com_gpu_count": "1"}, ts, 1.0)
        answer = {**key, "resource": "nvidia_com_gpu", "unit": "integer"}
        add("kube_node_status_allocatable", answer, ts, 1.0)

    def _host(self, job: Job, rank: int) -> None:
        add, ts = self.history.add, _times(HOSTS_EVERY, 11)
        host = job.first_host if rank == 0 and job.first_host else job.host
        stalls = ts >= HANGS.timestamp()
        key = {"job": "kubelet", "namespace": job.namespace, "pod": _pod(job, rank)}
        inside = {**key, "container": "main"}

        def counted(after: float, before: float, written: Floats | float = 0.0) -> Floats:
            made: Floats = np.cumsum(np.where(stalls, after, before) + written) * HOSTS_EVERY
            return made

        bursts = np.zeros(len(ts))
        for minute in job.bursts_min if rank == 0 else ():
            begin = END.timestamp() - 60 * minute
            bursts[(ts >= begin) & (ts < begin + 180)] = 4e8
        used = {**inside, "cpu": "total"}
        add("container_cpu_usage_seconds_total", used, ts, np.round(counted(host.cores, 3.0), 6))
        disk = {**inside, "device": "/dev/nvme0n1"}
        written = np.floor(counted(host.written, 0.0, bursts))
        add("container_fs_writes_bytes_total", disk, ts, written)
        add("container_fs_reads_bytes_total", disk, ts, np.floor(counted(host.read, 0.0)))
        wire = {**key, "interface": "eth0"}
        received = np.floor(counted(host.received, 4e6))
        add("container_network_receive_bytes_total", wire, ts, received)
        add("container_network_transmit_bytes_total", wire, ts, np.floor(counted(80.0, 80.0)))

    def _progress(self, job: Job, of: Progress) -> None:
        ts = _times(EVERY, 21)
        still = END.timestamp() - 60 * of.still
        steps = np.floor((np.minimum(ts, still) - ts[0]) / 10)
        words = {"namespace": job.namespace, "pod": _pod(job, 0), "job": "trainer"}
        self.history.add(of.metric, words, ts, steps)


def _times(every: int, offset: float) -> Floats:
    made: Floats = np.arange((END - LASTS).timestamp() + offset, END.timestamp(), every)
    return made


def _pod(job: Job, rank: int) -> str:
    return f"{job.name}-worker-{rank}"


def _node(job: Job, rank: int) -> str:
    return f"{job.name}-n{rank}"
