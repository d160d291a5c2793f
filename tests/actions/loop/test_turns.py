"""A turn on a living cluster: notice, grace, act, verify; and everything that holds it back."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from actions.journal import event_types
from actions.loop.actor import Actor, approve
from actions.loop.annotate import ANNOTATION_KEYS
from actions.loop.context import ActionContext
from actions.loop.lease import Lease
from actions.plan import ActionPlan
from actions.policy.model import Approvals, ReversalLimit, Stage
from actions.snapshots import RestoredPart, Snapshot, SnapshotPart
from fallow.action_models import Facts, Intent, Reason, Target
from fallow.errors import RefusedError, TemporaryError, UsageError
from fallow.protections import read_protections
from fallow.window import Window
from tests.actions.loop.site import POLICY, SPACE, Site, bare, plan


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


# Between the decision and the write.


def _busy(site: Site) -> None:
    site.evidence.busy_on_second_look.add("web")


def _woken(site: Site) -> None:
    site.evidence.awake_at_last.add("web")


def _stale(site: Site) -> None:
    site.evidence.age = timedelta(seconds=61)


def _unseen(site: Site) -> None:
    site.evidence.changes = {"seen_until": None}


def _another(site: Site) -> None:
    """The evidence still speaks of the object that was."""
    site.evidence.changes = {"uid": site.get("Deployment", "web")["metadata"]["uid"]}
    site.store.delete("Deployment", "web", SPACE)
    site.evidence.idle.clear()
    site.deployment()


def _new_case(site: Site) -> None:
    """The evidence speaks of another object: its owner was never told."""
    site.evidence.again = lambda facts, now: msgspec.structs.replace(facts, uid="another")  # type: ignore[method-assign]  # noqa: ARG005


def _no_uid(site: Site) -> None:
    site.evidence.changes = {"uid": None}


def _older(site: Site) -> None:
    site.evidence.changes = {"generation": 77}


def _written(site: Site) -> None:
    site.patch("Deployment", "web", {"spec": {"paused": False, "minReadySeconds": 5}})


def _kept(site: Site) -> None:
    answer = {"metadata": {"annotations": {"fallow.dev/keep": "true"}}}
    site.patch("Deployment", "web", answer)


def _kept_for_now(site: Site) -> None:
    answer = {"metadata": {"annotations": {"fallow.dev/keep-until": "2026-11-21T00:00:00Z"}}}
    site.patch("Deployment", "web", answer)


def _kept_namespace(site: Site) -> None:
    answer = {"metadata": {"annotations": {"fallow.dev/protect": "true"}}}
    site.store.patch("Namespace", SPACE, "", answer, manager="kubectl")


def _kept_pod(site: Site) -> None:
    answer = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    site.patch("Pod", site.pods()[0]["metadata"]["name"], answer)


def _argo(site: Site) -> None:
    answer = {
        "metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "x:apps/Deployment:y"}}
    }
    site.patch("Deployment", "web", answer)


def _forbidden(site: Site) -> None:
    site.server.access.deny("patch", "deployments/scale")


def _gone(site: Site) -> None:
    site.store.delete("Deployment", "web", SPACE)
    site.settle()


def _file(site: Site) -> None:
    (site.folder / "FREEZE").write_text("stop")


def _configmap(site: Site) -> None:
    body = {"metadata": {"name": "fallow-freeze", "namespace": "fallow"}, "data": {"frozen": "yes"}}
    site.store.create("ConfigMap", {"apiVersion": "v1", "kind": "ConfigMap", **body})


def _unreadable(site: Site) -> None:
    site.server.access.deny("get", "configmaps")


def _command(site: Site) -> None:
    site.journal().append(event_types.FROZEN, event_types.FLEET, {"why": "demo day"}, actor="ann")


def _incident(site: Site) -> None:
    site.evidence.why = "34 % of the devices turned idle within 15m"


def _other_actor(site: Site) -> None:
    two = site.actor(identity="two").lease
    assert two.hold() is not None
    site.pass_time(minutes=5)
    assert two.hold() is None


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (_busy, "no case any more"),
        (_woken, "seen at work"),
        (_stale, "older than 60 s"),
        (_unseen, "last sampled at never"),
        (_another, "another object"),
        (_new_case, "first sight never acts"),
        (_no_uid, "does not say which object"),
        (_older, "generation"),
        (_kept, "keep"),
        (_kept_for_now, "keep-until"),
        (_kept_namespace, "protect"),
        (_kept_pod, "do-not-disrupt"),
        (_argo, "Argo CD"),
        (_forbidden, "forbidden"),
        (_gone, ""),
        (_file, "FREEZE exists"),
        (_configmap, "says so"),
        (_unreadable, "may say frozen"),
        (_command, "demo day"),
        (_incident, "turned idle"),
        (_other_actor, "two acts"),
    ],
    ids=lambda x: x.__name__.strip("_") if callable(x) else "",
)
def test_nothing_is_done_once(site: Site, happens: Callable[[Site], None], says: str) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    happens(site)
    report = actor.turn(dry_run=False)
    answer = [*report.halted, *(r for t in report.steps for r in t.reasons)]
    assert any(says in r.text for r in answer), answer
    assert not any(t.result == "acted" for t in report.steps)
    assert not site.writes("/scale")
    assert event_types.INTENT not in site.kinds()


def test_a_spec_that_somebody_wrote_after_the_last_look_is_not_touched(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    site.evidence.age = timedelta(seconds=30)
    _written(site)
    site.pass_time(seconds=10)
    (taken,) = actor.turn(dry_run=False).steps
    assert "kubectl-edit changed it after the last sample of its devices" in taken.reasons[0].text
    assert not site.writes("/scale")


def test_the_same_refusal_is_written_down_once(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    _kept(site)
    for _ in range(3):
        actor.turn(dry_run=False)
    assert site.kinds().count(event_types.REFUSED) == 1


def test_an_annotation_of_the_last_moment_stops_the_write(site: Site) -> None:
    """The owner asks to keep it after everything was checked: the version no longer fits."""
    site.deployment()

    def pulse(step: str) -> None:
        if step == "journalled the intent":
            _kept(site)

    actor = site.actor(pulse=pulse)
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.reasons[0].gate == "conflict"
    assert site.replicas() == 2


def test_a_run_that_is_aborted_does_nothing_at_all(site: Site) -> None:
    """The eleventh of ten is not refused after ten were done: none is."""
    for name in ("a", "b"):
        site.deployment(name, replicas=1)

    def aborting(*asked: Any) -> ActionPlan:
        return msgspec.structs.replace(plan(*asked), aborted=Reason("max_resources", "2 of 1"))

    actor = site.actor(planner=aborting)
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    assert report.plan is not None
    assert report.plan.aborted is not None
    assert not report.steps
    assert not site.writes()
    assert not site.told.notices


# One actor, few actions, a way to stop them.


def test_of_two_actors_one_acts(site: Site) -> None:
    site.deployment()
    one, two = site.actor(identity="one"), site.actor(identity="two")
    for _ in range(4):
        reports = [one.turn(dry_run=False), two.turn(dry_run=False)]
        assert [bool(r.halted) for r in reports] == [False, True]
        site.pass_time(minutes=40)
        # The one that is silent for longer than its lease lasts loses it; here it never is.
        one.turn(dry_run=False)
    assert len(site.writes("/scale")) == 1


@pytest.mark.parametrize("minutes", [-60, -10, 10, 60])
def test_of_two_actors_whose_clocks_differ_one_acts(site: Site, minutes: int) -> None:
    def clock() -> datetime:
        return site.now + timedelta(minutes=minutes)

    def ticks() -> float:
        return site.now.timestamp()

    site.deployment()
    one = site.actor(identity="one")
    lease = Lease(site.door(), site.settings.lease, "two", clock, ticks)
    two = site.actor(identity="two", clock=clock, lease=lease)
    for _ in range(25):
        reports = [one.turn(dry_run=False), two.turn(dry_run=False)]
        assert [bool(r.halted) for r in reports] == [False, True]
        site.pass_time(minutes=3)
    assert len(site.writes("/scale")) == 1


def test_a_lease_is_taken_over_only_after_its_holder_was_silent_long_enough(site: Site) -> None:
    one, two = site.actor(identity="one"), site.actor(identity="two")
    assert one.lease.hold() is None
    site.pass_time(minutes=30)
    assert two.lease.hold() is not None, "it saw the lease for the first time"
    site.pass_time(seconds=119)
    assert two.lease.hold() is not None
    site.pass_time(seconds=2)
    assert two.lease.hold() is None
    assert one.lease.hold() is not None
    two.lease.give_up()
    assert one.lease.hold() is None


def test_so_many_actions_at_a_time(site: Site) -> None:
    for name in ("a", "b", "c"):
        site.deployment(name, replicas=1)
    actor = site.actor()
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    assert [t.result for t in report.steps] == ["acted", "acted", "held"]
    site.pass_time(minutes=3)
    assert actor.turn(dry_run=False).steps[-1].result == "acted"


def test_a_freeze_in_the_middle_stops_the_next_write_and_a_thaw_takes_the_half_back(
    site: Site,
) -> None:
    before = site.subject("CronJob")

    def pulse(step: str) -> None:
        if step == "journalled sent 0":
            _file(site)

    actor = site.actor(pulse=pulse)
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.is_open
    assert len(site.writes("/cronjobs", "night")) == 1
    actor = site.actor()
    assert actor.turn(dry_run=False).halted
    assert len(site.writes("batch")) == 1  # frozen: not even taken back
    site.evidence.idle = []
    assert actor.freeze.thaw("ann") == []
    actor.turn(dry_run=False)
    assert {key: bare(site.get(*key)) for key in before} == before
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "failed"


def test_freeze_by_command_switches_everything_and_thaw_switches_it_back(site: Site) -> None:
    site.deployment()
    actor, other = site.actor(), site.actor(actor="ann")
    site.told_and_waited(actor)
    assert other.freeze.freeze("demo day", "ann") == []
    assert (site.folder / "FREEZE").exists()
    assert site.get("ConfigMap", "fallow-freeze", "fallow")["data"]["frozen"] == "true"
    report = actor.turn(dry_run=False)
    assert "frozen by ann" in report.halted[0].text
    assert other.freeze.thaw("ann") == []
    assert [t.result for t in actor.turn(dry_run=False).steps] == ["acted"]


def test_a_thaw_that_cannot_reach_a_switch_leaves_everything_frozen(site: Site) -> None:
    actor = site.actor()
    actor.freeze.freeze("demo day", "ann")
    site.server.access.deny("patch", "configmaps")
    assert actor.freeze.thaw("ann")
    assert actor.freeze.why() is not None


def test_the_breaker_freezes_until_somebody_thaws(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    _incident(site)
    actor.turn(dry_run=False)
    site.evidence.why = None
    assert "breaker" in actor.turn(dry_run=False).halted[0].text
    assert any("acts no more" in text for text in site.told.operators())
    actor.freeze.thaw("ann")
    assert [t.result for t in actor.turn(dry_run=False).steps] == ["acted"]


def test_undo_works_while_everything_is_frozen(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    _file(site)
    assert actor.undo(state.action.id[:6], "ann").result == "undone"
    assert site.replicas() == 2


def test_people_undo_while_a_turn_plans(site: Site) -> None:
    site.deployment()
    actor, other = site.actor(), site.actor(actor="ann")
    state = site.done(actor)
    found = site.evidence.cases

    def planning(now: datetime) -> list[Facts]:
        site.evidence.cases = found  # type: ignore[method-assign]
        assert other.undo(state.action.id, "ann").result == "undone"
        return found(now)

    site.evidence.cases = planning  # type: ignore[method-assign]
    report = actor.turn(dry_run=False)
    assert not any(t.result == "acted" for t in report.steps)
    assert site.replicas() == 2


# Afterwards.


def test_what_gitops_takes_back_is_tried_once_and_left_alone(site: Site) -> None:
    before = site.deployment()
    body = {"spec": {"replicas": before["spec"]["replicas"]}}
    site.cluster.track("Deployment", SPACE, "web", body)
    actor = site.actor()
    state = site.acted(actor)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert state.outcome is not None
    assert state.outcome.result == "reverted"
    assert state.outcome.reverted_by == "argocd-controller"
    for _ in range(5):
        site.pass_time(hours=2)
        actor.turn(dry_run=False)
    assert len(site.writes("/scale")) == 1
    assert actor.record.count_reversals(
        "idle", timedelta(hours=24), site.now.replace(year=2020)
    ) == (0, 1)


def test_an_undo_before_the_next_turn_sees_that_its_owner_took_it_back(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    done = site.done(actor)
    site.pass_time(hours=2)
    site.patch("Deployment", "web", {"spec": {"replicas": 2}}, manager="kubectl-scale")
    with pytest.raises(RefusedError, match="reversed already, by kubectl-scale"):
        actor.undo(done.action.id, "ann")
    assert actor.record.count_reversals(
        "idle", timedelta(hours=24), site.now.replace(year=2020)
    ) == (1, 1)


def test_an_owner_who_takes_it_back_is_regret_and_left_alone_longer_each_time(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    site.pass_time(hours=2)
    site.patch("Deployment", "web", {"spec": {"replicas": 2}}, manager="kubectl-scale")
    actor.turn(dry_run=False)
    assert state.restored is not None
    assert (state.restored.by, state.restored.person) == ("kubectl-scale", True)
    finding = site.evidence.cases(site.now)[0].finding
    assert actor.record.history("idle", finding).contested_until == site.now + timedelta(days=1)
    assert actor.record.count_reversals(
        "idle", timedelta(hours=24), site.now.replace(year=2020)
    ) == (1, 1)
    with pytest.raises(RefusedError, match="reversed already, by kubectl-scale"):
        actor.undo(state.action.id, "ann")
    site.pass_time(days=1, minutes=1)
    report = actor.turn(dry_run=False)
    assert [t.result for t in report.steps] == ["acted"], report
    site.pass_time(hours=2)
    site.patch("Deployment", "web", {"spec": {"replicas": 2}}, manager="kubectl-scale")
    actor.turn(dry_run=False)
    assert len(actor.record.actions) == 2
    assert actor.record.history("idle", finding).contested_until == site.now + timedelta(days=2)


def test_a_policy_whose_owners_take_back_too_much_only_notifies(site: Site) -> None:
    site.policy = msgspec.structs.replace(POLICY, reversals=ReversalLimit(rate=0.0))
    site.deployment()
    actor = site.actor()
    trust = {"fingerprint": site.policy.fingerprint, "forced": False}
    actor.record.append(event_types.TRUSTED, "idle", trust)
    state = site.done(actor)
    actor.undo(state.action.id, "ann")
    report = actor.turn(dry_run=False)
    assert actor.record.demoted == {"idle"}
    assert "only notifies" in report.notes[0]
    assert any("only notifies" in text for text in site.told.operators())


def test_pods_that_stay_are_not_sticking_and_nothing_is_tried_again(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.acted(actor)
    site.now += timedelta(minutes=11)  # no controller moves meanwhile
    actor.turn(dry_run=False)
    assert state.outcome is not None
    assert state.outcome.result == "not sticking"
    assert "still there: team-a/web-" in state.outcome.reasons[0].text
    assert any("not sticking" in text for text in site.told.operators())


def test_an_object_that_its_owner_deletes_afterwards_is_watched_no_more(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    _gone(site)
    site.evidence.idle = []
    site.pass_time(hours=1)
    actor.turn(dry_run=False)
    assert state.ended
    with pytest.raises(RefusedError, match="is gone"):
        actor.undo(state.action.id, "ann")


# Undo and approval.


def test_undo_is_refused_when_somebody_changed_it_since(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    site.patch("Deployment", "web", {"spec": {"replicas": 1}}, manager="kubectl-scale")
    with pytest.raises(RefusedError, match="kubectl-scale wrote it"):
        actor.undo(state.action.id, "ann")
    assert site.replicas() == 1


def test_undo_is_refused_for_another_object_of_the_same_name(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    _gone(site)
    site.deployment()
    with pytest.raises(RefusedError, match="another has its name"):
        actor.undo(state.action.id, "ann")


def test_two_workloads_of_one_name_are_restored_each_to_its_own(site: Site) -> None:
    site.deployment("web", replicas=3)
    site.make("Namespace", "team-b", namespace="")
    spec = site.get("Deployment", "web")["spec"]
    site.make("Deployment", "web", {**spec, "replicas": 1}, namespace="team-b")
    actor = site.actor()
    state = site.done(actor)
    actor.undo(state.action.id, "ann")
    assert site.replicas() == 3
    assert site.get("Deployment", "web", "team-b")["spec"]["replicas"] == 1


def test_an_action_is_undone_for_so_long_and_no_longer(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    site.pass_time(days=15)
    with pytest.raises(RefusedError, match="older than 14d"):
        actor.undo(state.action.id, "ann")


def test_an_action_waits_for_somebody_else_to_approve_it(site: Site) -> None:
    site.policy = msgspec.structs.replace(POLICY, approvals=Approvals(when="always"))
    site.deployment()
    actor = site.actor(actor="ann")
    site.told_and_waited(actor)
    assert not actor.turn(dry_run=False).steps
    (wanted,) = actor.record.approval_requests.values()
    assert any(f"fallow approve {wanted.decision}" in t for t in site.told.operators())
    with pytest.raises(RefusedError, match="somebody else"):
        approve(actor.record, wanted.decision, "ann")
    with pytest.raises(UsageError, match="no request 'nobody'"):
        approve(actor.record, "nobody", "bob")
    assert approve(actor.record, wanted.decision[:8], "bob") == wanted.decision
    with pytest.raises(RefusedError, match="already"):
        approve(actor.record, wanted.decision, "bob")
    with pytest.raises(RefusedError, match="already"):
        approve(actor.record, wanted.finding[:8], "bob")  # as `fallow plan` lists it
    other = msgspec.structs.replace(wanted, policy="other", decision="other")
    actor.record.approval_requests["other"] = other
    with pytest.raises(UsageError, match="2 actions on finding"):
        approve(actor.record, wanted.finding, "bob")
    del actor.record.approval_requests["other"]
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.action.approved_by == ("bob",)
    assert site.replicas() == 0


def test_who_approved_is_compared_by_the_subject_of_the_sign_in(site: Site) -> None:
    site.policy = msgspec.structs.replace(
        POLICY, approvals=Approvals(when="always", four_eyes=True)
    )
    site.deployment()
    actor = site.actor(actor="ann")
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    (request,) = actor.record.approval_requests.values()
    record, wanted = actor.record, request.decision
    with pytest.raises(RefusedError, match="somebody else"):
        approve(record, wanted, "Ann@example", "i 7")  # who asked had a name of this machine only
    approve(record, wanted, "bob@example", "i 1")
    with pytest.raises(RefusedError, match="already"):
        approve(record, wanted, "robert@example", "i 1")
    with pytest.raises(RefusedError, match="already"):
        approve(record, wanted, "bob")  # at the command line, without a subject
    approve(record, wanted, "bob@example", "i 2")
    (case,) = {(request.policy, request.finding)}
    assert [a.subject for a in record.approvals(*case)] == ["i 1", "i 2"]
    rows = site.journal().entries(event_types.APPROVED)
    assert [row.document["oidc_subject"] for row in rows] == ["i 1", "i 2"]


class Keeper:
    """Takes snapshots of a site's home folders, verified or not, and notes what it restores."""

    def __init__(self, site: Site, *, verified: bool) -> None:
        self.site, self.verified = site, verified
        self.restored: list[str] = []
        self.away = False
        self.failure = ""

    def take(self, intent: Intent, what: Sequence[str]) -> Snapshot:
        assert intent.frees
        assert what == ("home",)
        assert self.site.replicas() == 2
        missing = () if self.verified else ("home: too large",)
        part = SnapshotPart("home", "a/b.tar.gz", self.verified)
        return Snapshot("snap-1", intent.target, self.site.now, (part,), missing)

    def restore(self, snapshot: Snapshot, target: Target) -> list[RestoredPart]:
        if self.away:
            raise TemporaryError("the store does not answer")
        if self.failure:
            return [RestoredPart(snapshot.parts[0], "failed", self.failure)]
        self.restored.append(f"{snapshot.id} to {target.name}")
        return [RestoredPart(snapshot.parts[0], "restored")]


