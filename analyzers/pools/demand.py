"""Compute a pool's peak demand: its distinct requests, and how many of each ran at the peak.

The sum of all pods of a window is no demand: most of them never ran at the same time. The relevant
times are those at which GPUs, CPU, memory or the number of pods were highest. The pool must hold
the pods of each of these times, one time after the other.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec
import polars as pl

from analyzers.pending import PendingPod
from analyzers.pools.rows import PodFacts
from analyzers.pools.shapes import WHOLE, PodShape, Sharing
from analyzers.rows import decode_frame
from fallow.gpu_models import find_gpu_model, parse_models
from fallow.node_requirements import decode_document, read_requirements
from fallow.settings.capacity import PoolsSettings
from fallow.stored_annotations import SELECTOR

MIB = 2**20
PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
TYPE_LABEL, ARCH_LABEL = "node.kubernetes.io/instance-type", "kubernetes.io/arch"
VENDORS = {"nvidia.com": "nvidia", "amd.com": "amd", "huawei.com": "ascend"}
GANGS = (
    "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "JobSet",
    "LeaderWorkerSet", "RayJob", "RayCluster", "PodGroup", "VolcanoJob",
)  # fmt: skip
"""Kinds whose pods compute together, over NVLink where they share a node."""
MIG_COMPUTE, MIG_MEMORY = 7, 8
_FACTS = PodFacts.__struct_encode_fields__
_EVENTS = ("gpus", "cpu", "memory", "pods")


class PoolPeak(msgspec.Struct, frozen=True):
    """The pods that a pool must hold at each peak, the time of each, and the largest requests."""

    peaks: tuple[Counter[PodShape], ...]
    times: dict[str, datetime]
    gpus: float
    cpu_cores: float
    memory_gib: float
    pods: int
    guessed_cpu: int
    """Pods with GPUs that request no CPU: they are counted with their GPUs' share of the node."""

    @property
    def shapes(self) -> tuple[PodShape, ...]:
        """Return every request of every peak."""
        return tuple(sorted({shape for peak in self.peaks for shape in peak}))


