"""Classify work: build, train, retrain, batch or inference.

Source: telemetry-and-waste.md#profiles.

The kind of the owner decides first. Then runs with similar names show what repeats at regular times
(retrain), and what comes often and ends soon (batch).
"""

import msgspec

from analyzers.demand.rows import Profile, SimilarRuns, read_kind_profiles, read_similar_runs
from fallow.protocols import Views
from fallow.window import Window

GENERIC_KINDS = frozenset({"Deployment", "StatefulSet"})
"""Kinds that serve, and that also hold a person's development environment."""
LEAST_DUTY = 0.1
"""From here on a generic kind serves; below, nothing that is stored tells a service from a person's
work."""
HARDLY_WORKS = "a service that hardly works, or a person's development environment"
RETRAIN_GAP_H = 6.0
"""Hours: what starts more often is a queue of runs, as that of a sweep, and no clock."""
RUN_LENGTHS = 2.0
"""Times the length of a run: what starts earlier waits for the run before, not for a clock."""
LEAST_RUNS = 4
"""Fewer runs prove no regularity."""
REGULAR = 0.3
"""Maximum spread of the gaps, divided by their mean, of regular runs."""
SHORT_H = 1.0
"""Hours: jobs that start often and usually end within this time are batch."""


class WorkloadProfile(msgspec.Struct, frozen=True):
    """Workloads with one name stem, and their profile."""

    cluster: str
    namespace: str
    workload_kind: str | None
    stem: str
    profile: Profile
    why: str
    runs: int
    gpu_hours: float
    known_gpu_hours: float
    """Those of a known state."""
    duty: float | None
    """Share of the known hours in which the GPUs worked; None = no hour is known."""


def read_profiles(views: Views, window: Window) -> list[WorkloadProfile]:
    """Return the profile of every workload stem of the window, the most GPU-hours first."""
    profiles = [_build_profile(row) for row in read_similar_runs(views, window)]
    return sorted(profiles, key=lambda p: (-p.gpu_hours, p.cluster, p.namespace, p.stem))


def sum_profiles(profiles: list[WorkloadProfile]) -> dict[str, dict[str, float | int | None]]:
    """Return workloads, runs, GPU-hours and duty by profile."""
    sums: dict[str, dict[str, float | int | None]] = {}
    for name in sorted({p.profile for p in profiles}):
        of = [p for p in profiles if p.profile == name]
        judged_hours = sum(p.known_gpu_hours for p in of)
        busy = sum(p.known_gpu_hours * (p.duty or 0) for p in of)
        sums[name] = {
            "workloads": len(of),
            "runs": sum(p.runs for p in of),
            "gpu_hours": round(sum(p.gpu_hours for p in of), 3),
            "duty": round(busy / judged_hours, 4) if judged_hours else None,
        }
    return sums


def judge_profile(row: SimilarRuns) -> tuple[Profile, str]:
    """Return the profile of similar runs, and why."""
    kind = read_kind_profiles().get(row.workload_kind or "")
    profile: Profile = kind.profile if kind else "unknown"
    why = kind.why if kind else "no rule for its owner's kind"
    if row.cron:
        return "retrain", "a CronJob starts it"
    if row.workload_kind in GENERIC_KINDS and row.busy_hours < LEAST_DUTY * row.known_hours:
        profile, why = "unknown", HARDLY_WORKS
    if row.workload_kind in GENERIC_KINDS and not row.known_hours:
        profile, why = "unknown", "none of its hours is known to work or to be idle"
    if profile != "train":
        return profile, why
    spread, least_gap_h = row.gap_spread, max(RETRAIN_GAP_H, RUN_LENGTHS * row.run_h)
    is_regular = spread is not None and spread <= REGULAR and (row.gap_h or 0) >= least_gap_h
    if row.runs >= LEAST_RUNS and is_regular:
        return "retrain", f"{row.runs} runs, one every {row.gap_h:.1f} h"
    if row.runs >= LEAST_RUNS and row.run_h <= SHORT_H:
        return "batch", f"{row.runs} runs of {row.run_h:.2f} h"
    return profile, why


def _build_profile(row: SimilarRuns) -> WorkloadProfile:
    profile, why = judge_profile(row)
    hours = row.known_hours
    return WorkloadProfile(
        row.cluster,
        row.namespace,
        row.workload_kind,
        row.stem,
        profile,
        why,
        row.runs,
        round(row.gpu_hours, 6),
        round(hours, 6),
        round(row.busy_hours / hours, 6) if hours else None,
    )
