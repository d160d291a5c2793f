"""Signs that less would do: few SMs at work, seldom at work, a smaller device."""

from typing import Any

from analyzers.sizing.limits import limit
from analyzers.sizing.signs import Row, Sign, said_power
from analyzers.work import HELD
from fallow.settings import SizingSettings


def shallow(row: Row) -> Sign | None:
    """A kernel always runs, on few of the SMs."""
    sm, engine = row["sm"], row["engine"]
    if sm is None or engine is None or engine < limit("deep_engine"):
        return None
    share = 1 - sm / limit("useful_sm")
    return Sign(
        "low_depth",
        share,
        "suspected",
        {
            "compute": f"engines {engine:.2f}, SM activity {sm:.2f}",
            "physics": said_power(row),
        },
        advice=(("low_depth", share, {"engine": engine, "sm": sm}),),
        ceiling=True,
    )


def seldom(row: Row, settings: SizingSettings) -> Sign | None:
    """Hours at work in which kernels run little of the time."""
    act, peak, gpus = row["act"], row["act_peak"], row["gpus"]
    agrees = row["power_share"] is not None and row["power_share"] <= limit("low_power")
    fewer = max(1, int(-(-gpus * peak // settings.target)))
    share, kind = 1 - fewer / gpus, "low_duty"
    words: dict[str, Any] = {
        "fewer": fewer,
        "gpus": gpus,
        "target": settings.target,
        "parameters": {"fewer_gpus": fewer},
    }
    if fewer >= gpus:
        share, kind = 1 - peak / settings.target, "low_duty_single"
        words = {"act": act}
    if share <= 0 or (row["instance"] and kind == "low_duty_single"):
        return None
    return Sign(
        "low_duty",
        share,
        "confirmed" if agrees else "suspected",
        {
            "compute": f"active {act:.0%} of the hours it worked, {peak:.0%} in the busiest",
            "physics": said_power(row),
        },
        advice=((kind, share, words),),
    )


def smaller(row: Row, options: list[tuple[str, float, dict[str, Any]]]) -> Sign:
    """Return the sign of a workload that something smaller would hold; the best option first."""
    agrees = row["power_share"] is not None and row["power_share"] <= limit("low_power")
    shared_only = options[0][0] == "share_gpu"
    return Sign(
        "oversized",
        options[0][1],
        "confirmed" if agrees and not shared_only else "suspected",
        {
            "compute": f"busiest hour: SM {row['sm_peak']:.2f}, DRAM {row['dram_peak'] or 0:.2f}",
            "memory": f"{row['mem_most'] / 2**30:.1f} of {row['memory_bytes'] / 2**30:.0f} GiB at "
            "most, which bounds the need from above",
            "physics": said_power(row),
        },
        states=HELD,
        advice=tuple(options),
    )
