"""The replay: at each moment the same `decide` as live, on what was known then.

What is taken for granted, because history does not tell: notices are delivered at once, whoever
has to approve does, snapshots succeed, actions stick, and no more actions are under way than the
policy allows. Owners did what they truly did: a workload that was stopped comes back when it was
next at work, and is left alone until then.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from typing import NamedTuple

import msgspec
import polars as pl

from actions.backtest import unresolved
from actions.backtest.chances import Chances
from actions.backtest.fleets import Fleets
from actions.backtest.result import Backtest, Stop, held
from actions.backtest.rooms import Room
from actions.decide import decide
from actions.facts.coverage import Coverage, partly_seen
from actions.facts.gathering import Seen, facts_of, tells
from actions.facts.ground import Ground, Key, key_of, micros, moment
from actions.facts.quotas import Quotas
from actions.facts.waiting import Line
from actions.planning import ACTING, ROOM, Subject, is_ready, rank
from actions.policy.budgets import Spent, Use, exceeded, horizon, use
from actions.policy.model import Approvals, Policy
from actions.recommend import recommend
from fallow.acting import Decision, Facts, History, Reason, Step
from fallow.nouns import Finding, Recommendation
from fallow.seams import Past, Views
from fallow.window import Window

HOUR_US = 3600 * 1_000_000
DAY_HOURS = 24
PROMISED = frozenset({"notify", "act"})
_LADDER = frozenset({"first-sight", "notice", "grace"})
_FLEETING = frozenset(
    {"first-sight", "notice", "pressure", "benefit", "open", "frozen", "concurrent"}
)
"""Gates that may open at the next moment although nothing about the case changes."""


class Promise(msgspec.Struct, frozen=True):
    """A step that a back-test says the service would take, and at which of its turns."""

    at: datetime
    step: Step
    subject: Subject
    finding: str
    depends: tuple[str, ...] = ()
    """Gates whose answer history does not tell: the step is promised only if they open."""
    policy: str = ""

    @property
    def met(self) -> bool:
        """Say whether history tells every gate's answer: what it does not tell is not met."""
        return not self.depends


class Replayed(msgspec.Struct, frozen=True):
    """A back-test, with every step that it promises and all that was decided on the way."""

    backtest: Backtest
    promises: tuple[Promise, ...]
    decisions: tuple[Decision, ...]
    """Of every case at every turn at which anything about it could change."""


class Turns(msgspec.Struct, frozen=True):
    """What the service's turns have besides their times, where a back-test is of these alone.

    A back-test by the hour of a service that has a turn every minute knows neither.
    """

    concurrent: int | None = None
    """Acts that may be under way at once; they are over by the next turn."""
    incident: Callable[[datetime], str | None] = lambda _at: None
    """Says why telemetry as a whole is not to be trusted: nothing is done at that turn."""
    lived: bool = False
    """The policy acted in these rows: what it stopped is stopped in them, and who has it back made
    new pods of it. A policy that owners reverse more often than it declares stops acting; else the
    replay goes on, and counts how often they would have."""


ANY_TURNS = Turns()


class _Around(NamedTuple):
    """Who waits, quotas, looks and what workloads hold at a moment; None = nobody asks."""

    line: Line | None
    quotas: Quotas | None
    seen: Seen | None
    covered: Coverage | None


class _Case:
    """What happened to one case so far."""

    def __init__(self) -> None:
        self.first_seen: datetime | None = None
        self.notified_at: datetime | None = None
        self.announced: dict[str, datetime] = {}
        self.snapshot_at: datetime | None = None


class _Owned:
    """What happened to one workload so far."""

    def __init__(self) -> None:
        self.last_action_at: datetime | None = None
        self.restored: list[datetime] = []
        self.stopped_until: float = 0.0


def as_enforced(policy: Policy) -> Policy:
    """Return a policy as it would enforce: that is what its back-test is of."""
    return msgspec.structs.replace(policy, mode="enforce")


