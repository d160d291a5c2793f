"""Compute what an oracle would release: it knows the truth and waits as long as the policies.

It acts at the same turns (for a policy that acts only at night: those of the night), on the kinds
that a policy names, after the policy's own minimum duration and grace. It leaves out stops that do
harm (files on no volume that the policy does not save, a kernel's memory that it does not announce)
and workloads that are wanted back within `min_expected_rest`. It has no budgets, approvals,
blackouts or evidence: the difference to a policy is the cost of these.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from actions.policy.matching import is_any_match
from actions.policy.schedule import is_action_open
from actions.recommend import read_verbs
from analyzers.idle.findings import decide_kind
from analyzers.idle.signals import SERVICES
from fallow.settings.idle import IdleSettings
from runtime.experiments.simulation.idle_times import IdleTime
from simulator.workload_scripts import Key

if TYPE_CHECKING:
    from actions.policy.model import Policy

HOUR_S = 3600.0
MIN_EXPECTED_REST = timedelta(hours=4)
IDLE = "idle"
KEEPS_FILES = frozenset({"home", "volume"})


class Release(msgspec.Struct, frozen=True):
    """Devices that are released until their workload is needed, is deleted, or the world ends."""

    key: Key
    category: str
    policy: str
    at_s: float
    until_s: float
    gpus: float
    shared: bool = False
    """Whether the devices are time-sliced: the safety rules allow no action on them."""

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours released."""
        return self.gpus * (self.until_s - self.at_s) / HOUR_S


def list_releases(
    idle_times: Iterable[IdleTime],
    policies: "Sequence[Policy]",
    turns: Sequence[float],
    end_s: float,
    *,
    idle: IdleSettings,
    min_expected_rest: timedelta = MIN_EXPECTED_REST,
) -> list[Release]:
    """Return what the oracle releases, workload by workload; `turns` in order, epoch seconds.

    Of several policies, the one that may act first does. Released devices stay released until their
    workload is needed, whatever happened to it in the world without enforcement.
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
                    if is_target(policy, idle_time) and not is_harmful(policy, idle_time)
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
    """Return whether a policy would act on such a workload, by its kinds, namespaces and verb.

    A policy with a condition beside idle time (quota, pressure) has no such target.
    """
    stage, match, allow = policy.stage("act"), policy.match, policy.allow
    kind, namespace, _ = idle_time.key
    if stage is None or policy.mode != "enforce" or match.over_quota:
        return False
    if policy.on_pressure or policy.on_benefit:
        return False
    wanted = (
        (match.analyzer, IDLE),
        (match.kind, get_finding_kind(idle_time)),
        (match.workload_kind, kind),
        (match.namespaces, namespace),
        (allow.kinds, kind),
    )
    if not all(not globs or is_any_match(globs, text) for globs, text in wanted):
        return False
    if match.not_namespaces and is_any_match(match.not_namespaces, namespace):
        return False
    verb = read_verbs().get(kind)
    return verb is not None and is_any_match(stage.verbs, verb.verb)


def is_harmful(policy: "Policy", idle_time: IdleTime) -> bool:
    """Return whether this policy's stop of such a workload would lose what must not be lost."""
    stage = policy.stage("snapshot")
    keeps = stage is not None and stage.required and bool(KEEPS_FILES & set(stage.parts))
    announces = policy.stage("notify") is not None
    return (idle_time.files and not keeps) or (idle_time.memory and not announces)


def get_finding_kind(idle_time: IdleTime) -> str:
    """Return the kind of finding for such an idle time."""
    return decide_kind(
        idle_time.key[0],
        served=idle_time.family == "serving",
        notebook=idle_time.family == "notebook",
    )


def get_min_idle_time(policy: "Policy", idle_time: IdleTime, idle: IdleSettings) -> timedelta:
    """Return how long such a workload has to be idle before this policy notifies its owner.

    Without a value in the policy, it is the shortest stretch that a verdict requires.
    """
    if policy.match.min_duration:
        return max(policy.match.min_duration, idle.min_duration)
    return idle.service_duration if get_finding_kind(idle_time) in SERVICES else idle.min_duration


def _act_time(
    policy: "Policy", idle_time: IdleTime, turns: Sequence[float], idle: IdleSettings
) -> float | None:
    """Return the turn at which a policy may act on an idle time; None = it ends before."""
    ripe_s = idle_time.begin_s + get_min_idle_time(policy, idle_time, idle).total_seconds()
    seen = bisect_left(turns, ripe_s)
    if seen == len(turns):
        return None
    grace = policy.stage("grace")
    over_s = turns[seen] + (grace.wait.total_seconds() if grace else 0.0)
    # The first evaluation only warns: at least one turn lies between.
    for at_s in turns[max(bisect_left(turns, over_s), seen + 1) :]:
        if at_s >= idle_time.end_s:
            return None
        if _is_open(policy, at_s):
            return at_s
    return None


def _is_open(policy: "Policy", at_s: float) -> bool:
    """Return whether a policy acts at all at a time of day."""
    window = policy.act_window
    return window is None or is_action_open(window, datetime.fromtimestamp(at_s, UTC))
