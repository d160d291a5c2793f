"""Every executor stops its kind by data alone, and the undo puts the object back as it was."""

from typing import Any

import pytest

from actions.executors import choose_executor
from actions.reclaim.kinds import read_kinds
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Place, bare, says
from tests.actions.reclaim.examples import EXAMPLES, Example, decided

PATCHED = [e for e in EXAMPLES if e.kind not in {"VolcanoJob", "Pod"}]


def name_of(example: Example) -> str:
    return f"{example.kind}-{EXAMPLES.index(example)}".lower()


def intended(place: Place, example: Example, name: str = "x") -> tuple[Any, Intent]:
    made = place.make(example.stored, example.body(name), status=example.status)
    decision = decided(example.kind, place.name, name, example.verb, uid=made["metadata"]["uid"])
    return made, choose_executor(decision).writes(decision, place.door)


def test_every_kind_has_an_example() -> None:
    assert {e.kind for e in EXAMPLES} | {"JupyterServer"} == set(read_kinds())


@pytest.mark.parametrize("example", PATCHED, ids=name_of)
def test_a_dry_run_stores_nothing(place: Place, example: Example) -> None:
    before, intent = intended(place, example)
    place.send(*intent.changes, dry_run=True)
    assert place.get(example.stored, "x") == before


@pytest.mark.parametrize("example", PATCHED, ids=name_of)
def test_the_undo_restores_the_object_exactly(place: Place, example: Example) -> None:
    before, intent = intended(place, example)
    (change,), (undo,) = intent.changes, intent.undo
    assert says(place.door, change, change.was)
    place.send(change)
    assert bare(place.get(example.stored, "x")) != bare(before)
    assert place.holds(change)
    assert (undo.was, undo.becomes) == (change.becomes, change.was)
    place.send(undo)
    assert place.holds(undo)
    assert bare(place.get(example.stored, "x")) == bare(before)


@pytest.mark.parametrize("example", PATCHED, ids=name_of)
def test_what_is_stopped_is_not_stopped_again(place: Place, example: Example) -> None:
    _, intent = intended(place, example)
    place.send(*intent.changes)
    decision = decided(example.kind, place.name, "x", example.verb)
    with pytest.raises(RefusedError, match="already"):
        choose_executor(decision).writes(decision, place.door)


@pytest.mark.parametrize("example", PATCHED, ids=name_of)
def test_a_write_for_another_object_of_that_name_is_a_conflict(
    place: Place, example: Example
) -> None:
    made, intent = intended(place, example)
    # Without a policy a Job is kept by the finalizer `orphan` until the garbage collector has run.
    gone = f"{place.path(example.stored, 'x')}?propagationPolicy=Background"
    assert place.kube.ask("DELETE", gone).code == 200
    again = place.make(example.stored, example.body("x"))
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    answer = place.door.send(intent.changes[0], dry_run=False)
    assert answer.verdict == "conflict"
    assert bare(place.get(example.stored, "x")) == bare(again)


@pytest.mark.parametrize("example", PATCHED, ids=name_of)
def test_a_write_for_an_older_version_is_a_conflict(place: Place, example: Example) -> None:
    _, intent = intended(place, example)
    place.patch(example.stored, "x", {"metadata": {"labels": {"somebody": "else"}}})
    answer = place.door.send(intent.changes[0], dry_run=False)
    assert (answer.verdict, answer.cause) == ("conflict", "version")


@pytest.mark.parametrize("example", PATCHED, ids=name_of)
def test_an_undo_does_not_hold_once_somebody_else_changed_the_switch(
    place: Place, example: Example
) -> None:
    before, intent = intended(place, example)
    (undo,) = intent.undo
    place.send(*intent.changes)
    place.send(undo)  # its owner takes it back, by hand or not
    assert not says(place.door, undo, undo.was)
    assert bare(place.get(example.stored, "x")) == bare(before)


def test_a_volcano_job_is_aborted_and_resumed_by_commands(place: Place) -> None:
    example = next(e for e in EXAMPLES if e.kind == "VolcanoJob")
    made, intent = intended(place, example)
    place.send(*intent.changes, dry_run=True)
    assert place.door.items(place.path("Command")) == []
    place.send(*intent.changes)
    (command,) = place.door.items(place.path("Command"))
    assert command["action"] == "AbortJob"
    assert command["target"]["uid"] == made["metadata"]["uid"]
    again = place.door.send(intent.changes[0], dry_run=False)
    assert (again.verdict, again.cause) == ("conflict", "exists")
    place.send(*intent.undo)
    actions = [c["action"] for c in place.door.items(place.path("Command"))]
    assert actions == ["AbortJob", "ResumeJob"]


def test_a_bare_pod_is_evicted_and_its_undo_is_one_of_the_same_manifest(place: Place) -> None:
    example = next(e for e in EXAMPLES if e.kind == "Pod")
    made, intent = intended(place, example)
    (evict,) = intent.changes
    assert not evict.guarded, "a failing precondition would use up the budget"
    assert [h.gpus for h in intent.frees] == [0], "it waits for a node and holds nothing"
    place.send(evict, dry_run=True)
    assert place.get("Pod", "x") == made
    place.send(evict)
    assert place.get("Pod", "x") is None
    place.send(*intent.undo)
    again = place.get("Pod", "x")
    assert again is not None
    assert again["spec"] == made["spec"]
    assert again["metadata"]["annotations"] == made["metadata"]["annotations"]
