"""Write rows of servers and training loops directly, as the Prometheus collector does."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.tables import Batch
from simulator.exporters.inference import LATENCIES
from simulator.models import DeviceAllocation
from simulator.work.behaviours import Script
from simulator.work.chance import Array
from simulator.work.levels import LAWS, compute_memory, compute_throughput, count_latencies

HOUR_S = 3600.0
STEP_S = 300.0
WORK = "trainer_throughput_tokens_per_sec"


def build_latencies(
    allocation: DeviceAllocation, script: Script, timestamps: Array, cluster: str
) -> Iterator[Batch]:
    """Yield the `latency_sample` rows of the hours that end among the moments."""
    every_s = float(timestamps[1] - timestamps[0]) if len(timestamps) > 1 else HOUR_S
    first = np.floor(timestamps[0] / HOUR_S)
    last = np.floor((timestamps[-1] + every_s) / HOUR_S)
    begins = np.arange(first, last) * HOUR_S
    begins = begins[(begins < allocation.end_s) & (begins + HOUR_S > allocation.start_s)]
    if script.family != "serving" or not len(begins):
        return
    ends = np.minimum(begins + HOUR_S, allocation.end_s)
    for metric, law in LAWS.items():
        before = count_latencies(script, np.maximum(begins, allocation.start_s), metric)
        after = count_latencies(script, ends, metric)
        if before is None or after is None:
            continue
        counts = np.diff(after[0] - before[0], axis=0, prepend=0.0)
        yield Batch.of(
            "latency_sample",
            {
                **_build_names(allocation, begins, cluster),
                "metric": _repeat_text(metric, len(begins)),
                "source": _repeat_text(LATENCIES[metric][0], len(begins)),
                "interval_s": np.full(len(begins), HOUR_S),
                "count": counts.sum(axis=0),
                "total_s": after[1] - before[1],
                "bounds": _build_lists(np.tile(np.array(law.bounds), (len(begins), 1))),
                "counts": _build_lists(counts.T),
            },
        )


def build_steps(
    allocation: DeviceAllocation, script: Script, now: Array, cluster: str
) -> Iterator[Batch]:
    """Yield the `step_sample` rows of the moments that lie on the grid."""
    at = now[now % STEP_S == 0]
    tokens = compute_throughput(script, at)
    if tokens is None or not len(at):
        return
    has_tokens = ~np.isnan(tokens)
    at, tokens = at[has_tokens], tokens[has_tokens]
    if not len(at):
        return
    allocated, reserved = compute_memory(script, at)
    leads = script.plan.first_rank == 0
    yield Batch.of(
        "step_sample",
        {
            **_build_names(allocation, at, cluster),
            "interval_s": np.full(len(at), STEP_S),
            "work": _repeat_text(WORK if leads else None, len(at)),
            "job_work_per_s": tokens if leads else None,
            "allocated_bytes": allocated.astype(np.int64),
            "reserved_bytes": reserved.astype(np.int64),
        },
    )


def _build_names(
    allocation: DeviceAllocation, timestamps: Array, cluster: str
) -> dict[str, object]:
    stamps: npt.NDArray[np.datetime64] = (
        np.rint(timestamps * 1e6).astype(np.int64).astype("datetime64[us]")
    )
    return {
        "cluster": _repeat_text(cluster, len(timestamps)),
        "ts": stamps,
        "namespace": _repeat_text(allocation.holder.namespace, len(timestamps)),
        "pod": _repeat_text(allocation.holder.pod, len(timestamps)),
    }


def _repeat_text(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _build_lists(values: Array) -> pa.Array:
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(offsets, np.ascontiguousarray(values).ravel())
