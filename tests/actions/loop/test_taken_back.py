"""What owners, controllers and people take back, and what an undo refuses."""

from datetime import datetime, timedelta

import msgspec
import pytest

from actions.journal import event_types
from actions.policy.model import ReversalLimit
from fallow.action_models import Facts
from fallow.errors import RefusedError
from tests.actions.loop.site import POLICY, SPACE, Site, delete_deployment


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
    delete_deployment(site)
    site.evidence.idle = []
    site.pass_time(hours=1)
    actor.turn(dry_run=False)
    assert state.ended
    with pytest.raises(RefusedError, match="is gone"):
        actor.undo(state.action.id, "ann")


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
    delete_deployment(site)
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
