"""Controllers write between any two of our writes: an undo is exact, and 409 is no dead end.

The API stub's controllers of Deployments and nodes write at the place that the test says
(`simulator/kube/controllers.py`); test_real_controllers holds the same to the real ones.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from actions.journal import event_types
from actions.loop.sender import MAX_ATTEMPTS
from fallow.action_models import Reason
from fallow.errors import RefusedError, TemporaryError
from simulator.kube.controllers import Gap
from tests.actions.loop.site import Site, bare
from tests.actions.loop.test_crashes import nothing_twice

GAPS: list[Gap] = [*range(12), "next write"]
"""Every gap between the requests of an undo, and some beyond."""


@pytest.mark.parametrize("gap", GAPS)
def test_an_undo_is_exact_wherever_the_controller_writes(site: Site, gap: Gap) -> None:
    before = bare(site.deployment())
    site.server.controllers.enable(gap)
    actor = site.actor()
    state = site.done(actor)
    site.server.controllers.enable(gap)  # what its annotation causes may still be to come
    actor.undo(state.action.id, "ann")
    assert bare(site.get("Deployment", "web")) == before
    assert [o.result for o in state.outcomes] == ["done", "undone"]
    nothing_twice(site)


def test_ten_undos_of_ten_at_the_worst_moment(site: Site) -> None:
    """The failing sequence of a real server: annotation, status, restore with the old version."""
    names = [f"web-{n}" for n in range(10)]
    for name in names:
        site.deployment(name, replicas=1)
    before = {name: bare(site.get("Deployment", name)) for name in names}
    actor = site.actor(settings=with_room(site, 10))
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    result = list(actor.record.actions.values())
    assert [t.outcome.result for t in result if t.outcome] == ["done"] * 10
    assert {site.replicas(name) for name in names} == {0}
    undone = [actor.undo(t.action.id, "ann").result for t in result]
    assert undone == ["undone"] * 10
    assert {name: bare(site.get("Deployment", name)) for name in names} == before
    assert site.journal().entries(event_types.WITHDRAWN) == []


@pytest.mark.parametrize("times", [1, MAX_ATTEMPTS - 1])
def test_an_undo_outlasts_a_controller_that_writes_a_few_times(site: Site, times: int) -> None:
    before = bare(site.deployment())
    actor = site.actor()
    state = site.done(actor)
    make_conflicts(site, times)
    actor.undo(state.action.id, "ann")
    assert bare(site.get("Deployment", "web")) == before
    tries = [e.document["change"] for e in site.journal().entries(event_types.UNDO_SENDING)]
    assert tries == [0] * (times + 1)
    nothing_twice(site)


def test_a_conflict_that_remains_says_what_to_do_and_the_same_command_does_it(site: Site) -> None:
    before = bare(site.deployment())
    actor = site.actor()
    state = site.done(actor)
    make_conflicts(site, MAX_ATTEMPTS)
    with pytest.raises(RefusedError) as refused:
        actor.undo(state.action.id, "ann")
    assert f"try again: fallow undo {state.action.id}" in str(refused.value)
    annotations = site.get("Deployment", "web")["metadata"]["annotations"]
    assert annotations["fallow.dev/undo"] == f"fallow undo {state.action.id}"
    assert site.replicas() == 0
    assert not state.is_open
    site.settle()
    actor.undo(state.action.id, "ann")
    assert bare(site.get("Deployment", "web")) == before
    nothing_twice(site)


def test_an_editor_who_comes_between_wins_and_is_named(site: Site) -> None:
    site.deployment()
    state = site.done(site.actor())

    def edit(step: str) -> None:
        if step == "journalled undo-sending 0":
            site.patch("Deployment", "web", {"spec": {"replicas": 5}})

    actor = site.actor(pulse=edit)
    with pytest.raises(RefusedError) as refused:
        actor.undo(state.action.id, "ann")
    assert f"that change stays, and what it was before is in: fallow actions {state.action.id}" in (
        str(refused.value)
    )
    assert site.replicas() == 5
    (kept,) = actor.record.actions.values()
    assert not kept.is_open
    nothing_twice(site)


def test_an_editor_of_other_fields_does_not_stop_an_undo(site: Site) -> None:
    site.deployment()
    state = site.done(site.actor())

    def edit(step: str) -> None:
        if step == "journalled undo-sending 0":
            answer = {"metadata": {"annotations": {"team": "vision"}}}
            site.patch("Deployment", "web", answer, manager="kubectl-annotate")

    actor = site.actor(pulse=edit)
    actor.undo(state.action.id, "ann")
    after = site.get("Deployment", "web")
    assert after["spec"]["replicas"] == 2
    assert after["metadata"]["annotations"]["team"] == "vision"
    assert not any(key.startswith("fallow.dev/") for key in after["metadata"]["annotations"])


@pytest.mark.parametrize("step", ["judged", "journalled sending 0"])
def test_rehearsal_and_first_write_outlast_five_writes_of_a_status(site: Site, step: str) -> None:
    site.deployment()
    pulse = writes_at(step, write_status(site, MAX_ATTEMPTS - 1))

    def judge(*_: object) -> tuple[Reason, ...]:
        pulse("judged")
        return ()

    actor = site.actor(pulse=pulse, guard=judge)
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "acted", taken.reasons
    assert site.replicas() == 0


def test_a_sixth_write_of_a_status_leaves_it_to_the_next_turn(site: Site) -> None:
    site.deployment()
    write = write_status(site, MAX_ATTEMPTS)
    actor = site.actor(pulse=writes_at("journalled sending 0", write))
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "refused"
    assert "the next turn reads it again and decides anew" in taken.reasons[0].text
    assert site.replicas() == 2
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "acted"


OWNER = {"apiVersion": "apps/v1", "kind": "Rollout", "name": "r", "uid": "u"}
EDITS: list[tuple[str, Any]] = [
    ("/metadata/labels/tier", {"metadata": {"labels": {"tier": "hot"}}}),
    ("/metadata/annotations/team", {"metadata": {"annotations": {"team": "vision"}}}),
    ("/metadata/ownerReferences", {"metadata": {"ownerReferences": [OWNER]}}),
    ("/spec/minReadySeconds", {"spec": {"minReadySeconds": 5}}),
]


@pytest.mark.parametrize("step", ["intended", "journalled sending 0"])
@pytest.mark.parametrize(("field", "body"), EDITS, ids=lambda v: v if isinstance(v, str) else "")
def test_an_edit_after_the_decision_read_the_object_refuses_the_act(
    site: Site, step: str, field: str, body: Any
) -> None:
    site.deployment()
    edit = partial(site.patch, "Deployment", "web", body)
    actor = site.actor(pulse=writes_at(step, edit), guard=lambda *_: ())
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "refused"
    text = taken.reasons[0].text
    named = f"Deployment/team-a/web: {field} changed after the decision read it"
    by_spec = "kubectl-edit changed it after the last sample of its devices"
    assert f"{named} (field manager kubectl-edit)" in text or (
        field[:5] == "/spec" and by_spec in text
    )
    assert site.replicas() == 2


def test_a_status_that_a_gate_refuses_is_seen_when_the_object_is_read_again(site: Site) -> None:
    site.deployment()

    def roll_out() -> None:
        where = ("Deployment", "web", "team-a")
        body = {"status": {"observedGeneration": 0, "updatedReplicas": 1}}
        site.store.patch(*where, body, subresource="status", manager="kube-controller-manager")

    actor = site.actor(pulse=writes_at("journalled sending 0", roll_out))
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "refused"
    assert "rollout" in taken.reasons[0].text
    assert site.replicas() == 2


def writes_at(step: str, write: Callable[[], object]) -> Callable[[str], None]:
    """Return a pulse that lets something be written at a step."""

    def pulse(reached: str) -> None:
        if reached == step:
            write()

    return pulse


def write_status(site: Site, times: int) -> Callable[[], None]:
    """Return what writes a Deployment's status now, and before each next write but so many."""
    left = [times]

    def write() -> None:
        if left[0]:
            left[0] -= 1
            body = {"status": {"conditions": [{"type": "Progress", "reason": str(left[0])}]}}
            where = ("Deployment", "web", "team-a")
            site.store.patch(*where, body, subresource="status", manager="kube-controller-manager")

    return write


