"""A turn on a living cluster: notice, grace, act, verify."""

from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from actions.journal import event_types
from actions.loop.actor import Actor
from actions.loop.annotate import ANNOTATION_KEYS
from actions.loop.context import ActionContext
from fallow.action_models import Facts
from fallow.protections import read_protections
from fallow.window import Window
from tests.actions.loop.site import POLICY, SPACE, Site, bare


def test_an_idle_deployment_is_told_waited_for_scaled_down_and_verified(site: Site) -> None:
    before = bare(site.deployment())
    actor = site.actor()
    site.told_and_waited(actor)
    assert site.replicas() == 2
    report = actor.turn(dry_run=False)
    assert [t.result for t in report.steps] == ["acted"], report
    assert site.replicas() == 0
    annotations = site.get("Deployment", "web")["metadata"]["annotations"]
    assert annotations["fallow.dev/action"] == report.steps[0].action
    assert annotations["fallow.dev/undo"] == f"fallow undo {report.steps[0].action}"
    assert annotations["fallow.dev/how-to-keep"] == f"fallow keep Deployment/{SPACE}/web 24h"
    (event,) = [e for e in site.store.list("Event", SPACE) if e["reason"] == "Fallow"]
    assert "fallow undo" in event["message"]
    site.pass_time(minutes=3)
    assert not site.pods()
    closed = actor.turn(dry_run=False).closed
    assert [(o.result, o.freed_gpus) for o in closed] == [("done", 2.0)]
    outcome = actor.undo(report.steps[0].action or "", "ann")
    assert outcome.result == "undone"
    assert bare(site.get("Deployment", "web")) == before
    assert actor.record.journal.verify() is None


def test_what_we_write_on_an_object_protects_it_from_nothing() -> None:
    assert not set(ANNOTATION_KEYS) & {p.key for p in read_protections()}


def test_the_journal_is_written_before_the_first_write_and_around_each(site: Site) -> None:
    site.deployment()
    site.acted(site.actor())
    kinds = site.kinds()
    assert kinds == [
        event_types.SEEN,
        event_types.NOTIFIED,
        event_types.INTENT,
        event_types.SENDING,
        event_types.SENT,
    ]
    (intent,) = site.journal().entries(event_types.INTENT)
    action = intent.document["action"]
    assert action["intent"]["undo"][0]["becomes"] == {"/spec/replicas": 2}
    assert intent.document["facts"]["uid"] == site.get("Deployment", "web")["metadata"]["uid"]
    assert intent.document["policy"]["fingerprint"] == POLICY.fingerprint


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    rows, wanted = len(site.kinds()), len(site.writes())
    (taken,) = actor.turn().steps
    assert taken.result == "would act"
    assert taken.intent is not None
    assert taken.intent.changes[0].becomes == {"/spec/replicas": 0}
    assert (len(site.kinds()), len(site.writes())) == (rows, wanted)


def test_first_sight_of_an_idle_workload_never_acts(site: Site) -> None:
    site.deployment()
    report = site.actor().turn(dry_run=False)
    assert report.plan is not None
    assert report.plan.decisions[0].step == "notify"
    assert not site.writes("/scale")


def test_a_notice_that_is_not_delivered_starts_no_grace(site: Site) -> None:
    site.deployment()
    site.told.failing = True
    actor = site.actor()
    for _ in range(5):
        actor.turn(dry_run=False)
        site.pass_time(hours=1)
    assert site.replicas() == 2
    assert event_types.NOTIFIED not in site.kinds()
    assert site.kinds().count(event_types.NOTIFICATION_FAILED) <= 5


def test_a_case_that_lasts_longer_than_analyzers_look_back_stays_the_same(site: Site) -> None:
    """Its finding begins a little later each time, and has another id."""
    site.deployment()
    actor = site.actor()
    found = site.evidence.cases

    def moving(now: datetime) -> list[Facts]:
        made = []
        for facts in found(now):
            window = Window(now - timedelta(days=7), now)
            finding = msgspec.structs.replace(facts.finding, id=f"f-{now:%H%M%S}", window=window)
            made.append(msgspec.structs.replace(facts, finding=finding))
        return made

    site.evidence.cases = moving  # type: ignore[method-assign]
    site.evidence.again = lambda facts, now: moving(now)[0]  # type: ignore[method-assign]  # noqa: ARG005
    state = site.acted(actor)
    assert state.action.decision.finding == "f-120300"
    assert site.kinds().count(event_types.SEEN) == 1
    site.evidence.cases = found  # type: ignore[method-assign]
    again = msgspec.structs.replace(
        found(site.now)[0].finding, id="later", window=Window(site.now, site.now + timedelta(1))
    )
    assert actor.record.case(again) == "later"


def test_what_was_done_counts_against_budgets_of_the_next_turn(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.acted(actor)
    (use,) = actor.record.uses(site.now - timedelta(days=1))
    assert (use.gpus, use.owner, use.usd_per_hour) == (Decimal(2), "team-a", Decimal(6))
    assert actor.record.count_by_policy() == {"idle": 1}


def test_a_record_read_anew_is_the_record_that_was_kept(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    actor.undo(state.action.id, "ann")
    other: Actor = site.actor()
    other.record.catch_up()
    assert msgspec.to_builtins(other.record.actions, enc_hook=str) == msgspec.to_builtins(
        actor.record.actions, enc_hook=str
    )
    assert isinstance(other.context, ActionContext)
