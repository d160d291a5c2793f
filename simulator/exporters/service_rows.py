"""Write rows of servers and training loops directly, as the Prometheus collector does."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.tables import Batch
from simulator.exporters.inference import LATENCIES
from simulator.models import DeviceAllocation, Holder
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
    if script.family != "serving":
        return
    every_s = float(timestamps[1] - timestamps[0]) if len(timestamps) > 1 else HOUR_S
    first = np.floor(timestamps[0] / HOUR_S)
    last = np.floor((timestamps[-1] + every_s) / HOUR_S)
    begins = np.arange(first, last) * HOUR_S
    begins = begins[(begins < allocation.end_s) & (begins + HOUR_S > allocation.start_s)]
    if not len(begins):
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
                "source": _repeat_text(LATENCIES[metric], len(begins)),
                "interval_s": np.full(len(begins), HOUR_S),
                "count": counts.sum(axis=0),
                "total_s": after[1] - before[1],
                "bounds": _build_lists(np.tile(np.array(law.bounds), (len(begins), 1))),
                "counts": _build_lists(counts.T),
            },
        )


class PodSteps(msgspec.Struct, frozen=True):
    """The steps of one pod's training loop, by time."""

    holder: Holder
    at: Array
    tokens_per_s: Array
    """Of the whole job."""
    leads: bool
    """Whether it is the first rank: it alone reports the job's tokens."""
    allocated_bytes: Array
    reserved_bytes: Array


def compute_steps(allocation: DeviceAllocation, script: Script, now: Array) -> PodSteps | None:
    """Return a pod's steps at the moments that lie on the grid; None = it has none."""
    if script.family != "training":
        return None
    on_grid = now % STEP_S == 0
    at = now if on_grid.all() else now[on_grid]
    tokens = compute_throughput(script, at)
    if tokens is None or not len(at):
        return None
    has_tokens = ~np.isnan(tokens)
    if not has_tokens.all():
        at, tokens = at[has_tokens], tokens[has_tokens]
    if not len(at):
        return None
    allocated, reserved = compute_memory(script, at)
    return PodSteps(allocation.holder, at, tokens, script.plan.first_rank == 0, allocated, reserved)


def build_steps(parts: Sequence[PodSteps], cluster: str) -> Batch:
    """Return the `step_sample` rows of some pods: all of them at once take less time."""
    counts = [len(part.at) for part in parts]
    places = pa.array(np.repeat(np.arange(len(parts)), counts))
    leads = np.repeat([part.leads for part in parts], counts)
    tokens = np.concatenate([part.tokens_per_s for part in parts])

    def repeat_each(texts: Sequence[str | None]) -> pa.Array:
        return pa.array(texts, pa.string()).take(places)

    return Batch.of(
        "step_sample",
        {
            "cluster": _repeat_text(cluster, len(places)),
            "ts": _convert_times(np.concatenate([part.at for part in parts])),
            "namespace": repeat_each([part.holder.namespace for part in parts]),
            "pod": repeat_each([part.holder.pod for part in parts]),
            "interval_s": np.full(len(places), STEP_S),
            "work": repeat_each([WORK if part.leads else None for part in parts]),
            "job_work_per_s": pa.array(tokens, mask=~leads),
            "allocated_bytes": _join_bytes([part.allocated_bytes for part in parts]),
            "reserved_bytes": _join_bytes([part.reserved_bytes for part in parts]),
        },
    )


def _join_bytes(parts: Sequence[Array]) -> npt.NDArray[np.int64]:
    return np.concatenate(parts).astype(np.int64)


def _build_names(
    allocation: DeviceAllocation, timestamps: Array, cluster: str
) -> dict[str, object]:
    return {
        "cluster": _repeat_text(cluster, len(timestamps)),
        "ts": _convert_times(timestamps),
        "namespace": _repeat_text(allocation.holder.namespace, len(timestamps)),
        "pod": _repeat_text(allocation.holder.pod, len(timestamps)),
    }


def _convert_times(timestamps: Array) -> npt.NDArray[np.datetime64]:
    return np.rint(timestamps * 1e6).astype(np.int64).astype("datetime64[us]")


def _repeat_text(text: str | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _build_lists(values: Array) -> pa.Array:
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(offsets, np.ascontiguousarray(values).ravel())
