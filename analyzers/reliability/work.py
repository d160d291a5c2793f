"""What failures and slow GPUs cost the workloads they strike."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec

from analyzers.checkpoints import Checkpoints, Owner
from analyzers.queries import load_rows
from analyzers.reliability.clocks import SlowDevice
from analyzers.reliability.failures import STEPS, Failure
from analyzers.reliability.finding_builder import (
    MOST_NAMED,
    GpuCost,
    build_claims,
    build_finding,
    round_value,
    sum_states,
)
from fallow.checkpointing import daly, mtbf, time_per_work
from fallow.models import Finding, Recommendation, Subject, Unjudged
from fallow.settings import ReliabilitySettings
from fallow.window import Window, format_duration


class LostWork(msgspec.Struct, frozen=True):
    """Work that one failure threw away, as `work_lost` has it."""

    gpu_hours: float
    measured: bool


def build_lost_work(  # noqa: PLR0917  (one caller)
    owner: Owner,
    failed: Sequence[Failure],
    checkpoints: Checkpoints,
    costs: Mapping[str, GpuCost],
    thrown: Mapping[datetime, LostWork],
    settings: ReliabilitySettings,
    window: Window,
) -> Finding | None:
    """Return what a workload's failures cost: allocated while dead, started again, done again.

    What is done again is what `work_lost` says; of a failure that it does not have, half of the
    interval between two checkpoints. `thrown`: its rows by when the failure was.
    """
    worked = sum_states(costs, ("productive", "low", "lost"))
    startup = costs.get("startup", GpuCost(0.0, Decimal()))
    hours = worked.gpu_hours + startup.gpu_hours
    replay = [
        thrown[f.at].gpu_hours
        if f.at in thrown
        else min(checkpoints.interval_h / 2, f.run_hours) * f.gpus
        for f in failed
    ]
    seen = all(f.at in thrown and thrown[f.at].measured for f in failed)
    steps = [f.seconds for f in failed if f.seconds]
    dead = sum(
        (f.seconds["detect"] + f.seconds["drain"]) / 3600 * f.gpus for f in failed if f.seconds
    )
    loaded = sum(f.load_s / 3600 * f.gpus for f in failed if f.seconds)
    again = min(loaded, startup.gpu_hours)
    lost = min(sum(replay) + dead + again, hours)
    if lost < settings.min_gpu_hours:
        return None
    usd = worked.plus(startup).part(lost)
    span = window.seconds / 3600
    measured = mtbf(sum(f.cause not in {"spot", "preemption"} for f in failed), span)
    write_h = (checkpoints.write_s or settings.write.total_seconds()) / 3600
    # A checkpoint serves whatever interrupts the work, a spot node that is taken back as well.
    between = mtbf(len(failed), span).mean_h or span
    best = daly(write_h, between)
    restart = sum(sum(s.values()) for s in steps) / len(steps) / 3600 if steps else 0.0
    saved = _compute_saved(failed, replay, best, worked.gpu_hours, write_h, checkpoints.interval_h)
    claims = build_claims(owner, costs, saved) if saved > 0 else ()
    confirmed = checkpoints.regular and all(f.cause != "application" for f in failed)
    about = Subject(*owner, nodes=tuple(sorted({n for f in failed for n in f.nodes}))[:MOST_NAMED])
    return build_finding(
        "lost_work",
        about,
        window,
        GpuCost(lost, usd),
        {
            "why": "failures: "
            + ", ".join(f"{n} by {c}" for c, n in sorted(Counter(f.cause for f in failed).items())),
            "failures": [_describe_failure(f) for f in failed[:MOST_NAMED]],
            "failures_count": len(failed),
            "gpu_hours_by_step": {
                "held_while_dead": round(dead, 3),
                "started_again": round(again, 3),
                "replayed": round(sum(replay), 3),
            },
            "mean_seconds_to_recover": {
                **{k: round(sum(s[k] for s in steps) / len(steps), 1) for k in STEPS},
                "replay": round(sum(replay) * 3600 / sum(f.gpus for f in failed), 1),
            }
            if steps
            else None,
            "hours_between_interruptions": round_value(between),
            "mtbf_hours": round_value(measured.mean_h),
            "mtbf_hours_95": [round_value(measured.low_h), round_value(measured.high_h)],
            "checkpoints": {
                "interval_hours": round(checkpoints.interval_h, 3),
                "source": checkpoints.source,
                "write_seconds": round(write_h * 3600, 1),
                "best_interval_hours": round(best, 3),
                "stretch_now": _drop_infinite(
                    time_per_work(checkpoints.interval_h, write_h, between, restart)
                ),
                "stretch_best": _drop_infinite(time_per_work(best, write_h, between, restart)),
                "media": _compare_media(write_h, between, restart),
            },
            "assumed": [
                *([] if seen else ["half of the work between two checkpoints is lost each time"]),
                *([] if checkpoints.write_s else ["how long a checkpoint is written nobody saw"]),
            ],
        },
        None
        if best >= checkpoints.interval_h
        else Recommendation(
            verb=f"checkpoint every {format_duration(max(round(best * 60), 1) * 60)}",
            target=f"{owner[2]}/{owner[3]}",
            why=f"Daly's interval for an interruption every {between:.1f} hours and "
            f"{write_h * 3600:.0f} seconds of writing",
            reversible=True,
            undo="restore the interval",
            caution="write to a faster medium first where writing stops the work",
            saving="capacity",
            effort="quick win",
            claims=claims,
        ),
        certain=confirmed,
    )


def build_slow_gpus(
    owner: Owner,
    slow: Sequence[SlowDevice],
    costs: Mapping[str, GpuCost],
    together: bool,
    window: Window,
) -> Finding:
    """Return what slow GPUs cost their workload; a gang goes at the pace of its slowest."""
    worked = sum_states(costs, ("productive", "low"))
    each = [s.lost * s.busy_hours for s in slow]
    everybody = max(s.lost * s.busy_hours * s.gang for s in slow)
    lost = min(everybody if together else sum(each), worked.gpu_hours)
    hot = [s for s in slow if s.causes]
    named = ", ".join(dict.fromkeys(s.node for s in slow))
    return build_finding(
        "slow_gpu",
        Subject(*owner, nodes=tuple(dict.fromkeys(s.node for s in slow))[:MOST_NAMED]),
        window,
        GpuCost(lost, worked.part(lost)),
        {
            "why": f"{len(slow)} of {slow[0].gang} GPUs at {slow[0].clock_mhz:.0f} MHz, the median "
            f"at {slow[0].peers_mhz:.0f}",
            "devices": [
                {
                    "device": s.device,
                    "node": s.node,
                    "clock_mhz": round(s.clock_mhz, 1),
                    "peers_mhz": round(s.peers_mhz, 1),
                    "busy_hours": round(s.busy_hours, 2),
                    "throttled_share": round(s.hot_share, 4),
                    "throttled_by": list(s.causes),
                    "temp_c": s.temp_c,
                }
                for s in slow[:MOST_NAMED]
            ],
            "pace": "the slowest's" if together else "each its own",
            "assumed": ["work is as fast as the SM clock: what waits for memory loses less"],
        },
        Recommendation(
            verb="move work off slow GPUs",
            target=f"Node/{slow[0].node}",
            why=("cool them: " if hot else "find why: ")
            + (
                f"{', '.join(hot[0].causes)} on {named}"
                if hot
                else f"no throttling is shown on {named}"
            ),
            reversible=True,
            undo="uncordon the node",
            saving="capacity",
            effort="quick win",
            claims=build_claims(owner, costs, lost),
        ),
        certain=bool(hot),
    )


def build_unknown_loss(owner: Owner, failed: Sequence[Failure], window: Window) -> Unjudged:
    """Return that it is unknown what failures lost, and at most how much."""
    most = sum(f.run_hours * f.gpus for f in failed)
    return Unjudged(
        Subject(*owner),
        round(most, 6),
        ("no checkpoint was seen: what its failures lost is unknown",),
        window,
    )


def _compute_saved(  # noqa: PLR0917  (one caller)
    failed: Sequence[Failure],
    replay: Sequence[float],
    best_h: float,
    worked: float,
    write_h: float,
    interval_h: float,
) -> float:
    """Return the GPU-hours that the best interval would have saved, its writing paid."""
    less = sum(now - min(now, best_h / 2 * f.gpus) for now, f in zip(replay, failed, strict=True))
    return max(less - worked * write_h * max(1 / best_h - 1 / interval_h, 0.0), 0.0)


def _describe_failure(failure: Failure) -> dict[str, Any]:
    return {
        "at": f"{failure.at:%Y-%m-%dT%H:%M:%SZ}",
        "cause": failure.cause,
        "nodes": list(failure.nodes),
        "gpus": failure.gpus,
        "seconds": None
        if failure.seconds is None
        else {step: round(failure.seconds[step], 1) for step in STEPS},
    }


def _compare_media(write_h: float, between: float, restart: float) -> list[dict[str, Any]]:
    """Return the best interval on each medium, were today's a network file system."""
    media = []
    for name, speed in _read_speeds():
        write = write_h / speed
        best = daly(write, between)
        media.append(
            {
                "medium": name,
                "write_seconds": round(write * 3600, 1),
                "best_interval_hours": round(best, 3),
                "stretch": _drop_infinite(time_per_work(best, write, between, restart)),
            }
        )
    return media


@cache
def _read_speeds() -> tuple[tuple[str, float], ...]:
    rows = load_rows("reliability/media")
    return tuple((r["medium"], float(r["gb_per_s"]) / float(rows[0]["gb_per_s"])) for r in rows)


def _drop_infinite(value: float) -> float | None:
    """Return a figure that JSON has; None = it never ends."""
    return round(value, 4) if value < 1e6 else None  # noqa: PLR2004
