"""What the API and the network do to writes: nothing acted twice, every action has an outcome."""

import logging
from typing import Any

import msgspec
import pytest

from actions.journal import event_types
from actions.loop.context import MAX_DELAY
from actions.loop.sender import MAX_ATTEMPTS
from actions.reclaim.evicting import EvictExecutor
from fallow.action_models import Decision, Intent
from fallow.errors import RefusedError, TemporaryError
from fallow.protocols import ClusterReader
from simulator.kube.faults import BrokenWrite
from tests.actions.loop.site import Site, bare

REFUSALS = [
    (409, "Conflict", "the object has been modified", "conflict"),
    (410, "Gone", "it is gone", "gone"),
    (422, "Invalid", "spec.replicas: Invalid value", "invalid"),
    (429, "TooManyRequests", "slow down", "throttled"),
    (403, "Forbidden", "admission webhook denied the request", "refused"),
    (401, "Unauthorized", "the token has expired", "refused"),
]
UNKNOWN = [
    BrokenWrite("refused", 500, path="/scale"),
    BrokenWrite("cut before", path="/scale"),
    BrokenWrite("cut after", path="/scale"),
    BrokenWrite("silent", path="/scale"),
]


def scale_writes(site: Site) -> list[str]:
    return site.writes("/scale")


@pytest.mark.parametrize(("code", "reason", "message", "gate"), REFUSALS)
def test_a_refused_write_changes_nothing_and_is_an_outcome(
    site: Site, code: int, reason: str, message: str, gate: str
) -> None:
    before = bare(site.deployment())
    actor = site.actor()
    site.told_and_waited(actor)
    # One answer of a conflict is confirmed and sent again: this one stays.
    fault = BrokenWrite("refused", code, reason, message, path="/scale")
    site.server.faults.writes = [fault] * (MAX_ATTEMPTS if code == 409 else 1)
    report = actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "refused"
    assert result.outcome.reasons[0].gate == gate
    assert message in result.outcome.reasons[0].text
    assert bare(site.get("Deployment", "web")) == before
    assert [t.result for t in report.steps] == ["refused"]
    assert not actor.record.uses(site.now.replace(year=2020))
    with pytest.raises(RefusedError, match="nothing to undo"):
        actor.undo(result.action.id, "ann")


@pytest.mark.parametrize("fault", UNKNOWN, ids=lambda f: f"{f.how} {f.code}")
def test_a_write_without_an_answer_is_read_back_and_never_sent_blindly(
    site: Site, fault: BrokenWrite
) -> None:
    before = bare(site.deployment())
    actor = site.actor(timeout_s=1.0)
    site.told_and_waited(actor)
    site.server.faults.writes = [fault]
    actor.turn(dry_run=False)
    (first,) = actor.record.actions.values()
    assert first.is_open
    stored = fault.how in ("cut after", "silent")
    actor.turn(dry_run=False)
    assert first.is_open  # too early to say that it did not arrive
    assert len(scale_writes(site)) == 1
    site.pass_time(seconds=MAX_DELAY.total_seconds() + 1)
    actor.turn(dry_run=False)
    site.pass_time(minutes=5)
    actor.turn(dry_run=False)
    assert first.outcome is not None
    assert first.outcome.result == ("done" if stored else "refused")
    assert len(scale_writes(site)) == (1 if stored else 2)
    done = [t for t in actor.record.actions.values() if t.outcome and t.outcome.result == "done"]
    assert len(done) == 1
    actor.undo(done[0].action.id, "ann")
    assert bare(site.get("Deployment", "web")) == before


@pytest.mark.parametrize("code", [409, 422, 403])
def test_an_action_that_stops_in_the_middle_is_taken_back(site: Site, code: int) -> None:
    before = site.subject("CronJob")
    actor = site.actor()
    site.told_and_waited(actor)
    site.server.faults.writes = [BrokenWrite("refused", code, "no", "no", path="/jobs/night-1")]
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "failed"
    assert {key: bare(site.get(*key)) for key in before} == before
    assert any("is failed" in text for text in site.told.operators())