def require_snapshot(site: Site) -> None:
    """Let the site's policy stop only what has a verified snapshot."""
    stages = (
        *POLICY.stages[:2],
        Stage("snapshot", parts=("home",), required=True),
        POLICY.stages[2],
    )
    site.policy = msgspec.structs.replace(POLICY, stages=stages)


def test_no_stop_without_a_verified_snapshot_where_the_policy_asks_for_one(site: Site) -> None:
    require_snapshot(site)
    site.deployment()

    keeper = Keeper(site, verified=False)
    actor = site.actor(snapshotter=keeper)
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert (taken.result, taken.reasons[0].text) == (
        "refused",
        "no verified snapshot: home: too large",
    )
    keeper.verified = True
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "acted"
    (result,) = actor.record.actions.values()
    assert result.action.snapshot == "snap-1"
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    actor.undo(result.action.id, "ann")
    actor.turn(dry_run=False)
    assert not keeper.restored  # its pods do not run yet
    site.pass_time(minutes=5)
    for _ in range(2):
        actor.turn(dry_run=False)
    assert keeper.restored == ["snap-1 to web"]


def undo_stop(site: Site, keeper: Keeper) -> Actor:
    """Stop the site's Deployment with a snapshot, undo it, and return the actor."""
    require_snapshot(site)
    site.deployment()
    actor = site.actor(snapshotter=keeper)
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    (done,) = actor.record.actions.values()
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    actor.undo(done.action.id, "ann")
    return actor


