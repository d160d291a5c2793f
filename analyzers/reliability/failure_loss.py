"""Compute what failures cost a workload, and the interval between checkpoints that costs least."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

import msgspec

from analyzers.checkpoints import Checkpoints
from analyzers.queries import load_records
from analyzers.reliability.failures import Failure
from fallow.checkpointing import compute_daly_interval, compute_mtbf
from fallow.rows import Row
from fallow.settings.reliability import ReliabilitySettings
from fallow.window import Window


class CheckpointMedium(Row, frozen=True):
    """A place to write checkpoints to, and its measured speed (a row of `media.csv`)."""

    medium: str
    gb_per_s: float
    source: str


class LostWork(msgspec.Struct, frozen=True):
    """Work that one failure lost, from `work_lost`."""

    gpu_hours: float
    gpus: float
    """Those of all ranks that lost work."""
    measured: bool


class FailureLoss(msgspec.Struct, frozen=True):
    """GPU-hours that failures cost a workload."""

    replay: list[float]
    """GPU-hours of the work that is repeated after each failure."""
    gpus: list[float]
    """GPUs that repeat it."""
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


def compute_loss(
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
    gpus = [thrown[f.at].gpus if f.at in thrown else f.gpus for f in failed]
    return FailureLoss(replay, gpus, dead, min(loaded, startup_h), measured)


def plan_checkpoints(
    failed: Sequence[Failure],
    checkpoints: Checkpoints,
    settings: ReliabilitySettings,
    window: Window,
) -> CheckpointPlan:
    """Compare today's checkpoints with Daly's interval for the interruptions of a window."""
    write_h = (checkpoints.write_s or settings.write.total_seconds()) / 3600
    span = window.seconds / 3600
    # A checkpoint helps with any interruption, including a spot node that is reclaimed.
    between = compute_mtbf(len(failed), span).mean_h or span
    steps = list_steps(failed)
    restart = sum(sum(s.values()) for s in steps) / len(steps) / 3600 if steps else 0.0
    return CheckpointPlan(
        checkpoints, write_h, between, restart, compute_daly_interval(write_h, between)
    )


def list_steps(failed: Sequence[Failure]) -> list[Mapping[str, float]]:
    """Return the seconds of each step of the recoveries that were seen."""
    return [f.seconds for f in failed if f.seconds]


def compute_saved(loss: FailureLoss, plan: CheckpointPlan, worked: float) -> float:
    """Return the GPU-hours that the best interval would have saved, minus the cost of writing."""
    less = sum(
        now - min(now, plan.best_h / 2 * gpus)
        for now, gpus in zip(loss.replay, loss.gpus, strict=True)
    )
    more_writes = max(1 / plan.best_h - 1 / plan.checkpoints.interval_h, 0.0)
    return max(less - worked * plan.write_h * more_writes, 0.0)


@cache
def read_media() -> tuple[CheckpointMedium, ...]:
    """Return the places to write checkpoints to; the first is what sites use today."""
    return tuple(load_records("reliability/media", CheckpointMedium))