def test_a_roll_back_that_is_cut_off_is_finished_by_the_next_turns(site: Site) -> None:
    before = site.subject("CronJob")
    actor = site.actor()
    site.told_and_waited(actor)
    site.server.faults.writes = [
        BrokenWrite("refused", 422, "no", "no", path="/jobs/night-1"),
        BrokenWrite("cut after", path="/cronjobs/night"),  # the action's own first write
    ]
    site.server.faults.writes = [
        BrokenWrite("refused", 422, "no", "no", path="/jobs/night-1"),
    ]
    cut = BrokenWrite("cut before", path="/cronjobs/night")

    def pulse(step: str) -> None:
        if step == "journalled the roll back":
            site.server.faults.writes = [cut]

    actor = site.actor(pulse=pulse)
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.is_open
    site.evidence.idle = []
    actor = site.actor()
    for _ in range(3):
        site.pass_time(minutes=2)
        actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "failed"
    assert {key: bare(site.get(*key)) for key in before} == before


@pytest.mark.parametrize("how", ["cut before", "cut after", "silent"])
def test_an_undo_without_an_answer_is_finished_once(site: Site, how: Any) -> None:
    before = bare(site.deployment())
    actor = site.actor(timeout_s=1.0)
    state = site.done(actor)
    site.evidence.idle = []
    site.server.faults.writes = [BrokenWrite(how, path="/scale")]
    with pytest.raises(TemporaryError, match="no answer"):
        actor.undo(state.action.id, "ann")
    if how == "cut before":
        with pytest.raises(TemporaryError, match="under way"):
            actor.undo(state.action.id, "ann")
        for _ in range(2):
            site.pass_time(minutes=2)
            actor.turn(dry_run=False)
    else:  # the same command again finds that it took
        actor.undo(state.action.id, "ann")
    assert state.outcome is not None
    assert state.outcome.result == "undone"
    assert bare(site.get("Deployment", "web")) == before
    withdrawn = [e.document for e in site.journal().entries(event_types.WITHDRAWN)]
    assert withdrawn == ([{"change": 0, "undo": True}] if how == "cut before" else [])
    assert state.has_written, "a write of the undo was withdrawn, and none of the action"
    with pytest.raises(RefusedError, match="undone already"):
        actor.undo(state.action.id, "ann")


def test_a_throttled_undo_is_withdrawn_and_sent_again(site: Site) -> None:
    """A write that the server refused for now was not made: it is not looked for, but sent anew."""
    before = bare(site.deployment())
    actor = site.actor()
    state = site.done(actor)
    site.evidence.idle = []
    site.server.faults.writes = [
        BrokenWrite("refused", 429, "TooManyRequests", "slow down", path="/scale")
    ]
    with pytest.raises(TemporaryError):
        actor.undo(state.action.id, "ann")
    withdrawn = site.journal().entries(event_types.WITHDRAWN)
    assert [(e.document["change"], e.document["undo"]) for e in withdrawn] == [(0, True)]
    assert state.undo_progress.open == {}
    sent = len(site.writes("/scale"))
    # At once, and not only after the time that a write without an answer is waited for.
    actor.undo(state.action.id, "ann")
    assert len(site.writes("/scale")) == sent + 1
    assert state.outcome is not None
    assert state.outcome.result == "undone"
    assert bare(site.get("Deployment", "web")) == before


@pytest.mark.parametrize("how", ["cut before", "silent"])
def test_an_undo_without_an_answer_is_not_withdrawn_at_once(site: Site, how: Any) -> None:
    site.deployment()
    actor = site.actor(timeout_s=1.0)
    state = site.done(actor)
    site.evidence.idle = []
    site.server.faults.writes = [BrokenWrite(how, path="/scale")]
    with pytest.raises(TemporaryError, match="no answer"):
        actor.undo(state.action.id, "ann")
    assert site.journal().entries(event_types.WITHDRAWN) == []
    assert list(state.undo_progress.open) == [0]


