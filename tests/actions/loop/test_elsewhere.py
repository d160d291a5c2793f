"""A restart elsewhere in the loop: the job runs again on another node, or nothing is written."""

from typing import Any

import pytest

from actions.loop.actor import Actor
from actions.recommend import ELSEWHERE
from capacity.queue.exclusions import EXCLUDED
from fallow.errors import RefusedError
from fallow.models import Recommendation
from tests.actions.loop.site import SPACE, Site, pod_spec
from tests.actions.loop.test_restarts import settle


def find_nodes(site: Site) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in site.pods() if pod["spec"].get("nodeName")}


def advise(site: Site, *nodes: str) -> None:
    """Let the incident of the job name these nodes."""
    advice = Recommendation(
        verb=ELSEWHERE,
        target=f"Job/{SPACE}/train",
        why="stalled",
        reversible=True,
        parameters={EXCLUDED: list(nodes)},
    )
    site.evidence.changes = {"recommendation": advice}


@pytest.fixture
def running(site: Site) -> Site:
    """Return a cluster of two nodes with a job of one pod."""
    template: Any = {"spec": {"restartPolicy": "Never", **pod_spec()}}
    site.make("Job", "train", {"template": template, "parallelism": 1, "completions": 1})
    site.evidence.idle.append(("Job", "train"))
    site.pass_time(minutes=3)
    return site


def act(site: Site) -> Actor:
    actor = site.actor()
    site.acted(actor)
    settle(site, actor)
    return actor


def test_the_job_runs_again_on_the_other_node_and_cannot_be_undone(running: Site) -> None:
    (node,) = find_nodes(running)
    advise(running, node)
    actor = act(running)
    (state,) = actor.record.actions.values()
    assert state.outcome is not None
    assert state.outcome.result == "done", state.outcome
    (after,) = find_nodes(running)
    assert after != node
    with pytest.raises(RefusedError, match="cannot be undone"):
        actor.undo(state.action.id, "ann")


def test_the_near_twin_with_no_node_in_its_incident_is_left_alone(running: Site) -> None:
    before = find_nodes(running)
    advise(running)
    actor = running.actor()
    running.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "refused"
    assert "no incident names a node" in step.reasons[0].text
    assert (find_nodes(running), actor.record.actions) == (before, {})


def test_a_dry_run_of_it_sends_nothing(running: Site) -> None:
    (node,) = find_nodes(running)
    advise(running, node)
    actor = running.actor()
    running.told_and_waited(actor)
    assert [s.result for s in actor.turn(dry_run=True).steps] == ["would act"]
    assert find_nodes(running) == {node}
    assert "affinity" not in running.get("Job", "train")["spec"]["template"]["spec"]


def test_while_its_pods_end_the_undo_starts_it_without_an_exclusion(running: Site) -> None:
    (node,) = find_nodes(running)
    advise(running, node)
    actor = running.actor()
    action = running.acted(actor)
    assert actor.undo(action.action.id, "ann").result == "undone"
    spec = running.get("Job", "train")["spec"]
    assert spec["suspend"] is False
    assert "affinity" not in spec["template"]["spec"]