def restore_failures(site: Site) -> list[Any]:
    rows = site.journal().entries(event_types.SNAPSHOT_RESTORED)
    return [row.document["failed"] for row in rows]


def test_a_snapshot_whose_pods_do_not_run_within_an_hour_stays_where_it_is(site: Site) -> None:
    keeper = Keeper(site, verified=True)
    actor = undo_stop(site, keeper)
    # Only the clock goes on: the cluster starts no pod meanwhile.
    site.now += timedelta(minutes=60)
    actor.turn(dry_run=False)
    assert restore_failures(site) == []
    site.now += timedelta(seconds=1)
    actor.turn(dry_run=False)
    assert restore_failures(site) == [["none of its pods runs: the snapshot stays where it is"]]
    site.pass_time(minutes=5)
    actor.turn(dry_run=False)
    assert (len(restore_failures(site)), keeper.restored) == (1, [])


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


def test_a_store_that_does_not_answer_is_asked_again_for_an_hour(site: Site) -> None:
    keeper = Keeper(site, verified=True)
    actor = undo_stop(site, keeper)
    undone = site.now
    keeper.away = True
    site.pass_time(minutes=5)
    actor.turn(dry_run=False)
    assert restore_failures(site) == []
    site.now = undone + timedelta(minutes=60)
    actor.turn(dry_run=False)
    assert restore_failures(site) == []
    site.now += timedelta(seconds=1)
    actor.turn(dry_run=False)
    assert restore_failures(site) == [["the store does not answer"]]


def test_a_part_that_cannot_be_restored_is_named_with_its_reason(site: Site) -> None:
    keeper = Keeper(site, verified=True)
    actor = undo_stop(site, keeper)
    keeper.failure = "the checksum differs"
    site.pass_time(minutes=5)
    notes = " ".join(actor.turn(dry_run=False).notes)
    assert "a/b.tar.gz: the checksum differs" in notes
    assert restore_failures(site) == [["a/b.tar.gz: the checksum differs"]]