def add_shapes(pods: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Return the pods with a column `shape`: the number of the pod's request.

    Adds `least_gpus` for gangs and the host share of one GPU of the pod's node.
    """
    hosts = nodes.select(
        "cluster",
        "node",
        "gpu_count",
        "arch",
        per_gpu_cpu=pl.col("cpu_milli") // pl.col("gpu_count"),
        per_gpu_memory=pl.col("memory_bytes") // pl.col("gpu_count"),
    )
    gpus = pl.col("gpu_request").fill_null(1.0)
    gang = pl.col("workload_kind").is_in(GANGS) & (gpus > 0)
    team = gpus.filter(gang & pl.col("pod").is_first_distinct()).sum()
    owner = ["cluster", "namespace", "workload_kind", "workload"]
    return pods.join(hosts, on=["cluster", "node"], how="left").with_columns(
        least_gpus=pl.when(gang & (team.over(owner) > gpus))
        .then(pl.min_horizontal(team.over(owner), pl.col("gpu_count")))
        .otherwise(0)
        .fill_null(0)
        .ceil()
        .cast(pl.Int64)
    )


def find_peak(
    pods: pl.DataFrame, settings: PoolsSettings, waiting: Mapping[PodShape, int] | None = None
) -> PoolPeak:
    """Return a pool's demand; DaemonSets are left out because each node adds its own.

    Pods that wait at the window's end are added to those that run then, whatever the quantile.
    """
    pods = pods.filter(~pl.col("daemon"))
    facts = pods.select(_FACTS).unique(maintain_order=True)
    shapes = [build_shape(row) for row in decode_frame(facts, PodFacts)]
    requests = facts.with_columns(
        number=pl.int_range(pl.len(), dtype=pl.Int64),
        gpus=pl.Series([s.gpus * s.milli / WHOLE for s in shapes], dtype=pl.Float64),
        cpu=pl.Series([s.cpu_milli for s in shapes], dtype=pl.Int64),
        memory=pl.Series([s.memory_mib for s in shapes], dtype=pl.Int64),
        guessed=pl.Series([s.gpus > 0 for s in shapes], dtype=pl.Boolean)
        & pl.col("cpu_request_milli").is_null(),
    )
    live = pods.join(requests, on=list(_FACTS), how="left", nulls_equal=True)
    times = _find_peak_times(live, settings.quantile)
    peaks = []
    guessed = 0
    for time in sorted(set(times.values())):
        there = live.filter((pl.col("start") <= time) & (pl.col("end") > time))
        guessed = max(guessed, int(there["guessed"].sum()))
        peak: Counter[PodShape] = Counter()
        for number, count in there.group_by("number").len().iter_rows():
            peak[shapes[number]] += count
        spare = 1 + settings.headroom
        peaks.append(Counter({s: math.ceil(n * spare) for s, n in peak.items()}))
    if waiting:
        last = live.filter(pl.col("end") == pl.col("end").max())
        peak = Counter(waiting)
        for number, count in last.group_by("number").len().iter_rows():
            peak[shapes[number]] += count
        peaks.append(peak)
    return PoolPeak(
        peaks=tuple(peaks),
        times=times,
        gpus=_compute_most(peaks, lambda s: s.gpus * s.milli / WHOLE),
        cpu_cores=_compute_most(peaks, lambda s: s.cpu_milli / 1000),
        memory_gib=_compute_most(peaks, lambda s: s.memory_mib / 1024),
        pods=round(_compute_most(peaks, lambda _: 1)),
        guessed_cpu=guessed,
    )


def _compute_most(peaks: Sequence[Counter[PodShape]], amount: Callable[[PodShape], float]) -> float:
    return max((sum(amount(s) * n for s, n in peak.items()) for peak in peaks), default=0.0)


def _find_peak_times(live: pl.DataFrame, quantile: float) -> dict[str, datetime]:
    """Return when each dimension was highest, while GPUs were at most at the quantile."""
    amounts = {"gpus": pl.col("gpus"), "cpu": pl.col("cpu"), "memory": pl.col("memory"),
               "pods": pl.lit(1)}  # fmt: skip
    begins = live.select(at="start", **amounts)
    ends = live.select(at="end", **{name: -amount for name, amount in amounts.items()})
    steps = (
        pl.concat([begins, ends], how="vertical_relaxed")
        .group_by("at")
        .agg(pl.col(_EVENTS).sum())
        .sort("at")
        .with_columns(pl.col(_EVENTS).cum_sum())
        .with_columns(pl.col("gpus").round(6), seconds=_measure_durations())
        .filter(pl.col("seconds") > 0)
    )
    if steps.is_empty():
        return {}
    lowest = steps.sort("gpus")
    enough = lowest["seconds"].cum_sum() >= quantile * float(lowest["seconds"].sum()) * (1 - 1e-9)
    steps = steps.filter(pl.col("gpus") <= lowest["gpus"].filter(enough)[0])
    return {name: steps["at"][int(steps[name].arg_max() or 0)] for name in _EVENTS}


def _measure_durations() -> pl.Expr:
    later = pl.col("at").shift(-1) - pl.col("at")
    return (later.dt.total_microseconds() / 1e6).fill_null(0.0)


def build_shape(row: PodFacts) -> PodShape:
    """Return what a pod requests of a node, from its row and the node it ran on.

    Another GPU model or architecture may not be suitable. So a pod keeps those it ran on, unless it
    names models itself. A pod with GPUs that requests no CPU or memory gets its GPUs' share of its
    node.
    """
    selector = dict(read_requirements({SELECTOR: decode_document(row.selector)}).selector)
    gpus, milli, sharing, gpu_memory = _read_gpus(row)
    cpu, memory = row.cpu_request_milli, row.memory_request_bytes
    whole_gpus = gpus * milli / WHOLE
    if gpus and cpu is None:
        cpu = math.floor((row.per_gpu_cpu or 0) * whole_gpus)
    if gpus and memory is None:
        memory = math.floor((row.per_gpu_memory or 0) * whole_gpus)
    return PodShape(
        gpus=gpus,
        milli=milli,
        cpu_milli=cpu or 0,
        memory_mib=math.ceil((memory or 0) / MIB),
        gpu_memory_mib=gpu_memory,
        sharing=sharing,
        vendor=_find_vendor(row) if gpus else "",
        arch=_get_only(selector.get(ARCH_LABEL)) or row.arch or "",
        models=_list_models(row, selector) if gpus else (),
        types=tuple(sorted(selector.get(TYPE_LABEL, ()))),
        least_gpus=row.least_gpus,
    )


def build_waiting_shape(pod: PendingPod, models: Sequence[str], arch: str) -> PodShape:
    """Return what a pod without a node requests of a pool with these GPU models."""
    share = pod.gpus > 1 and pod.gpu_milli < WHOLE
    return build_shape(
        PodFacts(
            gpu_resource=f"nvidia.com/mig-{pod.profile}" if pod.profile else "",
            gpu_request=pod.amount,
            gpu_core_request_pct=pod.gpu_milli * 100 / WHOLE if share else None,
            gpu_mem_request_bytes=None,
            cpu_request_milli=pod.cpu_milli,
            memory_request_bytes=pod.memory_bytes,
            selector=None,
            gpu_spec="|".join(pod.requirements.models or models),
            gpu_type=None,
            gpu_model=next(iter(models), None),
            arch=arch,
            least_gpus=0,
        )
    )


def _read_gpus(row: PodFacts) -> tuple[int, int, Sharing, int]:
    """Return GPUs, thousandths of each, the sharing method, and MiB requested of each."""
    resource, request = row.gpu_resource or "", row.gpu_request
    if request is not None and request <= 0:
        return 0, WHOLE, "", 0
    if "/mig-" in resource:
        return _read_mig_instance(resource, request)
    memory, cores = row.gpu_mem_request_bytes, row.gpu_core_request_pct
    if request is None:  # only memory is requested: its share of the GPU, if known
        model = find_gpu_model(row.gpu_model)
        part = memory / (model.memory_gib * 1024 * MIB) if memory and model else 1.0
        return 1, _round_milli(part), "share" if part < 1 else "", 0
    number = round(request / (cores / 100)) if cores and 0 < cores < 100 else 1  # noqa: PLR2004
    if number == 1 and 0 < request < 1:
        return 1, _round_milli(request), "share", math.ceil(memory / MIB) if memory else 0
    return max(number, math.ceil(request - 1e-6)), WHOLE, "", 0


def _read_mig_instance(resource: str, request: float | None) -> tuple[int, int, Sharing, int]:
    """Return the share of a MIG instance: the greater of its compute slices and memory slices.

    That never fits more instances on a GPU than the placement tables do.
    """
    profile = resource.partition("/mig-")[2]
    compute = int(profile.partition("g")[0] or 1)
    instances = max(1, round((request or 0) * MIG_COMPUTE / compute))
    memory = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}.get(compute, 8)
    part = max(compute / MIG_COMPUTE, memory / MIG_MEMORY)
    return (1, _round_milli(part), "mig", 0) if instances == 1 else (instances, WHOLE, "", 0)


def _round_milli(part: float) -> int:
    """Return thousandths; a seventh is 142, so that seven fit on a GPU."""
    return min(max(int(part * WHOLE + 1e-6), 1), WHOLE)


def _find_vendor(row: PodFacts) -> str:
    model = find_gpu_model(row.gpu_model)
    prefix = (row.gpu_resource or "").partition("/")[0]
    return VENDORS.get(prefix) or (model.vendor if model else "")


def _list_models(row: PodFacts, selector: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    named = [v for label in PRODUCT_LABELS for v in selector.get(label, ())]
    named += [text for text in (row.gpu_spec, row.gpu_type) if text]
    return parse_models("|".join(named) or row.gpu_model)


def _get_only(values: Sequence[str] | None) -> str:
    return values[0] if values and len(values) == 1 else ""
