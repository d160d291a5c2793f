"""The replay of a service: all its policies at its own turns, planned as its actor plans them.

    pasts of analyzers ─► findings of a turn ─► cases (fallow.continuity) ─► facts, as of the turn
      ─► `plan`, the same as live ─► promises ─► what the next turn knows of each case

A back-test of one policy does not know which policy goes first on an object, nor that the cases of
one end the turn of all. This one does. What no history tells is asked of `Answers`; where these do
not know, the step is promised only under the gates that it names.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import polars as pl

from actions.backtest.fleets import Fleets
from actions.backtest.replaying import MOMENT, Promise
from actions.facts.coverage import Coverage, partly_seen
from actions.facts.gathering import Seen, facts_of, tells
from actions.facts.ground import Ground, Key, key_of, micros, moment
from actions.facts.quotas import Quotas
from actions.facts.waiting import Line
from actions.planning import ACTING, Plan, Subject, plan, subject_of
from actions.policy.budgets import Spent, Use, horizon, use
from actions.policy.model import Policy
from actions.recommend import recommend
from fallow import continuity
from fallow.acting import Decision, Facts, History
from fallow.action_settings import ActionsSettings
from fallow.continuity import Kin, Stretch, kin_of, stretch_of
from fallow.nouns import Finding
from fallow.seams import Past, Views
from fallow.window import Window

APPROVAL = "approval"
PLAYED = "somebody"
Case = tuple[str, str]
"""policy, finding"""


class Answers(msgspec.Struct, frozen=True):
    """What is known of the answers that no history tells."""

    approves: bool = False
    """Whoever has to approve does, between the turn that asks and the next; else nobody knows."""
    shut: Callable[[Decision], tuple[str, ...] | None] = lambda _decision: None
    """Return which gates of `MOMENT` said no to an act; nothing = none did; None = unknown."""


class Turns(msgspec.Struct, frozen=True):
    """The turns of a service, and what they have besides their times."""

    times: Sequence[datetime]
    settings: ActionsSettings
    incident: Callable[[datetime], str | None] = lambda _at: None
    """Says why telemetry as a whole is not to be trusted: nothing is done at that turn."""
    lag: timedelta = timedelta(0)
    """From a turn until its acts: their evidence is read again."""
    answers: Answers = Answers()


class Replayed(msgspec.Struct, frozen=True):
    """What a service would have done, and all that its plans said."""

    promises: tuple[Promise, ...]
    plans: tuple[tuple[datetime, Plan], ...]


class _Act(msgspec.Struct):
    """One act of the replay."""

    at: datetime
    decision: Decision
    key: Key
    back_at: datetime | None = None
    """At which turn its owner was seen to have it back."""


class _Row(NamedTuple):
    past: Past
    number: int


def replay(
    policies: Sequence[Policy],
    pasts: Mapping[str, Past],
    views: Views,
    window: Window,
    turns: Turns,
) -> Replayed:
    """Return every notice and act of a service with these policies, turn by turn.

    `pasts`: what each analyzer found at each turn, by its name. The rows are those of a service
    that acted: what it stopped is stopped in them, and who has it back made new pods of it.
    """
    made = _Service(policies, pasts, views, window, turns)
    for k in range(len(turns.times)):
        made.turn(k)
    return Replayed(tuple(made.promises), tuple(made.plans))


class _Service:
    def __init__(
        self,
        policies: Sequence[Policy],
        pasts: Mapping[str, Past],
        views: Views,
        window: Window,
        turns: Turns,
    ) -> None:
        self._turns, self._views = turns, views
        self._policies = {policy.name: policy for policy in policies}
        self._rows: dict[int, list[_Row]] = defaultdict(list)
        keys: set[Key] = set()
        for past in pasts.values():
            frame: pl.DataFrame = pl.DataFrame(past.rows)
            for number, k in enumerate(frame["k"].to_list()):
                self._rows[k].append(_Row(past, number))
            keys.update(frame.select(_KEY).unique().iter_rows())
        named = sorted(keys, key=str)
        self._ground = Ground(views, window.start, window.end, named)
        self._partly_seen = partly_seen(views, named, window.start, window.end)
        priced = [p for p in policies if any(b.usd_per_hour for b in p.budgets)]
        self._fleets = Fleets(views, self._ground, [*priced, *policies][0], turns.times)
        self._stretches: dict[Kin, dict[str, Stretch]] = defaultdict(dict)
        self._first_seen: dict[str, datetime] = {}
        self._noticed: dict[Case, dict[str, datetime]] = defaultdict(dict)
        self._asked: dict[Case, int] = {}
        self._acts: list[_Act] = []
        self._demoted: set[str] = set()
        self.promises: list[Promise] = []
        self.plans: list[tuple[datetime, Plan]] = []

    def turn(self, k: int) -> None:
        now = self._turns.times[k]
        self._take_back(now)
        self._demote()
        if self._turns.incident(now) is not None:
            return  # nothing is even planned; a person lets it go on at a turn without a cause
        facts = self._cases(self._facts(now, self._found(k)))
        known = {
            (name, f.finding.id): self._history(name, f.finding, subject_of(f), k)
            for name in self._policies
            for f in facts
        }
        for each in facts:
            self._first_seen.setdefault(each.finding.id, now)
        made = plan([*self._policies.values()], facts, self._spent(k, now), now, known)
        self.plans.append((now, made))
        if made.aborted is None:
            self._take(k, now, made, {f.finding.id: f for f in facts})

    # What a turn knows.

    def _found(self, k: int) -> list[Finding]:
        """Return what is found at a turn; what was stopped is gone until its owner has it back."""
        away = {act.key for act in self._acts if act.back_at is None}
        found = [row.past.finding(row.number) for row in self._rows[k]]
        return [finding for finding in found if key_of(finding.subject) not in away]

    def _facts(self, now: datetime, findings: Sequence[Finding]) -> list[Facts]:
        """Return the facts of all findings that recommend something, as `gather` does live."""
        advised = [(f, r[0]) for f in findings if f.window.start < now and (r := recommend(f))]
        if not advised:
            return []
        found = [f for f, _ in advised]
        quiet = [f for f in found if not tells(f)]
        unseen = [f for f in found if key_of(f.subject) in self._partly_seen]
        line, quotas = Line(self._ground, now), Quotas(self._views, now)
        seen = Seen(self._views, self._ground, quiet, now) if quiet else None
        covered = Coverage(self._views, unseen, now) if unseen else None
        return [
            facts_of(
                self._ground, finding, advice, now, line=line, seen=seen, quotas=quotas,
                held=covered.of(finding) if covered else None,
            )
            for finding, advice in advised
        ]  # fmt: skip

    def _cases(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return facts with their findings as the cases that they go on since earlier turns."""
        findings = [f.finding for f in facts]
        uids = {n: f.uid for n, f in enumerate(facts) if f.uid is not None}
        stored = {kin: [*self._stretches[kin].values()] for kin in map(kin_of, findings)}
        cases = continuity.resolve(findings, stored, uids)
        for case, each in zip(cases, facts, strict=True):
            self._stretches[kin_of(case)][case.id] = stretch_of(case, each.uid)
        return [
            msgspec.structs.replace(f, finding=case) for f, case in zip(facts, cases, strict=True)
        ]

    def _history(self, policy: str, finding: Finding, whom: Subject, k: int) -> History:
        case = policy, finding.id
        begin = finding.window.start
        told = {verb: at for verb, at in self._noticed.get(case, {}).items() if at >= begin}
        acts = [act for act in self._acts if act.decision.subject == whom]
        back = tuple(act.back_at for act in acts if act.back_at is not None)
        asked = self._asked.get(case)
        approved = asked is not None and asked < k
        return History(
            first_seen=self._first_seen.get(finding.id),
            notified_at=min(told.values(), default=None),
            announced=told,
            # Two, where a policy asks for four eyes.
            approved_by=(PLAYED, f"{PLAYED} else") if approved else (),
            last_action_at=max((act.at for act in acts), default=None),
            restored_at=back,
            contested_until=self._contested(back),
        )

    def _contested(self, back: Sequence[datetime]) -> datetime | None:
        """Return until when a workload is left alone whose owner took back what was done."""
        if not back:
            return None
        rest = self._turns.settings.back_off
        length: timedelta = min(rest.contested * 2 ** min(len(back) - 1, 10), rest.most)
        return max(back) + length

    def _spent(self, k: int, now: datetime) -> Spent:
        since = now - horizon([*self._policies.values()])
        acted: dict[str, int] = defaultdict(int)
        for act in self._acts:
            acted[act.decision.policy] += 1
        return msgspec.structs.replace(
            self._fleets.at(k),
            uses=tuple(self._use(act) for act in self._acts if act.at >= since),
            trusted=frozenset(self._policies),
            demoted=frozenset(self._demoted),
            acted=dict(acted),
        )

    def _use(self, act: _Act) -> Use:
        return use(act.decision, act.at)

    def _take_back(self, now: datetime) -> None:
        """See which owners made new pods of what was stopped, as the turn before it plans does."""
        for act in self._acts:
            if act.back_at is None:
                made = self._ground.next_pod(act.key, micros(act.at))
                if made is not None and moment(made) <= now:
                    act.back_at = now

    def _demote(self) -> None:
        """As `actions.loop.watching.demote`: the first reversal is bad luck, if any is allowed."""
        for name, policy in self._policies.items():
            mine = [act for act in self._acts if act.decision.policy == name]
            back = [a for a in mine if a.back_at and a.back_at - a.at <= policy.regret.within]
            rate = policy.regret.rate
            if len(back) > max(1 if rate else 0, rate * len(mine)):
                self._demoted.add(name)

    # What a turn does.

    def _take(self, k: int, now: datetime, made: Plan, facts: Mapping[str, Facts]) -> None:
        for decision in made.decisions:
            if decision.step in ACTING and any(r.gate == APPROVAL for r in decision.reasons):
                self._asked.setdefault((decision.policy, decision.finding), k)
            if decision.ruling == "allow" and decision.step == "notify":
                case = decision.policy, decision.finding
                if decision.verb not in self._noticed[case]:
                    self._noticed[case] = {decision.verb: now}
                self._promise(now, decision, ())
        under_way = 0
        for decision in made.decisions:
            if decision.step not in ACTING:
                continue
            allowed, depends = self._opened(decision)
            if not allowed or under_way >= self._turns.settings.concurrent:
                continue
            shut = self._turns.answers.shut(decision)
            if shut:
                continue
            self._promise(now, decision, (*depends, *(MOMENT if shut is None else ())))
            under_way += 1
            key = key_of(facts[decision.finding].finding.subject)
            self._acts.append(_Act(now + self._turns.lag, decision, key))

    def _opened(self, decision: Decision) -> tuple[bool, tuple[str, ...]]:
        """Say whether an act is allowed, and under which gates that only people open."""
        if decision.ruling == "allow":
            return True, ()
        asks = {reason.gate for reason in decision.reasons} == {APPROVAL}
        return asks and not self._turns.answers.approves, (APPROVAL,)

    def _promise(self, now: datetime, decision: Decision, depends: tuple[str, ...]) -> None:
        step = "act" if decision.step in ACTING else decision.step
        self.promises.append(
            Promise(now, step, decision.subject, decision.finding, depends, decision.policy)
        )


_KEY = ("cluster", "namespace", "workload_kind", "workload")
