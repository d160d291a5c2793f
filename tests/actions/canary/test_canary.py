"""The canary stops and restores a Deployment of its own as any action does; it reports failures."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from actions.canary import Canary, CanaryResult
from actions.journal import event_types
from actions.loop.actor import Actor
from actions.loop.protocols import TurnReport
from fallow.action_models import Reason
from fallow.errors import TemporaryError
from fallow.settings.actions import CanarySettings
from tests.actions.loop.site import SETTINGS, SPACE, Object, Site, bare
from tests.actions.loop.test_clock_steps import SetClock

NAME = "fallow-canary"
CANARY = CanarySettings(image="pause:3.10")
FROZEN = (Reason("frozen", "somebody froze it"),)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        made.make("Namespace", NAME, namespace="")
        made.deployment()  # somebody's own, which the canary never touches
        made.evidence.idle.clear()
        node = made.store.list("Node", "")[0]["metadata"]["name"]
        made.store.patch("Node", node, "", {"spec": {"taints": None}}, manager="kubectl-taint")
        yield made


class Turns:
    """The turns of an actor with its canary."""

    def __init__(self, site: Site, settings: CanarySettings = CANARY) -> None:
        self.site = site
        self.actor: Actor = site.actor(policies=[])
        self.canary = Canary(self.actor, settings)

    def turn(self) -> CanaryResult | None:
        report = self.actor.turn(dry_run=False)
        result = self.canary.step(report.halted)
        self.site.pass_time(minutes=1)
        return result

    def until_over(self) -> CanaryResult:
        for _ in range(40):
            if (result := self.turn()) is not None:
                return result
        raise AssertionError(self.site.kinds())

    def until_stopped(self) -> None:
        for _ in range(10):
            self.turn()
            if self.actor.record.list_open():
                return
        raise AssertionError(self.site.kinds())


def deployment(site: Site) -> Object:
    return site.get("Deployment", NAME, NAME)


def test_it_is_stopped_restored_and_ready_again_by_the_journal_of_all_actions(site: Site) -> None:
    others = bare(site.get("Deployment", "web"))
    turns = Turns(site)
    result = turns.until_over()
    assert (result.ok, result.why) == (True, "")
    (state,) = turns.actor.record.actions.values()
    assert state.is_canary
    assert [o.result for o in state.outcomes] == ["done", "undone"]
    assert deployment(site)["spec"]["replicas"] == 1
    assert deployment(site)["status"]["readyReplicas"] == 1
    kinds = [k for k in site.kinds() if k != event_types.SEEN]
    assert kinds == [
        "canary", "intent", "sending", "sent", "outcome",
        "undo-started", "undo-sending", "undo-sent", "outcome", "canary",
    ]  # fmt: skip
    # Nothing else is written, it counts in no budget and is nobody's refusal.
    assert bare(site.get("Deployment", "web")) == others
    assert all(NAME in write for write in site.writes()), site.writes()
    assert turns.actor.record.uses(site.now - timedelta(days=1)) == ()
    assert turns.canary.last_success == result.at


def test_it_runs_again_after_its_period_and_not_before(site: Site) -> None:
    turns = Turns(site)
    turns.until_over()
    before = site.writes()
    for _ in range(5):
        assert turns.turn() is None
    assert site.writes() == before
    site.pass_time(hours=6)
    assert turns.until_over().ok
    assert len(turns.actor.record.actions) == 2


def test_a_process_that_ends_in_the_middle_is_continued_by_the_next(site: Site) -> None:
    Turns(site).until_stopped()
    assert deployment(site)["spec"]["replicas"] == 0
    result = Turns(site).until_over()
    assert result.ok
    assert deployment(site)["spec"]["replicas"] == 1
    assert len(site.journal().entries(event_types.INTENT)) == 1


def test_a_freeze_stops_it_before_it_begins_and_not_its_restoring(site: Site) -> None:
    turns = Turns(site)
    turns.actor.freeze.freeze("demo day", "ann")
    for _ in range(10):
        assert turns.turn() is None
    assert site.store.get("Deployment", NAME, NAME) is None
    turns.actor.freeze.thaw("ann")
    turns.until_stopped()
    turns.actor.freeze.freeze("demo day", "ann")
    assert turns.until_over().ok
    assert deployment(site)["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("verb", "resource", "says"),
    [
        ("create", "deployments", "is not made"),
        ("patch", "deployments/scale", "deployments/scale"),
    ],
)
def test_an_api_server_that_refuses_is_a_failure_with_its_words(
    site: Site, verb: str, resource: str, says: str
) -> None:
    turns = Turns(site)
    site.server.access.deny(verb, resource)
    result = turns.until_over()
    assert not result.ok
    assert says in result.why
    assert turns.canary.last_success is None
    (row,) = (e for e in site.journal().entries(event_types.CANARY) if "action" in e.document)
    assert (row.document["result"], row.document["why"]) == ("failed", result.why)


def test_an_undo_that_the_api_refuses_fails_and_the_next_run_restores_first(site: Site) -> None:
    turns = Turns(site)
    turns.until_stopped()
    site.server.access.deny("patch", "deployments/scale")
    result = turns.until_over()
    assert not result.ok
    assert deployment(site)["spec"]["replicas"] == 0
    site.server.access.denials.clear()
    site.pass_time(hours=6)
    assert turns.until_over().ok
    assert deployment(site)["spec"]["replicas"] == 1


def test_a_deployment_that_does_not_become_ready_again_is_a_failure(site: Site) -> None:
    turns = Turns(site)
    turns.until_stopped()
    set_unschedulable(site, value=True)
    result = turns.until_over()
    assert not result.ok
    assert "not Ready again after the undo" in result.why
    assert "no replica is Ready" in result.why
    assert deployment(site)["spec"]["replicas"] == 1


def until_undone_and_not_ready(turns: Turns) -> None:
    turns.until_stopped()
    set_unschedulable(turns.site, value=True)
    (state,) = turns.actor.record.actions.values()
    while state.outcome is None or state.outcome.result != "undone":
        assert turns.turn() is None


def test_the_wait_for_ready_begins_anew_when_the_api_server_was_away(site: Site) -> None:
    turns = Turns(site)
    until_undone_and_not_ready(turns)
    site.server.faults.away = True
    for _ in range(10):  # minutes; a wait takes five at most
        with pytest.raises(TemporaryError):
            turns.turn()
        site.pass_time(minutes=1)
    site.server.faults.away = False
    set_unschedulable(site, value=False)
    assert turns.turn() is None
    assert turns.until_over().ok


def test_the_wait_for_ready_begins_anew_in_another_process(site: Site) -> None:
    until_undone_and_not_ready(Turns(site))
    site.pass_time(minutes=10)
    set_unschedulable(site, value=False)
    turns = Turns(site)
    assert turns.turn() is None
    assert turns.until_over().ok


def test_an_api_server_that_does_not_answer_the_canary_fails_a_run(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(site)
    until_undone_and_not_ready(turns)
    monkeypatch.setattr(turns.actor, "turn", lambda **_: TurnReport(site.now, dry_run=False))
    site.server.faults.away = True
    result = turns.until_over()
    assert not result.ok
    assert "no answer" in result.why


def test_a_clock_set_forward_ends_no_wait(site: Site) -> None:
    clock = SetClock(site)
    turns = Turns(site)
    turns.actor = clock.actor()
    turns.canary = Canary(turns.actor, CANARY)
    until_undone_and_not_ready(turns)
    clock.step(timedelta(hours=1))
    assert turns.turn() is None
    set_unschedulable(site, value=False)
    assert turns.until_over().ok


def set_unschedulable(site: Site, *, value: bool) -> None:
    for node in site.store.list("Node", ""):
        patch = {"spec": {"unschedulable": value or None}}
        site.store.patch("Node", node["metadata"]["name"], "", patch, manager="kubectl-cordon")


def test_a_deployment_of_somebody_else_is_never_touched(site: Site) -> None:
    turns = Turns(site, CanarySettings(image="pause:3.10", namespace=SPACE, name="web"))
    before = bare(site.get("Deployment", "web"))
    result = turns.until_over()
    assert not result.ok
    assert "is not the canary: it lacks the label fallow.dev/canary=web" in result.why
    assert bare(site.get("Deployment", "web")) == before
    assert site.writes() == []


def test_what_a_person_keeps_is_not_stopped(site: Site) -> None:
    turns = Turns(site)
    turns.turn()
    until = (site.now + timedelta(hours=24)).isoformat()
    site.journal().append(event_types.KEEP, f"c/Deployment/{NAME}/{NAME}", {"until": until})
    result = turns.until_over()
    assert (result.ok, "kept" in result.why) == (False, True)
    assert turns.actor.record.actions == {}


def test_it_is_off_without_an_image() -> None:
    assert (SETTINGS.canary.image, CanarySettings().image) == ("", "")
