"""The result of a back-test: what the policy would have stopped, freed and harmed."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import msgspec

from actions.backtest.unresolved import UnresolvedCase
from actions.plan import Subject
from actions.policy.reversals import ReversalProof
from fallow.action_models import Reason
from fallow.window import Window

DAY_HOURS = 24
Z = 1.959963984540054
"""The normal quantile of a 95 % interval."""


class BacktestStop(msgspec.Struct, frozen=True):
    """One action that the policy would have taken, and what the workload did in fact."""

    at: datetime
    finding: str
    subject: Subject
    verb: str
    owner: str | None
    gpus: float
    usd_per_day: Decimal | None
    idle_since: datetime
    notified_at: datetime | None
    """When the policy would have notified the owner; None = the policy sends no notices."""
    used_at: datetime | None
    """When the workload was next in use in fact; None = not again in the data."""
    back_at: datetime
    """Until when its GPUs would have been free: the workload's next use, its own end, or the end of
    data."""
    gpu_hours: float
    usd: Decimal | None
    is_reversed: bool | None
    """Was it in use again within the time? None = the data end before that is known."""
    is_marked_later: bool = False
    """Were annotations of its pods first observed after the stop? Those of then are not known."""

    @property
    def usd_h(self) -> float | None:
        """Return the dollars of a GPU-hour of the workload; None = they are not known."""
        if self.usd_per_day is None or not self.gpus:
            return None
        return float(self.usd_per_day) / self.gpus / DAY_HOURS


class BlockedCases(msgspec.Struct, frozen=True):
    """A gate, or one budget of it, and the number of cases that it ever blocked."""

    gate: str
    budget: str
    cases: int
    never: int
    """The number of these cases that were never acted upon at all."""


class AbortedEvaluation(NamedTuple):
    """An evaluation that did nothing in a cluster, and why."""

    at: datetime
    reason: Reason
    cluster: str


class Backtest(msgspec.Struct, frozen=True):
    """A policy's verdict on the site's own history."""

    policy: str
    fingerprint: str
    """The fingerprint of the policy in its enforcing form: trust in one text does not extend to
    another."""
    window: Window
    step: timedelta
    evaluations: int
    cases: int
    """Findings that the policy matches."""
    notified: int
    """Notices to owners."""
    stops: tuple[BacktestStop, ...]
    blocked: tuple[BlockedCases, ...]
    aborted: tuple[AbortedEvaluation, ...]
    within: timedelta
    declared: float
    exact: bool
    """True: the analyzer ran at each evaluation; False: the analyzer returned its whole past at
    once."""
    unresolved: tuple[UnresolvedCase, ...] = ()
    """Cases whose object is in no inventory; the back-test stops none of them."""
    unknown: tuple[str, ...] = ()
    """Gates of an act that history cannot evaluate; no stop counts them as met."""

    @property
    def judged(self) -> int:
        """Return the number of stops for which the data show whether they were reversed."""
        return sum(s.is_reversed is not None for s in self.stops)

    @property
    def reversals(self) -> int:
        """Return how many stops would have been reversed."""
        return sum(s.is_reversed is True for s in self.stops)

    @property
    def rate(self) -> float | None:
        """Return the share of judged stops that was reversed; None = no stop was judged."""
        return self.reversals / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the rate."""
        return compute_wilson_interval(self.reversals, self.judged)

    @property
    def proof(self) -> ReversalProof:
        """Return what this history proves about the rate that the policy declares."""
        days = (self.window.end - self.window.start) / timedelta(days=1)
        return ReversalProof(self.reversals, self.judged, self.declared, days)

    @property
    def met(self) -> bool:
        """Return whether the declared rate is proved: see `actions.policy.reversals`."""
        return self.proof.met

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours it would have freed."""
        return math.fsum(s.gpu_hours for s in self.stops)

    @property
    def usd(self) -> Decimal | None:
        """Return the dollars of the GPU-hours it would have freed; None = a price is not known."""
        prices = [s.usd for s in self.stops]
        return None if None in prices else sum((u for u in prices if u is not None), Decimal(0))

    @property
    def wasted(self) -> float:
        """Return the GPU-hours freed by stops that were not reversed."""
        return math.fsum(s.gpu_hours for s in self.stops if not s.is_reversed)


def compute_wilson_interval(hits: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share (Wilson 1927); with nothing judged it is 0 to 1."""
    if not total:
        return 0.0, 1.0
    share, square = hits / total, Z * Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = (
        Z
        / (1 + square / total)
        * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    )
    return max(0.0, middle - half), min(1.0, middle + half)


def count_blocked(
    blocked: Mapping[tuple[str, str], set[str]], acted: Sequence[str]
) -> tuple[BlockedCases, ...]:
    """Count the cases that each gate blocked, the most cases first."""
    acted_cases = set(acted)
    rows = [
        BlockedCases(gate, rule, len(cases), len(cases - acted_cases))
        for (gate, rule), cases in blocked.items()
    ]
    return tuple(sorted(rows, key=lambda h: (-h.cases, h.gate, h.budget)))
