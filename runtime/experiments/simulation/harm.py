"""Measure harm in two figures from the truth, beside what policies saved and announced.

harmful stops   work was interrupted or has to be repeated; files were lost that were on no volume
                and in no snapshot; a kernel's memory that no notice announced as lost
early returns   stops whose workload was wanted again within a day, and within `min_expected_rest`
                separately; announced stops for a night separately
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from actions.journal import event_types
from actions.policy.reversals import get_upper_end
from actions.recommend import read_verbs
from runtime.experiments.simulation.oracle import KEEPS_FILES, MIN_EXPECTED_REST
from simulator.workload_scripts import Key
from simulator.world import WorkloadStop

if TYPE_CHECKING:
    from actions.journal import JournalState
    from actions.policy.model import Policy

DAY = timedelta(days=1)
SAME_S = 60.0
"""A stop is visible at most this long after its write."""
CAUSES = ("active", "work lost", "files lost", "memory lost")


class OwnerCare(msgspec.Struct, frozen=True):
    """What was done for the owner of one stopped workload."""

    policy: str = ""
    keeps_files: bool = False
    """Whether a verified snapshot has its files."""
    notice: str = ""
    """The text of the notice to its owner."""
    lost: str = ""
    """What this way of stopping loses, in the words of `actions/verbs.csv`."""

    @property
    def announces_memory(self) -> bool:
        """Whether the notice names what is lost."""
        return bool(self.lost) and self.lost in self.notice


class EarlyReturns(msgspec.Struct, frozen=True):
    """How many stopped workloads were wanted back early."""

    stops: int
    """Those that were not announced stops for a night."""
    within_min_expected_rest: int
    within_24h: int
    """All early returns, announced night stops included."""
    interval: tuple[float, float]
    """Clopper-Pearson interval of the share within 24 h, each end one-sided at 95 %."""
    night_stops: int
    night_within_24h: int
    within_declared: int
    """Wanted back within the time that the policy declares."""
    declared: float | None = None
    """The rate that the policy declares."""
    upper_end: float = 1.0
    """The interval of the share within the time that the policy declares."""


def find_causes(stop: WorkloadStop, care: OwnerCare) -> list[str]:
    """Return why a stop did harm; empty = it did none."""
    there = (
        stop.active,
        stop.lost_gpu_s > 0,
        stop.files and not care.keeps_files,
        stop.memory and not care.announces_memory,
    )
    return [cause for cause, harmed in zip(CAUSES, there, strict=True) if harmed]


def count_returns(
    stops: Sequence[tuple[WorkloadStop, OwnerCare]],
    policies: "Iterable[Policy]",
    *,
    min_expected_rest: timedelta = MIN_EXPECTED_REST,
) -> dict[str, EarlyReturns]:
    """Return the early returns of each policy with stops, and of all policies (`*`)."""
    policies_by_name = {policy.name: policy for policy in policies}
    out = {"*": _count_returns(stops, policies_by_name, min_expected_rest)}
    for name in sorted({care.policy for _, care in stops}):
        mine = [(stop, care) for stop, care in stops if care.policy == name]
        out[name] = _count_returns(mine, policies_by_name, min_expected_rest)
    return out


def _count_returns(
    stops: Sequence[tuple[WorkloadStop, OwnerCare]],
    policies: "Mapping[str, Policy]",
    min_expected_rest: timedelta,
) -> EarlyReturns:
    at_night = [s for s, c in stops if is_night(policies.get(c.policy))]
    others = [(s, c) for s, c in stops if not is_night(policies.get(c.policy))]
    early = sum(is_wanted_within(s, DAY) for s, _ in others)
    declared = [(s, policies[c.policy].reversals) for s, c in others if c.policy in policies]
    reversed_ = sum(is_wanted_within(s, reversal.within) for s, reversal in declared)
    rates = {reversal.rate for _, reversal in declared}
    return EarlyReturns(
        stops=len(others),
        within_min_expected_rest=sum(is_wanted_within(s, min_expected_rest) for s, _ in others),
        within_24h=early,
        interval=compute_interval(early, len(others)),
        night_stops=len(at_night),
        night_within_24h=sum(is_wanted_within(s, DAY) for s in at_night),
        within_declared=reversed_,
        declared=rates.pop() if len(rates) == 1 else None,
        upper_end=compute_interval(reversed_, len(declared))[1],
    )


def is_wanted_within(stop: WorkloadStop, length: timedelta) -> bool:
    """Return whether a stopped workload was wanted back within a time."""
    return stop.back_s is not None and stop.back_s - stop.at_s <= length.total_seconds()


def is_night(policy: "Policy | None") -> bool:
    """Return whether a policy stops for a night only, with an announcement."""
    return policy is not None and policy.act_window is not None


def compute_interval(count: int, of: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share, each end one-sided at 95 %."""
    if not of:
        return 0.0, 1.0
    # The complement of a share has the complementary interval.
    return round(1 - get_upper_end(of - count, of), 5), round(get_upper_end(count, of), 5)


def join_care(
    stops: Sequence[WorkloadStop], record: "JournalState"
) -> list[tuple[WorkloadStop, OwnerCare]]:
    """Return each stop with what the journal has about its owner's care."""
    texts: dict[tuple[str, str], str] = {}
    snapshots: dict[str, Any] = {}
    for entry in record.journal.entries(event_types.NOTIFIED):
        texts[entry.document["policy"], entry.key] = entry.document.get("text", "")
    for entry in record.journal.entries(event_types.SNAPSHOT):
        snapshots[entry.document["id"]] = entry.document["snapshot"]
    acts: dict[Key, list[tuple[float, OwnerCare]]] = {}
    for state in record.actions.values():
        _, kind, namespace, name = state.workload
        action = state.action
        decision = action.decision
        verb = read_verbs().get(kind)
        snapshot = snapshots.get(action.snapshot or "", {})
        care = OwnerCare(
            policy=decision.policy,
            keeps_files=_has_files(snapshot),
            notice=texts.get((decision.policy, decision.finding), ""),
            lost=verb.lost if verb else "",
        )
        acts.setdefault((kind, namespace, name), []).append((action.at.timestamp(), care))
    return [(stop, _find_nearest(acts.get(stop.key, ()), stop.at_s)) for stop in stops]


def _find_nearest(acts: Sequence[tuple[float, OwnerCare]], at_s: float) -> OwnerCare:
    near = [(abs(at - at_s), care) for at, care in acts if abs(at - at_s) <= SAME_S]
    return min(near, key=lambda each: each[0])[1] if near else OwnerCare()


def _has_files(snapshot: Mapping[str, Any]) -> bool:
    """Return whether a snapshot in the journal is complete and has files."""
    parts = snapshot.get("parts") or ()
    whole = not snapshot.get("missing") and all(p.get("verified") for p in parts)
    return bool(parts) and whole and any(p.get("what") in KEEPS_FILES for p in parts)
