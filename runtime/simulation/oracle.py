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

from fallow.settings import IdleSettings
from runtime.simulation.rests import Rest
from simulator.cast import Key

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
    rests: Iterable[Rest],
    policies: "Sequence[Policy]",
    turns: Sequence[float],
    end_s: float,
    *,
    idle: IdleSettings,
    min_expected_rest: timedelta = MIN_EXPECTED_REST,
) -> list[Release]:
    """Return what the oracle releases, workload by workload; `turns` in order, epoch seconds.

    Of several policies the one that may act first does. What is released stays so until its
    workload is wanted, whatever became of it in the world that nobody enforced.
    """
    by_key: dict[Key, list[Rest]] = defaultdict(list)
    for rest in rests:
        by_key[rest.key].append(rest)
    found: list[Release] = []
    for mine in by_key.values():
        off_s = 0.0
        for rest in sorted(mine, key=lambda r: r.begin_s):
            if rest.begin_s < off_s:
                continue
            first = min(
                (
                    (at_s, policy.name)
                    for policy in policies
                    if names(policy, rest) and not harms(policy, rest)
                    if (at_s := _acts(policy, rest, turns, idle)) is not None
                ),
                default=None,
            )
            if first is None or rest.wanted_s - first[0] <= min_expected_rest.total_seconds():
                continue
            until_s = off_s = min(rest.wanted_s, rest.leaves_s, end_s)
            if until_s > first[0]:
                found.append(
                    Release(
                        rest.key,
                        rest.category,
                        first[1],
                        first[0],
                        until_s,
                        rest.gpus,
                        rest.shared,
                    )
                )
    return found


def names(policy: "Policy", rest: Rest) -> bool:
    """Say whether a policy would act on such a workload: its kinds, namespaces and verb.

    What waits for a condition beside idleness (quota, pressure) names nothing here.
    """
    from actions.policy.matching import any_of  # noqa: PLC0415
    from actions.recommend import verbs  # noqa: PLC0415

    rung, match, allow = policy.rung("act"), policy.match, policy.allow
    kind, namespace, _ = rest.key
    if rung is None or policy.mode != "enforce" or match.over_quota:
        return False
    if policy.on_pressure or policy.on_benefit:
        return False
    wanted = (
        (match.analyzer, IDLE),
        (match.kind, finding_kind(rest)),
        (match.workload_kind, kind),
        (match.namespaces, namespace),
        (allow.kinds, kind),
    )
    if not all(not globs or any_of(globs, text) for globs, text in wanted):
        return False
    if match.not_namespaces and any_of(match.not_namespaces, namespace):
        return False
    verb = verbs().get(kind)
    return verb is not None and any_of(rung.verbs, verb.verb)


def harms(policy: "Policy", rest: Rest) -> bool:
    """Say whether this policy's stop of such a workload would lose what it may not lose."""
    rung = policy.rung("snapshot")
    keeps = rung is not None and rung.required and bool(KEEPS_FILES & set(rung.what))
    announces = policy.rung("notify") is not None
    return (rest.files and not keeps) or (rest.memory and not announces)


def finding_kind(rest: Rest) -> str:
    """Return the kind of the finding that such a rest is."""
    from analyzers.idle.findings import kind_of  # noqa: PLC0415  (frames load in 0.5 s)

    return kind_of(rest.key[0], served=rest.family == "serving", notebook=rest.family == "notebook")


def minimum(policy: "Policy", rest: Rest, idle: IdleSettings) -> timedelta:
    """Return how long such a workload has to rest before this policy tells anybody.

    Where a policy says nothing of its own, the shortest stretch that a verdict asks for.
    """
    from analyzers.idle.signals import SERVICES  # noqa: PLC0415  (frames load in 0.5 s)

    if policy.match.min_duration:
        return max(policy.match.min_duration, idle.min_duration)
    return idle.service_duration if finding_kind(rest) in SERVICES else idle.min_duration


def _acts(policy: "Policy", rest: Rest, turns: Sequence[float], idle: IdleSettings) -> float | None:
    """Return the turn at which a policy may act on a rest; None = it ends before."""
    ripe_s = rest.begin_s + minimum(policy, rest, idle).total_seconds()
    seen = bisect_left(turns, ripe_s)
    if seen == len(turns):
        return None
    grace = policy.rung("grace")
    over_s = turns[seen] + (grace.wait.total_seconds() if grace else 0.0)
    # First sight only warns: at least one turn lies between.
    for at_s in turns[max(bisect_left(turns, over_s), seen + 1) :]:
        if at_s >= rest.end_s:
            return None
        if _open(policy, at_s):
            return at_s
    return None


def _open(policy: "Policy", at_s: float) -> bool:
    """Say whether a policy acts at a time of day at all."""
    from actions.policy.schedule import allows  # noqa: PLC0415

    window = policy.act_window
    return window is None or allows(window, datetime.fromtimestamp(at_s, UTC))
