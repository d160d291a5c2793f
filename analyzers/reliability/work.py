"""Compute the cost of failures and slow GPUs for the affected workloads."""

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
from fallow.models import Claim, Finding, Recommendation, Subject, Unjudged
from fallow.settings import ReliabilitySettings
from fallow.window import Window, format_duration


class LostWork(msgspec.Struct, frozen=True):
    """Work that one failure lost, from `work_lost`."""

    gpu_hours: float
    measured: bool


class FailureLoss(msgspec.Struct, frozen=True):
    """GPU-hours that failures cost a workload."""

    replay: list[float]
    """GPU-hours of the work that is repeated after each failure."""
    dead: float
    """GPU-hours allocated while a failure was not detected and its pods were not deleted."""
    again: float
    """GPU-hours of the restart."""
    measured: bool
    """Whether `work_lost` has measured the replay of every failure."""

    @property
    def total(self) -> float:
        """Return all of them together."""
        return sum(self.replay) + self.dead + self.again


class CheckpointPlan(msgspec.Struct, frozen=True):
    """Today's checkpoints, and the best interval between them in hours."""

    checkpoints: Checkpoints
    write_h: float
    between_h: float
    """Hours between two interruptions."""
    restart_h: float
    """Mean hours to recover, of the observed recoveries."""
    best_h: float


def build_lost_work(  # noqa: PLR0917  (one caller)
    owner: Owner,
    failed: Sequence[Failure],
    checkpoints: Checkpoints,
    costs: Mapping[str, GpuCost],
    thrown: Mapping[datetime, LostWork],
    settings: ReliabilitySettings,
    window: Window,
) -> Finding | None:
    """Return the cost of a workload's failures: allocated while dead, restarted, and repeated.

    The repeated work comes from `work_lost`; for a failure without a row, it is half of the
    interval between two checkpoints. `thrown`: its rows by the time of the failure.
    """
    worked = sum_states(costs, ("productive", "low", "lost"))
    startup = costs.get("startup", GpuCost(0.0, Decimal()))
    loss = _compute_loss(failed, checkpoints, thrown, startup.gpu_hours)
    lost = min(loss.total, worked.gpu_hours + startup.gpu_hours)
    if lost < settings.min_gpu_hours:
        return None
    plan = _plan_checkpoints(failed, checkpoints, settings, window)
    saved = _compute_saved(failed, loss.replay, plan, worked.gpu_hours)
    claims = build_claims(owner, costs, saved) if saved > 0 else ()
    confirmed = checkpoints.regular and all(f.cause != "application" for f in failed)
    about = Subject(*owner, nodes=tuple(sorted({n for f in failed for n in f.nodes}))[:MOST_NAMED])
    return build_finding(
        "lost_work",
        about,
        window,
        GpuCost(lost, worked.plus(startup).part(lost)),
        {
            **_describe_failures(failed),
            **_describe_loss(failed, loss),
            **_describe_interruptions(failed, plan, window),
            "checkpoints": _describe_checkpoints(plan),
            "assumed": [
                *(
                    []
                    if loss.measured
                    else ["half of the work between two checkpoints is lost each time"]
                ),
                *([] if checkpoints.write_s else ["how long a checkpoint is written nobody saw"]),
            ],
        },
        _recommend_interval(owner, plan, claims),
        certain=confirmed,
    )


def build_slow_gpus(
    owner: Owner,
    slow: Sequence[SlowDevice],
    costs: Mapping[str, GpuCost],
    together: bool,
    window: Window,
) -> Finding:
    """Return the cost of slow GPUs for their workload; a gang runs at the speed of its slowest."""
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
    """Return the finding that the loss from failures is unknown, with its upper limit."""
    most = sum(f.run_hours * f.gpus for f in failed)
    return Unjudged(
        Subject(*owner),
        round(most, 6),
        ("no checkpoint was seen: what its failures lost is unknown",),
        window,
    )


def _compute_loss(
    failed: Sequence[Failure],
    checkpoints: Checkpoints,
    thrown: Mapping[datetime, LostWork],
    startup_h: float,
) -> FailureLoss:
    """Return the cost of failures; the restart is at most the hours of startup."""
    replay = [
        thrown[f.at].gpu_hours
        if f.at in thrown
        else min(checkpoints.interval_h / 2, f.run_hours) * f.gpus
        for f in failed
    ]
    dead = sum(
        (f.seconds["detect"] + f.seconds["drain"]) / 3600 * f.gpus for f in failed if f.seconds
    )
    loaded = sum(f.load_s / 3600 * f.gpus for f in failed if f.seconds)
    measured = all(f.at in thrown and thrown[f.at].measured for f in failed)
    return FailureLoss(replay, dead, min(loaded, startup_h), measured)