def backtest(  # noqa: PLR0917  (what it replays, over what, how)
    policy: Policy,
    past: Past,
    views: Views,
    window: Window,
    moments: Sequence[datetime],
    within: timedelta | None = None,
    *,
    exact: bool = False,
) -> Backtest:
    """Replay a policy over what an analyzer found at each moment; see the module's docstring.

    `within`: used again so soon after a stop is regret; None = what the policy says.
    """
    return _Replay(policy, past, views, window, moments, within).run(exact=exact)


def replay(  # noqa: PLR0917  (what it replays, over what, how)
    policy: Policy,
    past: Past,
    views: Views,
    window: Window,
    moments: Sequence[datetime],
    turns: Turns,
) -> Replayed:
    """Replay a policy, and return beside its back-test the steps that it promises, turn by turn.

    They are what the service does when it lives through the window at these very turns, if every
    gate named in `depends` opens.
    """
    made = _Replay(policy, past, views, window, moments, None, turns)
    return Replayed(made.run(exact=False), tuple(made.promises), tuple(made.decisions))


MOMENT = ("evidence", "awake", "away", "identity", "snapshot", "kept", "fights", "pressure")
"""Gates of the moment of an act: sources are read again, objects, who protects them, who waits. No
history tells their answers at the turn itself."""


def unknown(policy: Policy) -> tuple[str, ...]:
    """Return the gates of an act whose answer history does not tell under this policy.

    People answer some: who approves, and how owners take a stop that in history never was. The
    others are read at the act itself.
    """
    approval = ("approval",) if policy.approvals.when != "none" else ()
    return (*approval, *MOMENT, "contested", "demoted") if policy.rung("act") else ()


