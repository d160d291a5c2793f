"""A case keeps its identity while the waste goes on, though analyzers look back one day only."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from actions.decide import decide
from actions.journal import event_types
from actions.loop.actor import Actor
from actions.plan import plan
from actions.policy.model import Allow, Match, Policy, Stage
from fallow.action_models import Facts
from fallow.models import compute_finding_id
from fallow.window import Window
from tests.actions.loop.site import START, Evidence, Site

HOUR = timedelta(hours=1)
LOOKBACK = 25 * HOUR
LEAST = HOUR
"""Idle for less is no finding."""
GPUS = 2.0
USD_H = Decimal(3)


class Analyzer(Evidence):
    """What an analyzer that looks back 25 hours finds of one workload with known idle stretches."""

    stretches: Sequence[tuple[datetime, datetime | None]] = ((START, None),)
    generic_id: str = ""

    def _facts(self, kind: str, name: str, now: datetime) -> Facts:
        return self.found(kind, name, now)[-1]

    def cases(self, now: datetime) -> list[Facts]:
        return [f for kind, name in self.idle for f in self.found(kind, name, now)]

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        subject = facts.finding.subject
        found = self.found(subject.workload_kind, subject.workload, now)
        return found[-1] if found else None

    def found(self, kind: str, name: str, now: datetime) -> list[Facts]:
        made = []
        for begin, end in self.stretches:
            window = (max(begin, now - LOOKBACK), min(end or now, now))
            if window[1] - window[0] >= LEAST:
                made.append(self.facts_of(kind, name, now, Window(*window)))
        return made

    def facts_of(self, kind: str, name: str, now: datetime, window: Window) -> Facts:
        facts = super()._facts(kind, name, now)
        hours = window.seconds / 3600 * GPUS
        finding = msgspec.structs.replace(
            facts.finding,
            id=self.generic_id
            or compute_finding_id("idle", "idle", facts.finding.subject, window.start),
            window=window,
            gpu_hours=hours,
            usd=Decimal(str(hours)) * USD_H,
        )
        return msgspec.structs.replace(
            facts,
            finding=finding,
            interval_s=30.0,
            coverage=1.0,
            shared=False,
            owner_resolved=True,
            nodes_ready=True,
            skew_s=0.0,
            created_at=START - HOUR,
            seen_until=window.end - timedelta(seconds=20),
        )


def policy(grace: timedelta) -> Policy:
    return Policy(
        name="idle",
        mode="enforce",
        match=Match(analyzer=("idle",)),
        allow=Allow(namespaces=("*",), kinds=("Deployment",)),
        stages=(
            Stage("notify"),
            Stage("grace", wait=grace),
            Stage("act", do=("scale",), verbs=("scale*",)),
        ),
    )


def actor_of(site: Site, grace: timedelta) -> Actor:
    """Return an actor that plans and decides as the service does, trusted from the start."""
    rule = policy(grace)
    made = site.actor(policies=[rule], planner=plan, decider=decide)
    if rule.name not in made.record.catch_up().trusted:
        made.record.append(
            event_types.TRUSTED, rule.name, {"fingerprint": rule.fingerprint, "by": "me"}
        )
    return made


def begin(site: Site) -> Analyzer:
    """Make a Deployment that idles from a moment on, and the analyzer that finds it."""
    analyzer = Analyzer(site.server.url, lambda: site.now)
    site.evidence = analyzer
    site.deployment()
    analyzer.stretches = ((site.now, None),)
    return analyzer


def turns(site: Site, actor: Actor, every: timedelta, count: int) -> list[datetime]:
    """Let so many turns pass; return when something was acted upon."""
    acted = []
    for _ in range(count):
        site.pass_time(hours=every / HOUR)
        report = actor.turn(dry_run=False)
        acted += [site.now for t in report.steps if t.result == "acted"]
        if site.replicas() == 0:
            site.evidence.idle.clear()
    return acted


def seen_ids(site: Site) -> set[str]:
    return {e.key for e in site.journal().entries(event_types.SEEN)}


@pytest.mark.parametrize("every", [1, 6], ids=lambda h: f"{h}h")
@pytest.mark.parametrize("grace", [24, 48], ids=lambda h: f"grace-{h}h")
def test_a_forgotten_workload_is_acted_upon_once_after_its_grace(
    site: Site, every: int, grace: int
) -> None:
    begin(site)
    began = site.now
    actor = actor_of(site, grace * HOUR)
    acted = turns(site, actor, every * HOUR, 5 * 24 // every)
    (noticed,) = site.journal().entries(event_types.NOTIFIED)
    assert len(acted) == 1
    due = noticed.at + grace * HOUR
    assert due <= acted[0] < due + every * HOUR
    assert len(seen_ids(site)) == 1
    (result,) = actor.record.actions.values()
    assert result.facts is not None
    finding = result.facts.finding
    assert finding.window.start == began
    # What was stored before the analyzer's window, and what it found in it: no hour more or less.
    length = (finding.window.end - began) / HOUR
    assert finding.gpu_hours == pytest.approx(length * GPUS, rel=1e-6)
    assert float(finding.usd or 0) == pytest.approx(length * GPUS * float(USD_H), rel=1e-6)


def test_a_case_has_one_id_on_day_one_three_and_five_over_restarts(site: Site) -> None:
    begin(site)
    ids = []
    for _ in range(5):
        # Another process each day: nothing but the journal is left of the one before.
        actor = actor_of(site, 30 * 24 * HOUR)
        assert turns(site, actor, 6 * HOUR, 4) == []
        (facts,) = actor.record.continue_cases(site.evidence.cases(site.now))
        ids.append(facts.finding.id)
    assert len(set(ids)) == 1
    assert len(site.journal().entries(event_types.NOTIFIED)) == 1


def test_half_an_hour_of_activity_ends_the_case_its_notice_and_its_grace(site: Site) -> None:
    analyzer = begin(site)
    (began, _) = analyzer.stretches[0]
    actor = actor_of(site, 24 * HOUR)
    assert turns(site, actor, HOUR, 20) == []
    busy = site.now
    analyzer.stretches = ((began, busy), (busy + HOUR / 2, None))
    acted = turns(site, actor, HOUR, 40)
    first, second = site.journal().entries(event_types.NOTIFIED)
    assert first.key != second.key
    assert second.at >= busy + HOUR / 2 + LEAST
    assert len(acted) == 1
    assert acted[0] >= second.at + 24 * HOUR
    (result,) = actor.record.actions.values()
    assert result.action.decision.finding == second.key
    assert result.facts is not None
    assert result.facts.finding.window.start == busy + HOUR / 2


def test_a_new_stretch_under_the_same_id_is_a_new_case_with_a_notice_of_its_own(
    site: Site,
) -> None:
    """An analyzer of somebody else may name all stretches of a workload alike."""
    analyzer = begin(site)
    analyzer.generic_id = "same-each-time"
    (began, _) = analyzer.stretches[0]
    actor = actor_of(site, 24 * HOUR)
    turns(site, actor, HOUR, 10)
    busy = site.now
    analyzer.stretches = ((busy + 2 * HOUR, None),)
    acted = turns(site, actor, HOUR, 40)
    first, second = site.journal().entries(event_types.NOTIFIED)
    assert (first.key, len(acted)) == ("same-each-time", 1)
    assert second.key != first.key
    assert began < busy < second.at <= acted[0] - 24 * HOUR


def test_an_object_made_anew_under_the_old_name_is_a_new_case(site: Site) -> None:
    analyzer = begin(site)
    (began, _) = analyzer.stretches[0]
    actor = actor_of(site, 24 * HOUR)
    turns(site, actor, HOUR, 20)
    until = site.now
    site.store.delete("Deployment", "web", "team-a")
    analyzer.idle.clear()
    site.deployment()
    # The devices were never seen at work: only the uid says that it is another.
    acted = turns(site, actor, HOUR, 30)
    first, second = site.journal().entries(event_types.NOTIFIED)
    assert first.key != second.key
    assert len(acted) == 1
    assert acted[0] >= second.at + 24 * HOUR
    (result,) = actor.record.actions.values()
    assert result.facts is not None
    assert result.facts.finding.window.start >= until > began


def test_what_the_service_did_not_see_for_a_day_is_not_the_same_case(site: Site) -> None:
    """Its journal alone cannot tell: nothing shows what was there in between."""
    begin(site)
    actor = actor_of(site, 30 * 24 * HOUR)
    turns(site, actor, HOUR, 30)
    turns(site, actor, LOOKBACK + HOUR, 1)
    turns(site, actor, HOUR, 2)
    assert len(seen_ids(site)) == 2
    assert len(site.journal().entries(event_types.NOTIFIED)) == 2


def old_journal(site: Site, notice_after: timedelta, days: int) -> str:
    """Write what the actor of bef8a1a wrote of a case that idled for days; return its id."""
    subject = ["idle", "idle", "c", "Deployment", "team-a", "web"]
    case, start = "373ab28d9e44", site.now
    site.pass_time(hours=2)
    journal = site.journal()
    journal.append(event_types.SEEN, case, {"kin": subject, "until": site.now.isoformat()})
    site.pass_time(hours=notice_after / HOUR)
    journal.append(
        event_types.NOTIFIED, case, {"policy": "idle", "channels": ["hook"], "text": "idle"}
    )
    while site.now < start + timedelta(days=days):
        site.pass_time(hours=6)
        journal.append(event_types.SEEN, case, {"kin": subject, "until": site.now.isoformat()})
    return case


def test_a_journal_of_before_is_read_and_its_notice_counts(site: Site) -> None:
    begin(site)
    case = old_journal(site, HOUR, days=3)
    actor = actor_of(site, 48 * HOUR)
    acted = turns(site, actor, HOUR, 2)
    assert [site.now - HOUR] == acted
    (result,) = actor.record.actions.values()
    assert result.action.decision.finding == case
    assert len(site.journal().entries(event_types.NOTIFIED)) == 1
    assert result.facts is not None
    # The old rows do not say what it had cost: what was judged is told, and from when.
    details: dict[str, Any] = result.facts.finding.details["case"]
    assert details["counted_from"] == (site.now - HOUR - LOOKBACK).isoformat()
    assert result.facts.finding.gpu_hours == LOOKBACK / HOUR * GPUS


def test_a_journal_of_before_whose_notice_never_came_gets_one(site: Site) -> None:
    begin(site)
    case = old_journal(site, HOUR, days=3)
    rule = policy(24 * HOUR)
    named = msgspec.structs.replace(rule, name="another")
    actor = site.actor(policies=[named], planner=plan, decider=decide)
    actor.record.append(
        event_types.TRUSTED, "another", {"fingerprint": named.fingerprint, "by": "me"}
    )
    acted = turns(site, actor, 6 * HOUR, 6)
    noticed = [
        e for e in site.journal().entries(event_types.NOTIFIED) if e.document["policy"] != "idle"
    ]
    assert [e.key for e in noticed] == [case]
    assert len(acted) == 1
    assert acted[0] >= noticed[0].at + 24 * HOUR