def test_a_pod_behind_a_disruption_budget_is_not_evicted(site: Site) -> None:
    site.bare_pod()
    selector = {"matchLabels": {"app": "alone"}}
    site.make("PodDisruptionBudget", "all", {"minAvailable": 1, "selector": selector})
    site.settle()
    actor = site.actor()
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "held"
    assert "pod team-a/alone" in taken.reasons[0].text
    assert "disruption budget all needs 1 healthy pods and has 1" in taken.reasons[0].text
    assert not site.writes("/eviction")
    site.store.remove("PodDisruptionBudget", "all", "team-a")
    site.settle()
    actor.turn(dry_run=False)
    assert len(site.writes("/eviction")) == 1
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "done"
    undone = actor.undo(result.action.id, "ann")
    assert site.get("Pod", "alone")["spec"]["containers"][0]["image"] == "work:1"
    texts = [reason.text for reason in undone.reasons]
    assert texts == ["Pod team-a/alone is a new object, without annotations of ours"]


def test_an_eviction_that_is_throttled_between_dry_run_and_write_waits(site: Site) -> None:
    site.bare_pod()
    actor = site.actor()
    site.told_and_waited(actor)
    budget = BrokenWrite("refused", 429, "TooManyRequests", "wait", path="/eviction")
    site.server.faults.writes = [budget]
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "refused"
    assert taken.reasons[0].gate == "throttled"
    assert site.pods()


def test_of_several_evictions_only_the_throttled_one_is_sent_again(site: Site) -> None:
    for name in ("one", "two"):
        site.bare_pod(name)
    site.evidence.idle = [("Pod", "one")]
    site.evidence.changes = {"gpus": 2.0}

    class Both:
        """Evicts both pods for the sake of the first."""

        def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
            other = msgspec.structs.replace(
                decision, subject=(*decision.subject[:3], "two"), uid=None
            )
            made = [EvictExecutor().writes(d, cluster) for d in (decision, other)]
            return msgspec.structs.replace(
                made[0],
                changes=made[0].changes + made[1].changes,
                undo=made[0].undo + made[1].undo,
                frees=made[0].frees + made[1].frees,
            )

    actor = site.actor(choose=lambda _decision: Both())
    site.told_and_waited(actor)
    wait = BrokenWrite("refused", 429, "TooManyRequests", "wait", path="/pods/two/eviction")
    site.server.faults.writes = [wait]
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.is_open
    actor = site.actor(choose=lambda _decision: Both())
    site.pass_time(seconds=20)
    actor.turn(dry_run=False)
    assert len(site.writes("/pods/one/eviction")) == 1
    assert len(site.writes("/pods/two/eviction")) == 2
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert (result.outcome.result, result.outcome.freed_gpus) == ("done", 2.0)


def test_an_unreachable_cluster_is_temporary_and_nothing_is_journalled(site: Site) -> None:
    site.deployment()
    actor = site.actor(timeout_s=0.5)
    site.server.close()
    with pytest.raises(TemporaryError):
        actor.turn(dry_run=False)
    assert not site.kinds()


class Failing:
    """An executor with a fault of its own."""

    def writes(self, _decision: object, _cluster: object) -> None:
        raise ZeroDivisionError("division by zero")


def test_a_fault_in_an_executor_is_a_refusal_that_names_it_and_writes_nothing(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fallow"), "propagate", True)
    site.deployment()
    site.told_and_waited(site.actor())
    writes = len(site.writes())
    (taken,) = site.actor(choose=lambda _decision: Failing()).turn(dry_run=False).steps
    assert taken.result == "refused"
    assert "ZeroDivisionError: division by zero" in taken.reasons[0].text
    assert (len(site.writes()), site.replicas()) == (writes, 2)
    assert taken.run is not None
    assert (taken.run.kind, taken.run.plugin, taken.run.result) == ("executor", "Failing", "failed")
    assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [ZeroDivisionError]
