"""What refuses a drain in the middle, or an undo: one clear line, nothing doubled, an outcome."""

from typing import Any

import pytest

from fallow.errors import RefusedError
from simulator.kube.faults import BrokenWrite
from tests.actions.loop import draining
from tests.actions.loop.draining import SICK
from tests.actions.loop.site import Site, bare
from tests.actions.loop.test_crashes import nothing_twice

DENIED = 'admission webhook "pods.example.com" denied the request: evictions are frozen'


def test_an_eviction_that_admission_denies_lets_pods_onto_the_node_again(site: Site) -> None:
    before = draining.loaded(site)
    actor = draining.actor(site)
    site.told_and_waited(actor)
    denial = BrokenWrite("refused", 403, "Forbidden", DENIED, path="/eviction")
    site.server.faults.writes = [denial]
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "failed"
    (reason,) = result.outcome.reasons
    assert reason.text.startswith("pod team-a/web-")
    assert DENIED in reason.text
    site.settle()
    assert bare(site.get("Node", SICK, "")) == before
    assert len(draining.on(site, SICK)) == 2
    nothing_twice(site)


@pytest.mark.parametrize(
    ("verb", "resource"), [("patch", "nodes"), ("create", "pods/eviction"), ("list", "pods")]
)
def test_a_verb_that_the_role_lacks_is_named_before_anything_is_written(
    site: Site, verb: str, resource: str
) -> None:
    before = draining.loaded(site)
    actor = draining.actor(site)
    site.told_and_waited(actor)
    site.server.access.deny(verb, resource)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "refused"
    (reason,) = taken.reasons
    assert f"cannot {verb} resource" in reason.text
    assert "\n" not in reason.text
    assert bare(site.get("Node", SICK, "")) == before
    assert actor.record.actions == {}


@pytest.mark.parametrize("kind", ["Deployment", "Node"])
def test_an_undo_whose_verb_was_taken_away_says_so_and_works_once_it_is_back(
    site: Site, kind: str
) -> None:
    if kind == "Node":
        before, actor = draining.loaded(site), draining.actor(site)
        denied = ("patch", "nodes")
    else:
        before, actor = bare(site.deployment()), site.actor()
        denied = ("patch", "deployments/scale")
    state = site.done(actor)
    site.server.access.deny(*denied)
    with pytest.raises(RefusedError) as error:
        actor.undo(state.action.id, "ann")
    assert f'cannot patch resource "{denied[1]}"' in str(error.value)
    assert not state.is_open
    site.server.access.denials.clear()
    actor.undo(state.action.id, "ann")
    site.settle()
    after: Any = site.get(kind, SICK, "") if kind == "Node" else site.get(kind, "web")
    assert bare(after) == before
    nothing_twice(site)


def test_an_undo_that_admission_denies_says_so_and_the_action_stands(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    site.server.faults.writes = [BrokenWrite("refused", 403, "Forbidden", DENIED, path="/scale")]
    with pytest.raises(RefusedError) as error:
        actor.undo(state.action.id, "ann")
    assert DENIED in str(error.value)
    assert [o.result for o in state.outcomes] == ["done", "done"]
    notes = site.get("Deployment", "web")["metadata"]["annotations"]
    assert notes["fallow.dev/undo"] == f"fallow undo {state.action.id}"
    actor.undo(state.action.id, "ann")
    assert site.replicas() == 2
    nothing_twice(site)


def test_an_operator_who_lets_pods_in_again_during_a_drain_wins(site: Site) -> None:
    draining.loaded(site)
    draining.budget(site, minAvailable=1)
    draining.shut(site, draining.OTHER, closed=True)  # so that the drain has to wait
    actor = draining.actor(site)
    state = site.acted(actor)
    assert state.is_open
    draining.shut(site, SICK, closed=False)
    evictions = site.writes("/eviction")
    site.pass_time(minutes=2)
    actor.turn(dry_run=False)
    assert site.writes("/eviction") == evictions
    assert state.outcome is not None
    # Who takes a field away owns it no more: nobody is named rather than somebody else.
    assert (state.outcome.result, state.outcome.reverted_by) == ("reverted", "somebody unknown")
    node = site.get("Node", SICK, "")
    assert not draining.is_cordoned(site)
    assert not any(key.startswith("fallow.dev/") for key in node["metadata"].get("annotations", {}))
    nothing_twice(site)


def test_a_pod_that_went_by_itself_meanwhile_counts_as_gone(site: Site) -> None:
    draining.loaded(site)
    first, second = sorted(draining.on(site, SICK))

    def leave(step: str) -> None:
        if step == "journalled sent 0":
            site.store.delete("Pod", first, "team-a", grace_s=0)

    actor = draining.actor(site, pulse=leave)
    state = site.done(actor)
    assert [w.split("/")[-2] for w in site.writes("/eviction")] == [second]
    assert state.outcome is not None
    assert draining.on(site, SICK) == []
    nothing_twice(site)
