"""Write rows of hosts over stretches of time directly: `HostRows` without single samples.

A test checks that they equal the rows of `HostRows` at the same times.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.tables import Batch
from simulator.exporters.device_telemetry import get_skew_s
from simulator.exporters.quirks import Quirks
from simulator.exporters.service_rows import PodSteps, build_latencies, build_steps, compute_steps
from simulator.models import DeviceAllocation, Marks
from simulator.work.behaviours import Script
from simulator.work.chance import Array
from simulator.work.host import MIB, REST_MIB
from simulator.work.kinds import read_kinds

Integers = npt.NDArray[np.int64]


def build_host_spans(
    allocations: Sequence[DeviceAllocation],
    scripts: Mapping[str, Script],
    timestamps: Array,
    *,
    cluster: str,
    quirks: Quirks,
    node_of: Mapping[str, str],
) -> Iterator[Batch]:
    """Yield rows of hosts, notebooks, latencies and steps of every pod at some times (epoch s).

    Latencies are of the whole hours that end among the times, steps of the times on the grid of
    five minutes. A pod whose image is being pulled has no rows.
    Times are evenly spaced. The first sample of a pod's requests has no rate: use times that follow
    the times of the call before, and its counter is read one step earlier. `node_of` returns a
    pod's node by uid.
    """
    if not len(timestamps):
        return
    every_s = float(timestamps[1] - timestamps[0]) if len(timestamps) > 1 else 0.0
    pods: list[dict[str, Any]] = []
    notebooks: list[dict[str, Any]] = []
    latencies: list[Batch] = []
    steps: list[PodSteps] = []
    for allocation in allocations:
        now = timestamps[(timestamps >= allocation.start_s) & (timestamps < allocation.end_s)]
        script = scripts[allocation.holder.uid]
        latencies += build_latencies(allocation, script, timestamps, cluster)
        running = mark_running(script, now)
        if not running.all():
            now = now[running]  # else the same array: a script keeps what it computed for it
        if not len(now):
            continue
        holder = allocation.holder
        names = {"ts": convert_times(now), "namespace": holder.namespace, "pod": holder.pod}
        pods.append({**names, **_build_pod_columns(script, now, every_s, allocation.start_s)})
        steps += filter(None, [compute_steps(allocation, script, now)])
        node = node_of.get(allocation.holder.uid, "")
        notebook_rows = _build_notebook_columns(script, now, get_skew_s(quirks, node) or 0.0)
        if notebook_rows is not None:
            notebooks.append({**names, **notebook_rows})
    for table, parts in (("pod_sample", pods), ("notebook_sample", notebooks)):
        if parts:
            counts = [len(part["ts"]) for part in parts]
            columns = {name: _join([p[name] for p in parts], counts) for name in parts[0]}
            clusters = pa.repeat(pa.scalar(cluster), sum(counts))
            yield Batch.of(table, {"cluster": clusters, **columns})
    if latencies:
        rows = pa.concat_tables([batch.rows for batch in latencies])
        yield Batch("latency_sample", rows.combine_chunks())
    if steps:
        yield build_steps(steps, cluster)


def _build_pod_columns(
    script: Script, now: Array, every_s: float, start_s: float
) -> dict[str, object]:
    received, sent = script.net(now)
    cores, memory = compute_pod_use(script, now)
    total = script.requests_total(now)
    rates: object = pa.nulls(len(now), pa.float64())
    if total is not None and every_s:
        earlier = now - every_s
        before = script.requests_total(earlier)
        grown = total if before is None else total - before
        unread = (earlier < start_s) | ~mark_running(script, earlier)
        rates = pa.array(grown / every_s, mask=unread)
    return {
        "interval_s": np.full(len(now), every_s),
        "cpu_cores": cores,
        "cpu_throttled_ratio": script.cpu_throttled(now),
        "memory_bytes": memory,
        "net_rx_bps": received,
        "net_tx_bps": sent,
        "requests_per_s": rates,
    }


def compute_pod_use(script: Script, now: Array) -> tuple[Array, Integers]:
    """Return the cores and the bytes that a pod uses of its host."""
    memory = script.memory_mib(now, script.plan.first_rank)
    return script.cpu_cores(now), np.rint((REST_MIB + 0.5 * memory) * MIB).astype(np.int64)


def _build_notebook_columns(script: Script, now: Array, ahead_s: float) -> dict[str, object] | None:
    busy, kernel = script.kernel_busy(now), script.kernel_last(now)
    if busy is None or kernel is None:
        return None
    shell = script.terminal_last(now)
    whole = np.ones(len(now), np.int32)
    return {
        "kernels": whole,
        "busy_kernels": busy.astype(np.int32),
        # The age of a busy kernel is measured by the reader's clock, not by the notebook's.
        "last_kernel_activity": convert_times(np.where(busy, now, kernel + ahead_s)),
        "terminals": whole * (shell is not None),
        "last_terminal_activity": pa.nulls(len(now), pa.timestamp("us"))
        if shell is None
        else pa.array(convert_times(shell + ahead_s)),
        "connections": busy.astype(np.int32),
    }


def mark_running(script: Script, now: Array) -> Marks:
    """Return whether a pod runs at some moments: its image is pulled, and it has begun."""
    works: Marks = script.timeline.kind_at(now) != read_kinds().number("pull")
    return works & (now >= script.start_s)


def _join(columns: Sequence[Any], counts: Sequence[int]) -> object:
    """Return the values of one column of all pods; casting them once takes a fifth of the time.

    `counts`: each pod's rows; a text is the same in all of them.
    """
    if isinstance(columns[0], str):
        return pa.array(columns).take(pa.array(np.repeat(np.arange(len(columns)), counts)))
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return pa.concat_arrays(columns)


def convert_times(timestamps: Array) -> npt.NDArray[np.datetime64]:
    """Return moments (epoch s) as the tables have them."""
    return np.rint(timestamps * 1e6).astype(np.int64).astype("datetime64[us]")
