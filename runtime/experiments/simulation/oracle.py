"""What an oracle would release: it knows the truth and acts by the policies' own patience.

It acts at the same turns (of a policy that acts at night alone: those of the night), on the kinds
that a policy names, after the policy's own minimum duration and grace. It leaves out what would do
harm (files on no volume that the policy does not keep, a kernel's memory that it does not
announce), and what is wanted back within `min_expected_rest`. It knows no budgets, approvals,
blackouts or evidence: what these cost a policy is the difference.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from actions.policy.matching import matches_any
from actions.policy.schedule import is_action_open
from actions.recommend import read_verbs
from analyzers.idle.findings import decide_kind
from analyzers.idle.signals import SERVICES
from fallow.settings import IdleSettings
from runtime.experiments.simulation.idle_times import IdleTime
from simulator.workload_scripts import Key

if TYPE_CHECKING:
    from actions.policy.model import Policy

HOUR_S = 3600.0
MIN_EXPECTED_REST = timedelta(hours=4)
IDLE = "idle"
KEEPS_FILES = frozenset({"home", "volume"})


class Release(msgspec.Struct, frozen=True):
    """Devices that are released until their workload is wanted, leaves, or the world ends."""

    key: Key
    category: str
    policy: str
    at_s: float
    until_s: float
    gpus: float
    shared: bool = False
    """Of time-sliced devices, on which the safety rules let nothing act."""

    @property
    def gpu_hours(self) -> float:
        """Return what it releases."""
        return self.gpus * (self.until_s - self.at_s) / HOUR_S


def releases(
    idle_times: Iterable[IdleTime],
    policies: "Sequence[Policy]",
    turns: Sequence[float],
    end_s: float,
    *,
    idle: IdleSettings,
    min_expected_rest: timedelta = MIN_EXPECTED_REST,
) -> list[Release]:
    """Return what the oracle releases, workload by workload; `turns` in order, epoch seconds.

    Of several policies the one that may act first does. What is released stays so until its
    workload is wanted, whatever became of it in the world without enforcement.
    """
    by_key: dict[Key, list[IdleTime]] = defaultdict(list)
    for idle_time in idle_times:
        by_key[idle_time.key].append(idle_time)
    released: list[Release] = []
    for mine in by_key.values():
        off_s = 0.0
        for idle_time in sorted(mine, key=lambda r: r.begin_s):
            if idle_time.begin_s < off_s:
                continue
            first = min(
                (
                    (at_s, policy.name)
                    for policy in policies
                    if is_target(policy, idle_time) and not would_harm(policy, idle_time)
                    if (at_s := _act_time(policy, idle_time, turns, idle)) is not None
                ),
                default=None,
            )
            if first is None or idle_time.wanted_s - first[0] <= min_expected_rest.total_seconds():
                continue
            until_s = off_s = min(idle_time.wanted_s, idle_time.leaves_s, end_s)
            if until_s > first[0]:
                released.append(
                    Release(
                        idle_time.key,
                        idle_time.category,
                        first[1],
                        first[0],
                        until_s,
                        idle_time.gpus,
                        idle_time.shared,
                    )
                )
    return released


def is_target(policy: "Policy", idle_time: IdleTime) -> bool:
    """Say whether a policy would act on such a workload: its kinds, namespaces and verb.

    What waits for a condition beside idleness (quota, pressure) names nothing here.
    """
    stage, match, allow = policy.stage("act"), policy.match, policy.allow
    kind, namespace, _ = idle_time.key
    if stage is None or policy.mode != "enforce" or match.over_quota:
        return False
    if policy.on_pressure or policy.on_benefit:
        return False
    wanted = (
        (match.analyzer, IDLE),
        (match.kind, finding_kind(idle_time)),
        (match.workload_kind, kind),
        (match.namespaces, namespace),
        (allow.kinds, kind),
    )
    if not all(not globs or matches_any(globs, text) for globs, text in wanted):
        return False
    if match.not_namespaces and matches_any(match.not_namespaces, namespace):
        return False
    verb = read_verbs().get(kind)
    return verb is not None and matches_any(stage.verbs, verb.verb)


def would_harm(policy: "Policy", idle_time: IdleTime) -> bool:
    """Say whether this policy's stop of such a workload would lose what it may not lose."""
    stage = policy.stage("snapshot")
    keeps = stage is not None and stage.required and bool(KEEPS_FILES & set(stage.what))
    announces = policy.stage("notify") is not None
    return (idle_time.files and not keeps) or (idle_time.memory and not announces)


def finding_kind(idle_time: IdleTime) -> str:
    """Return the kind of the finding that such an idle time is."""
    return decide_kind(
        idle_time.key[0],
        served=idle_time.family == "serving",
        notebook=idle_time.family == "notebook",
    )


def min_idle_time(policy: "Policy", idle_time: IdleTime, idle: IdleSettings) -> timedelta:
    """Return how long such a workload has to be idle before this policy notifies its owner.

    Where a policy says nothing of its own, the shortest stretch that a verdict asks for.
    """
    if policy.match.min_duration:
        return max(policy.match.min_duration, idle.min_duration)
    return idle.service_duration if finding_kind(idle_time) in SERVICES else idle.min_duration


def _act_time(
    policy: "Policy", idle_time: IdleTime, turns: Sequence[float], idle: IdleSettings
) -> float | None:
    """Return the turn at which a policy may act on an idle time; None = it ends before."""
    ripe_s = idle_time.begin_s + min_idle_time(policy, idle_time, idle).total_seconds()
    seen = bisect_left(turns, ripe_s)
    if seen == len(turns):
        return None
    grace = policy.stage("grace")
    over_s = turns[seen] + (grace.wait.total_seconds() if grace else 0.0)
    # First sight only warns: at least one turn lies between.
    for at_s in turns[max(bisect_left(turns, over_s), seen + 1) :]:
        if at_s >= idle_time.end_s:
            return None
        if _is_open(policy, at_s):
            return at_s
    return None


def _is_open(policy: "Policy", at_s: float) -> bool:
    """Say whether a policy acts at a time of day at all."""
    window = policy.act_window
    return window is None or is_action_open(window, datetime.fromtimestamp(at_s, UTC))