def _plan_checkpoints(
    failed: Sequence[Failure],
    checkpoints: Checkpoints,
    settings: ReliabilitySettings,
    window: Window,
) -> CheckpointPlan:
    """Compare today's checkpoints with Daly's interval for the interruptions of a window."""
    write_h = (checkpoints.write_s or settings.write.total_seconds()) / 3600
    span = window.seconds / 3600
    # A checkpoint helps with any interruption, including a spot node that is reclaimed.
    between = mtbf(len(failed), span).mean_h or span
    steps = _list_steps(failed)
    restart = sum(sum(s.values()) for s in steps) / len(steps) / 3600 if steps else 0.0
    return CheckpointPlan(checkpoints, write_h, between, restart, daly(write_h, between))


def _list_steps(failed: Sequence[Failure]) -> list[Mapping[str, float]]:
    """Return the seconds of each step of the recoveries that were seen."""
    return [f.seconds for f in failed if f.seconds]


def _compute_saved(
    failed: Sequence[Failure], replay: Sequence[float], plan: CheckpointPlan, worked: float
) -> float:
    """Return the GPU-hours that the best interval would have saved, minus the cost of writing."""
    less = sum(
        now - min(now, plan.best_h / 2 * f.gpus) for now, f in zip(replay, failed, strict=True)
    )
    more_writes = max(1 / plan.best_h - 1 / plan.checkpoints.interval_h, 0.0)
    return max(less - worked * plan.write_h * more_writes, 0.0)


def _describe_failures(failed: Sequence[Failure]) -> dict[str, Any]:
    causes = sorted(Counter(f.cause for f in failed).items())
    return {
        "why": "failures: " + ", ".join(f"{n} by {c}" for c, n in causes),
        "failures": [_describe_failure(f) for f in failed[:MOST_NAMED]],
        "failures_count": len(failed),
    }


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


def _describe_loss(failed: Sequence[Failure], loss: FailureLoss) -> dict[str, Any]:
    return {
        "gpu_hours_by_step": {
            "held_while_dead": round(loss.dead, 3),
            "started_again": round(loss.again, 3),
            "replayed": round(sum(loss.replay), 3),
        },
        "mean_seconds_to_recover": _average_recovery(failed, loss.replay),
    }


def _average_recovery(
    failed: Sequence[Failure], replay: Sequence[float]
) -> dict[str, float] | None:
    """Return the mean seconds of each step; None = no recovery was seen."""
    steps = _list_steps(failed)
    if not steps:
        return None
    return {
        **{k: round(sum(s[k] for s in steps) / len(steps), 1) for k in STEPS},
        "replay": round(sum(replay) * 3600 / sum(f.gpus for f in failed), 1),
    }


def _describe_interruptions(
    failed: Sequence[Failure], plan: CheckpointPlan, window: Window
) -> dict[str, Any]:
    """Return the hours between interruptions; the MTBF leaves out spot and preemption."""
    faults = sum(f.cause not in {"spot", "preemption"} for f in failed)
    measured = mtbf(faults, window.seconds / 3600)
    return {
        "hours_between_interruptions": round_value(plan.between_h),
        "mtbf_hours": round_value(measured.mean_h),
        "mtbf_hours_95": [round_value(measured.low_h), round_value(measured.high_h)],
    }


def _describe_checkpoints(plan: CheckpointPlan) -> dict[str, Any]:
    checkpoints = plan.checkpoints
    return {
        "interval_hours": round(checkpoints.interval_h, 3),
        "source": checkpoints.source,
        "write_seconds": round(plan.write_h * 3600, 1),
        "best_interval_hours": round(plan.best_h, 3),
        "stretch_now": _drop_infinite(
            time_per_work(checkpoints.interval_h, plan.write_h, plan.between_h, plan.restart_h)
        ),
        "stretch_best": _drop_infinite(
            time_per_work(plan.best_h, plan.write_h, plan.between_h, plan.restart_h)
        ),
        "media": _compare_media(plan.write_h, plan.between_h, plan.restart_h),
    }


def _recommend_interval(
    owner: Owner, plan: CheckpointPlan, claims: tuple[Claim, ...]
) -> Recommendation | None:
    """Return the advice to checkpoint more often; None = today's interval is short enough."""
    if plan.best_h >= plan.checkpoints.interval_h:
        return None
    return Recommendation(
        verb=f"checkpoint every {format_duration(max(round(plan.best_h * 60), 1) * 60)}",
        target=f"{owner[2]}/{owner[3]}",
        why=f"Daly's interval for an interruption every {plan.between_h:.1f} hours and "
        f"{plan.write_h * 3600:.0f} seconds of writing",
        reversible=True,
        undo="restore the interval",
        caution="write to a faster medium first where writing stops the work",
        saving="capacity",
        effort="quick win",
        claims=claims,
    )


def _compare_media(write_h: float, between: float, restart: float) -> list[dict[str, Any]]:
    """Return the best interval on each medium, if the present one is a network file system."""
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
    """Return a value that JSON can represent; None = infinite."""
    return round(value, 4) if value < 1e6 else None  # noqa: PLR2004
