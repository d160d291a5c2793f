"""An undo while its object is on its way out: nothing is lost, and nothing untrue is said."""

import pytest

from fallow.errors import RefusedError
from tests.actions.loop.site import SPACE, Site


def test_an_undo_while_the_evicted_pod_terminates_waits_and_loses_nothing(site: Site) -> None:
    """A bare pod stops within its grace; the owner reads the notice sooner."""
    old = site.bare_pod()["metadata"]["uid"]
    actor = site.actor()
    state = site.acted(actor)
    assert site.get("Pod", "alone")["metadata"]["deletionTimestamp"]
    with pytest.raises(RefusedError, match="pods are not gone: team-a/alone") as refusal:
        actor.undo(state.action.id, "ann")
    assert refusal.value.hint == f"once that is over: fallow undo {state.action.id}"
    assert state.restored is None, "nobody reversed it"
    site.pass_time(minutes=3)
    assert actor.undo(state.action.id, "ann").result == "undone"
    assert site.get("Pod", "alone")["metadata"]["uid"] != old


def test_an_undo_begins_only_once_and_the_new_pod_is_no_old_one(site: Site) -> None:
    site.bare_pod()
    actor = site.actor()
    state = site.done(actor)
    actor.undo(state.action.id, "ann")
    with pytest.raises(RefusedError, match="was undone already"):
        actor.undo(state.action.id, "ann")


def test_a_restored_pod_keeps_its_owners_and_finalizers(site: Site) -> None:
    """An owner that is no controller has its pods collected too: orphans would run for ever."""
    session = site.make("ConfigMap", "session")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "session"}
    ties = {
        "ownerReferences": [{**owner, "uid": session["metadata"]["uid"]}],
        "finalizers": ["example.com/audit"],
    }
    site.bare_pod()
    site.store.patch("Pod", "alone", SPACE, {"metadata": ties}, manager="kubectl-edit")
    actor = site.actor()
    state = site.acted(actor)
    site.store.patch("Pod", "alone", SPACE, {"metadata": {"finalizers": None}}, manager="audit")
    site.pass_time(minutes=3)
    assert actor.undo(state.action.id, "ann").result == "undone"
    assert {key: site.get("Pod", "alone")["metadata"][key] for key in ties} == ties


def test_an_undo_of_an_object_that_is_being_deleted_is_refused(site: Site) -> None:
    """Its controller follows no write any more: "undone" would be untrue."""
    site.deployment()
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    site.patch("Deployment", "web", held)
    actor = site.actor()
    state = site.done(actor)
    site.store.delete("Deployment", "web", SPACE)
    with pytest.raises(RefusedError, match="Deployment web is being deleted"):
        actor.undo(state.action.id, "ann")
    assert site.replicas() == 0


def test_an_eviction_that_is_done_has_no_annotation_to_miss(site: Site) -> None:
    site.bare_pod()
    state = site.done(site.actor())
    assert state.outcome is not None
    assert state.outcome.reasons == ()