class _Replay:
    def __init__(  # noqa: PLR0917  (one caller)
        self,
        policy: Policy,
        past: Past,
        views: Views,
        window: Window,
        moments: Sequence[datetime],
        within: timedelta | None,
        turns: Turns = ANY_TURNS,
    ) -> None:
        self._turns = turns
        most = turns.concurrent
        self._at_once = None if most is None else min(most, policy.concurrent)
        self._told = policy
        self._policy = msgspec.structs.replace(as_enforced(policy), approvals=Approvals())
        self._past, self._views, self._window = past, views, window
        self._moments, self._at = moments, [micros(m) for m in moments]
        self._within = within or policy.regret.within
        self._chances = Chances(past.rows, policy.match, len(moments))
        lasts = self._chances.lasts()
        self._candidates = unresolved.candidates(past.rows, policy.match)
        keys = [*lasts.select(_KEY).unique(maintain_order=True).iter_rows()]
        keys = [*dict.fromkeys((*keys, *unresolved.keys(self._candidates)))]
        self._ground = Ground(views, window.start, window.end, keys)
        self._partly_seen = partly_seen(views, keys, window.start, window.end)
        self._used = _used(views, lasts, window, self._at)
        self._fleets = Fleets(views, self._ground, self._policy, moments)
        self._horizon = horizon([self._policy])
        # Who holds more than its guarantee changes without any row of a case.
        self._fleeting = _FLEETING | ({"match"} if policy.match.over_quota else set())
        self._due = self._chances.at
        self._cases: dict[int, _Case] = defaultdict(_Case)
        self._owned: dict[Subject, _Owned] = defaultdict(_Owned)
        self._ready: set[int] = set()
        self._uses: list[Use] = []
        self._stops: list[tuple[int, Stop]] = []
        self._held: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._aborted: list[tuple[datetime, Reason]] = []
        self._notified = 0
        self._is_demoted = False
        self.promises: list[Promise] = []
        self.decisions: list[Decision] = []

    def run(self, *, exact: bool) -> Backtest:
        for k in range(len(self._moments)):
            self._turn(k)
        return Backtest(
            policy=self._told.name,
            fingerprint=as_enforced(self._told).fingerprint,
            window=Window(self._moments[0], self._moments[-1])
            if len(self._moments) > 1
            else self._window,
            step=self._moments[1] - self._moments[0] if len(self._moments) > 1 else timedelta(0),
            moments=len(self._moments),
            cases=self._chances.count,
            told=self._notified,
            stops=tuple(stop for _, stop in self._stops),
            held=held(self._held, [case for case, _ in self._stops]),
            aborted=tuple(self._aborted),
            within=self._within,
            declared=self._told.regret.rate,
            exact=exact,
            unresolved=unresolved.unresolved(self._views, self._ground, self._candidates),
            unknown=unknown(self._told),
        )

    def _turn(self, k: int) -> None:
        now = self._moments[k]
        found = []
        if self._due[k] and self._turns.incident(now) is not None:
            # Nothing is even planned; a person lets it go on, at the next turn without a cause.
            self._later(k, self._due[k])
            return
        for case in sorted(set(self._due[k])):
            row = self._chances.row_at(case, k)
            self._ready.discard(case)
            if row is None:
                continue
            finding = self._past.finding(row)
            until = self._owned[_subject(finding)].stopped_until
            if until > self._at[k]:
                self._wake(case, until)
                continue
            self._cases[case].first_seen = self._cases[case].first_seen or now
            found.append((case, finding))
        waiting = {c for c in self._ready if self._chances.row_at(c, k) is not None}
        self._ready = waiting
        if found:
            self._decide(k, now, found, len(waiting))

    def _decide(
        self, k: int, now: datetime, found: Sequence[tuple[int, Finding]], waiting: int
    ) -> None:
        spent = self._fleets.at(k)
        self._uses = [u for u in self._uses if u.at > now - self._horizon]
        too_many = exceeded(self._policy, waiting, spent) if waiting else None
        if too_many is not None:
            self._abort(k, now, too_many, [case for case, _ in found])
            return
        around = self._around(now, [finding for _, finding in found])
        cases = [
            (self._facts(case, finding, advice[0], now, around), case)
            for case, finding in found
            if (advice := recommend(finding))
        ]
        cases.sort(key=lambda each: rank(each[0]))
        name = frozenset({self._policy.name})
        demoted = name if self._demoted(now) else frozenset()
        free = msgspec.structs.replace(spent, trusted=name, demoted=demoted)
        room = Room(self._policy, free, self._uses, now, self._at_once)
        made: list[tuple[int, Facts, Decision]] = []
        ready = waiting
        for facts, case in cases:
            decision, facts = self._decided(case, facts, free, now)  # noqa: PLW2901
            if decision.ruling == "allow" and decision.step in ACTING:
                decision = room.taken(decision, facts)
            if is_ready(decision):
                ready += 1
            made.append((case, facts, decision))
        too_many = exceeded(self._policy, ready, spent) if ready else None
        if too_many is not None:
            self._ready |= {case for case, _, decision in made if is_ready(decision)}
            self._abort(k, now, too_many, [case for case, _, _ in made])
            return
        for case, facts, decision in made:
            self._apply(k, now, case, facts, decision)

    def _demoted(self, now: datetime) -> bool:
        """Say whether owners have taken back more by now than the policy declares.

        As in `actions.loop.watching.demote`: the first reversal is bad luck, where any is allowed.
        """
        if not self._turns.lived:
            return False
        acted = [stop for _, stop in self._stops if stop.at < now]
        back = 0
        for stop in acted:
            if stop.used_at is None or stop.used_at > now:
                continue
            # The service sees it at its next turn.
            after = bisect_right(self._at, micros(stop.at))
            k = max(bisect_left(self._at, micros(stop.used_at)), after)
            back += self._moments[k] - stop.at <= self._policy.regret.within
        rate = self._policy.regret.rate
        self._is_demoted = self._is_demoted or back > max(1 if rate else 0, rate * len(acted))
        return self._is_demoted

    def _decided(
        self, case: int, facts: Facts, free: Spent, now: datetime
    ) -> tuple[Decision, Facts]:
        """Decide as if nothing was spent; a snapshot that comes next is taken, and kept."""
        decision = decide(self._policy, facts, free, now)
        if decision.step != "snapshot" or decision.ruling != "allow":
            return decision, facts
        self._cases[case].snapshot_at = now
        history = msgspec.structs.replace(facts.history, snapshot_at=now)
        known = msgspec.structs.replace(facts, history=history)
        return decide(self._policy, known, free, now), known

    def _abort(self, k: int, now: datetime, why: Reason, cases: Sequence[int]) -> None:
        self._aborted.append((now, why))
        self._later(k, [c for c in cases if c not in self._ready])

    def _later(self, k: int, cases: Sequence[int]) -> None:
        if k + 1 < len(self._due):
            self._due[k + 1] += cases

    def _apply(self, k: int, now: datetime, case: int, facts: Facts, decision: Decision) -> None:
        self.decisions.append(decision)
        if decision.ruling == "allow":
            if decision.step in PROMISED:
                depends = unknown(self._told) if decision.step in ACTING else ()
                finding = facts.finding.id
                promise = Promise(now, decision.step, decision.subject, finding, depends)
                self.promises.append(promise)
            if decision.step == "notify":
                mine = self._cases[case]
                mine.notified_at = mine.notified_at or now
                if decision.verb not in mine.announced:
                    mine.announced = {decision.verb: now}
                self._notified += 1
                # Until its grace is over nothing else comes of it; at least one moment passes.
                grace = self._policy.rung("grace")
                wait = _us(grace.wait) if grace else 0
                self._wake(case, self._at[k] + max(wait, 1))
            elif decision.step in ACTING:
                self._stop(now, case, facts, decision)
            return
        self._hold(k, case, facts, decision)

    def _hold(self, k: int, case: int, facts: Facts, decision: Decision) -> None:
        """Remember what keeps a case, and when to ask about it again."""
        ready = is_ready(decision)
        for reason in decision.reasons:
            if reason.gate not in _LADDER and (ready or reason.gate not in ROOM):
                self._held[reason.gate, _what(reason)].add(case)
        if ready:
            self._ready.add(case)
        if decision.ruling == "hold" and decision.next_at is not None:
            self._wake(case, micros(decision.next_at))
        elif any(r.gate in self._fleeting for r in decision.reasons):
            self._again(k, case)
        edge = self._ground.next_edge(key_of(facts.finding.subject), self._at[k])
        if edge is not None:
            # Strictly after: what changes at a moment is not known before the next one.
            self._wake(case, edge + 1)

    def _stop(self, now: datetime, case: int, facts: Facts, decision: Decision) -> None:
        self._uses.append(use(decision, now))
        at, finding = micros(now), facts.finding
        used = self._used.get(case)
        used = None if used is None else max(used, at)
        if self._turns.lived:
            made = self._ground.next_pod(key_of(finding.subject), at)
            used = min((each for each in (used, made) if each is not None), default=None)
        gone, gpu_hours = self._freed(key_of(finding.subject), at, used)
        known = used is not None or micros(self._window.end) - at >= _us(self._within)
        regretted = used is not None and used - at <= _us(self._within)
        rate = decision.usd_per_day
        share = gpu_hours / (facts.gpus * DAY_HOURS) if facts.gpus else 0.0
        usd = None if rate is None else (rate * Decimal(repr(round(share, 9)))).quantize(_CENT)
        owned = self._owned[decision.subject]
        owned.last_action_at = now
        owned.stopped_until = float("inf") if used is None else used
        if used is not None:
            owned.restored.append(moment(used))
        stop = Stop(
            at=now,
            finding=finding.id,
            subject=decision.subject,
            verb=decision.verb,
            owner=decision.owner,
            gpus=decision.gpus,
            usd_per_day=rate,
            idle_since=finding.window.start,
            told_at=self._cases[case].announced.get(decision.verb),
            used_at=None if used is None else moment(used),
            back_at=moment(gone),
            gpu_hours=gpu_hours,
            usd=usd,
            regretted=regretted if known else None,
        )
        self._stops.append((case, stop))

    def _freed(self, key: Key, at: int, used: int | None) -> tuple[int, float]:
        """Return until when a workload's GPUs would have been free, and the GPU-hours till then."""
        end = micros(self._window.end) if used is None else used
        parts = [
            (min(h.end, end) - max(h.start, at), min(h.end, end), h.share * h.weight)
            for h in self._ground.all_held(key)
            if h.end > at and h.start < end
        ]
        hours = sum(length * gpus for length, _, gpus in parts) / HOUR_US
        return max((until for _, until, _ in parts), default=at), round(hours, 6)

    def _around(self, now: datetime, findings: Sequence[Finding]) -> "_Around":
        """Return what facts need besides the ground, where this policy or a case asks for it."""
        asks = self._policy.on_pressure or self._policy.on_benefit
        quiet = [finding for finding in findings if not tells(finding)]
        unseen = [f for f in findings if key_of(f.subject) in self._partly_seen]
        return _Around(
            Line(self._ground, now) if asks else None,
            Quotas(self._views, now) if self._policy.match.over_quota else None,
            Seen(self._views, self._ground, quiet, now) if quiet else None,
            Coverage(self._views, unseen, now) if unseen else None,
        )

    def _facts(
        self,
        case: int,
        finding: Finding,
        advice: Recommendation,
        now: datetime,
        around: "_Around",
    ) -> Facts:
        facts = facts_of(
            self._ground,
            finding,
            advice,
            now,
            line=around.line,
            quotas=around.quotas,
            seen=around.seen,
            held=around.covered.of(finding) if around.covered else None,
        )
        known, owned = self._cases[case], self._owned[_subject(finding)]
        history = History(
            first_seen=known.first_seen,
            notified_at=known.notified_at,
            announced=dict(known.announced),
            snapshot_at=known.snapshot_at,
            last_action_at=owned.last_action_at,
            restored_at=tuple(owned.restored),
        )
        return msgspec.structs.replace(facts, history=history)

    def _again(self, k: int, case: int) -> None:
        if k + 1 < len(self._due):
            self._due[k + 1].append(case)

    def _wake(self, case: int, at: float) -> None:
        """Ask again at the first moment that is not before `at`."""
        k = bisect_left(self._at, at)
        if k < len(self._at):
            self._due[k].append(case)


_KEY = ("cluster", "namespace", "workload_kind", "workload")
_CENT = Decimal("0.01")


def _subject(finding: Finding) -> Subject:
    whose = finding.subject
    return whose.cluster, whose.workload_kind, whose.namespace, whose.workload


def _what(reason: Reason) -> str:
    """Return a budget's rule, or nothing: other gates are counted as a whole."""
    return reason.text.partition(": ")[0] if reason.gate in {"budget", "blackout"} else ""


def _us(length: timedelta) -> int:
    return round(length.total_seconds() * 1_000_000)


def _used(views: Views, lasts: pl.DataFrame, window: Window, at: Sequence[int]) -> dict[int, int]:
    """Return when each case's workload was next at work after its stretch."""
    if lasts.is_empty():
        return {}
    hourly = all(moment_us % HOUR_US == 0 for moment_us in at)
    text = (files("actions.backtest") / "used.sql").read_text(encoding="utf-8").strip()
    asked = {"cases": lasts.write_json(), "since": window.start, "until": window.end}
    rows = views.query(text, {**asked, "hourly": hourly}).to_pylist()
    return {r["case_id"]: r["used_us"] for r in rows if r["used_us"] is not None}
