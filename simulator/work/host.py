"""Compute host signals and intent signals of a pod at one time, besides its GPUs' signals."""

from datetime import UTC, datetime

import numpy as np

from simulator.models import Holder, HostSample
from simulator.work.behaviours import Script
from simulator.work.chance import Array
from simulator.work.levels import build_histograms, compute_pace

MIB = 2**20
REST_MIB = 1500.0
"""A Python process with its framework loaded."""


def sample_host(holder: Holder, script: Script, at_s: float) -> HostSample:
    """Return the signals of one pod at a time (epoch s); None where it has no such signal."""
    tick = np.array([at_s])
    busy = script.kernel_busy(tick)
    received, sent = script.net(tick)
    memory_mib = script.memory_mib(tick, script.plan.first_rank)
    return HostSample(
        holder=holder,
        at=_convert_timestamp(at_s),
        cpu_cores=float(script.cpu_cores(tick)[0]),
        memory_bytes=(REST_MIB + 0.5 * float(memory_mib[0])) * MIB,
        network_rx_bytes_s=float(received[0]),
        network_tx_bytes_s=float(sent[0]),
        cpu_throttled=float(script.cpu_throttled(tick)[0]),
        kernel_busy=None if busy is None else bool(busy[0]),
        kernel_last_activity=_find_last(script.kernel_last(tick)),
        terminal_last_activity=_find_last(script.terminal_last(tick)),
        requests_running=_get_number(script.requests_running(tick)),
        requests_total=_get_number(script.requests_total(tick)),
        latencies=build_histograms(script, at_s),
        pace=compute_pace(script, at_s),
        server_last_activity=_find_last(script.server_last(tick)),
    )


def _get_number(values: Array | None) -> float | None:
    return None if values is None else float(values[0])


def _find_last(values: Array | None) -> datetime | None:
    return None if values is None else _convert_timestamp(float(values[0]))


def _convert_timestamp(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