def with_room(site: Site, many: int) -> object:
    """Return settings that let many actions be under way at a time."""
    return site.settings.model_copy(update={"concurrent": many})


def make_conflicts(site: Site, times: int) -> None:
    """Let the Deployment's controller write before each of its next writes, so many times."""
    site.server.controllers.enable("next write", times=times)
    found = site.get("Deployment", "web")
    # A change that its controller has still to see, made before ours.
    answer = {"metadata": {"annotations": {"team": f"vision-{times}"}}}
    site.store.patch("Deployment", "web", "team-a", answer, manager="kubectl-annotate")
    undone = {"metadata": {"annotations": {"team": None}}}
    site.store.patch("Deployment", "web", "team-a", undone, manager="kubectl-annotate")
    assert bare(site.get("Deployment", "web")) == bare(found)


def test_an_action_whose_write_has_no_answer_yet_is_not_undone(site: Site) -> None:
    site.deployment()
    site.told_and_waited(site.actor())

    def die(step: str) -> None:
        if step == "journalled sending 0":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.actor(pulse=die).turn(dry_run=False)
    actor = site.actor()
    (action,) = actor.record.catch_up().actions
    before = site.get("Deployment", "web")
    with pytest.raises(TemporaryError, match="is under way: what became of it is not known yet"):
        actor.undo(action, "ann")
    assert site.get("Deployment", "web") == before
