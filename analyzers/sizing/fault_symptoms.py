"""Detect symptoms of a fault or a wait: a hang, a slow rank, the host, the input, the links."""

from analyzers.gpu_peaks import read_gpu_peaks
from analyzers.sizing.limits import get_limit
from analyzers.sizing.rows import WorkloadUse
from analyzers.sizing.symptoms import Symptom, describe_power
from capacity.workload_kinds import is_gang
from fallow.settings.workloads import SizingSettings
from warehouse.signals import SPIN

GIGA = 1e9


def detect_hang(row: WorkloadUse) -> Symptom | None:
    """Detect a hang: engines busy, no tensor, memory or traffic activity, for hours.

    It is only suspected if there was no work before.
    """
    spun = row.spin_s / 3600
    all_spin = row.spinning >= 0.9 * row.gpus
    worked = row.spin_s < row.device_s
    if not (all_spin and spun >= get_limit("hang_hours") * row.gpus):
        return None
    power, most = row.spin_w, SPIN["spin_tdp"] * (row.tdp_w or 0)
    if power is not None and most and power >= most:
        return None
    agrees = power is not None and bool(most)
    share = row.spin_s / row.device_s
    return Symptom(
        "busy_hang",
        share,
        "confirmed" if agrees and worked else "suspected",
        {
            "compute": f"engines busy for {spun:.1f} device-hours without tensor, memory or link "
            f"activity, {'after work' if worked else 'and no work was seen before'}",
            "physics": f"{power:.0f} W, below {most:.0f} W" if agrees else "unknown",
        },
        advice=(("busy_hang", share, {}),),
    )


def detect_straggler(row: WorkloadUse) -> Symptom | None:
    """Detect a straggler: one rank works, the others wait for it.

    The evidence is SM activity, and power where it is measured.
    """
    ranks, busy, most = row.ranks or 0, row.rank_busy or 0, row.rank_most
    if ranks < 2 or not is_gang(row.workload_kind):  # noqa: PLR2004
        return None
    if not most or row.rank_median is None or row.rank_mean is None or busy > max(1, ranks // 4):
        return None
    median = row.rank_median / most
    if median > get_limit("straggler_ratio"):
        return None
    power = row.slow_power
    agrees = power is not None and power <= get_limit("straggler_power")
    clock = row.slow_clock
    slow = clock is not None and clock < get_limit("slow_clock")
    share = 1 - row.rank_mean / most
    words = {
        "median": median,
        "slow": f"{row.slow_device} on {row.slow_node}",
        "clock": f", whose clock runs at {clock:.0%} of theirs" if slow else "",
    }
    return Symptom(
        "straggler",
        share,
        "confirmed" if agrees else "suspected",
        {
            "compute": f"SM activity {most:.2f} on one rank, {row.rank_median:.2f} on the median",
            "physics": "unknown"
            if power is None
            else f"the others draw {power:.0%} of its power above idle",
            "clock": "lower on the slow rank" if slow else "alike",
        },
        advice=(("straggler", share, words),),
    )


def detect_starved(row: WorkloadUse, settings: SizingSettings) -> Symptom | None:
    """Detect a starved host: CPU is throttled, or at its limit, while the engines wait."""
    if row.engine is None or row.engine >= get_limit("starved_engine"):
        return None
    throttled, full = row.throttled, row.cpu_full
    reasons = []
    if throttled is not None and throttled > settings.throttled:
        reasons.append(f"CFS throttles {throttled:.0%} of the periods")
    if full is not None and full >= get_limit("at_limit"):
        reasons.append(f"CPU in use is {full:.0%} of the limit")
    if not reasons:
        return None
    share = 1 - row.engine
    host = " and ".join(reasons)
    words = {"host": host, "engine": row.engine}
    return Symptom(
        "cpu_starved",
        share,
        "confirmed",
        {"compute": f"engines work {row.engine:.0%} of the time", "host": host},
        advice=(("cpu_starved", share, words),),
    )


def detect_input_bound(row: WorkloadUse) -> Symptom | None:
    """Detect an input-bound workload: much traffic over PCIe and little computation."""
    sm, pcie, engine = row.sm, row.pcie_bps, row.engine
    if sm is None or pcie is None or engine is None:
        return None
    if sm >= get_limit("input_sm") or pcie < get_limit("pcie_bps"):
        return None
    agrees = row.power_share is not None and row.power_share <= get_limit("low_power")
    share = 1 - engine
    return Symptom(
        "input_bound",
        share,
        "confirmed" if agrees else "suspected",
        {
            "compute": f"SM activity {sm:.2f}",
            "input": f"{pcie / GIGA:.1f} GB/s over PCIe at the height of a typical hour",
            "physics": describe_power(row),
        },
        advice=(("input_bound", share, {"pcie": pcie / GIGA, "sm": sm}),),
    )


def detect_comm_bound(row: WorkloadUse) -> Symptom | None:
    """Detect a communication-bound workload: busy links, idle tensor cores, several devices."""
    peaks = read_gpu_peaks().get(row.model or "")
    if peaks is None or not peaks.nvlink_gbs or row.gpus < 2:  # noqa: PLR2004
        return None
    tensor, bps = row.tensor, row.nvlink_bps
    if tensor is None or bps is None or tensor >= get_limit("comm_tensor"):
        return None
    link = min(1.0, bps / GIGA / peaks.nvlink_gbs)
    if link < get_limit("link_share"):
        return None
    network = row.net_bps or 0.0
    return Symptom(
        "comm_bound",
        link,
        "suspected",
        {
            "compute": f"tensor activity {tensor:.2f}",
            "links": f"{link:.0%} of the NVLink peak at the height of a typical hour",
            "host": f"{network / GIGA:.1f} GB/s per pod on the network"
            if network >= GIGA
            else "unknown",
        },
        advice=(("comm_bound", link, {"link": link, "tensor": tensor}),),
        ceiling=True,
    )
