"""Undo, cordon and drain on a control plane: the API stub's, and a real one where it is at hand.

The real one has its Deployment, node-lifecycle and disruption controllers, its scheduler and RBAC;
only the kubelets are ours. What fails in most runs there fails on the stub in every run.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from actions.journal import event_types
from actions.loop.lease import ANCHOR_KEY
from actions.loop.protocols import StepResult
from fallow.action_models import Change, Target
from tests.actions.loop import draining
from tests.actions.loop.control_plane import RealSite, prepared
from tests.actions.loop.draining import OTHER, SICK
from tests.actions.loop.site import Site, bare
from tests.actions.loop.test_crashes import nothing_twice
from tests.servers import kube_apiserver as real
from tests.simulator.kube.conftest import STRATEGIC, Kube

TIMES = 8
REQUESTS = 20
"""A status is written in the time of as many requests: 5 times a second where one takes 10 ms."""
pytestmark = pytest.mark.xdist_group("control-plane")


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """Return a real server with controllers, or skip with what is missing."""
    folder = real.controllers()
    if folder is None:
        pytest.skip(real.without_controllers())
    with real.controlled(folder, tmp_path_factory.mktemp("control")) as server:
        yield prepared(server)


@pytest.fixture(params=["stand-in", "kube-controller-manager"])
def any_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Return a site on the stub at its worst moment, and on a real control plane."""
    if request.param == "stand-in":
        with Site(tmp_path) as made:
            yield made
        return
    with RealSite(tmp_path, request.getfixturevalue("control_plane")) as made:
        yield made
        for kind in ("PodDisruptionBudget", "Deployment"):
            for name in {n for k, n in created(made) if k == kind}:
                made.remove(kind, name)
        for node in (SICK, OTHER):
            draining.shut(made, node, closed=False)


def created(site: RealSite) -> list[tuple[str, str]]:
    kinds = ("PodDisruptionBudget", "Deployment")
    return [(kind, o["metadata"]["name"]) for kind in kinds for o in site.listed(kind)]


def again(site: Site, number: object) -> None:
    """Begin with an empty journal: what was undone before is left alone for a day."""
    lease = "/apis/coordination.k8s.io/v1/namespaces/fallow/leases/fallow-actor"
    target = Target("c", "coordination.k8s.io/v1", "Lease", "fallow", "fallow-actor", "")
    body = {"metadata": {"annotations": {ANCHOR_KEY: None}}}
    site.door().send(Change(target, "PATCH", lease, body, guarded=False), dry_run=False)
    site.folder = site.folder.parent / f"{site.folder.name}-{number}"
    site.folder.mkdir()


def test_undos_of_a_deployment_are_exact_every_time(any_site: Site) -> None:
    site = any_site
    before = bare(site.deployment())
    results = []
    for number in range(TIMES):
        again(site, number)
        actor = site.actor()
        state = site.done(actor)
        assert site.replicas() == 0
        results.append(actor.undo(state.action.id, "ann").result)
        assert site.replicas() == 2
        site.pass_time(minutes=3)
        assert bare(site.get("Deployment", "web")) == before
        nothing_twice(site)
    assert results == ["undone"] * TIMES


def test_a_node_is_cordoned_and_drained_and_let_in_pods_again_every_time(any_site: Site) -> None:
    site = any_site
    before = draining.loaded(site)
    results = []
    for number in range(TIMES):
        again(site, number)
        actor = draining.actor(site)
        state = site.done(actor)
        assert draining.is_cordoned(site)
        assert draining.on(site, SICK) == []
        assert len(draining.on(site, OTHER)) == 2
        assert state.action.intent.capability == "drain"
        results.append(actor.undo(state.action.id, "ann").result)
        draining.until(site, lambda: not draining.is_tainted(site, SICK))
        assert bare(site.get("Node", SICK, "")) == before
        nothing_twice(site)
        move_back(site)
    assert results == ["undone"] * TIMES


def test_a_drain_under_a_budget_goes_on_as_pods_come_back_every_time(any_site: Site) -> None:
    site = any_site
    before = draining.loaded(site)
    draining.budget(site, minAvailable=1)
    results = []
    for number in range(TIMES):
        again(site, number)
        actor = draining.actor(site)
        state = site.acted(actor)
        for _ in range(4):
            site.pass_time(minutes=3)
            actor.turn(dry_run=False)
        assert state.outcome is not None
        assert state.outcome.result == "done", state.outcome
        assert draining.on(site, SICK) == []
        results.append(actor.undo(state.action.id, "ann").result)
        draining.until(site, lambda: not draining.is_tainted(site, SICK))
        assert bare(site.get("Node", SICK, "")) == before
        nothing_twice(site)
        move_back(site)
    assert results == ["undone"] * TIMES


def test_a_budget_that_allows_none_holds_the_drain_and_is_named(any_site: Site) -> None:
    site = any_site
    before = draining.loaded(site)
    draining.budget(site, minAvailable=2)
    actor = draining.actor(site)
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "held"
    (reason,) = taken.reasons
    assert "pod team-a/web-" in reason.text
    assert "disruption budget web needs 2 healthy pods and has 2 currently" in reason.text
    assert bare(site.get("Node", SICK, "")) == before
    assert actor.record.actions == {}


def test_a_budget_that_allows_no_more_lets_pods_in_again_at_the_end_of_the_wait(
    any_site: Site,
) -> None:
    site = any_site
    before = draining.loaded(site)
    draining.budget(site, minAvailable=1)
    draining.shut(site, OTHER, closed=True)  # what is evicted finds no other place
    actor = draining.actor(site)
    state = site.acted(actor)
    for _ in range(2):
        site.pass_time(minutes=10)
        actor.turn(dry_run=False)
        assert state.is_open
        assert draining.is_cordoned(site)
    site.pass_time(minutes=15)
    actor.turn(dry_run=False)
    assert state.outcome is not None
    assert state.outcome.result == "failed"
    answer = state.outcome.reasons[0].text
    assert "pod team-a/web-" in answer
    assert "disruption budget web needs 1 healthy pods and has 1 currently" in answer
    draining.until(site, lambda: not draining.is_tainted(site, SICK))
    assert bare(site.get("Node", SICK, "")) == before
    nothing_twice(site)
    rows = site.journal().entries(event_types.BACKED_OFF)
    assert [r.key for r in rows] == [f"c/Node/team-a/{SICK}"]
    length = site.settings.back_off.failed
    until = rows[0].document["until"]
    assert abs(rows[0].at + length - site.now.fromisoformat(until)) < timedelta(minutes=1)


def test_a_status_written_5_times_a_second_holds_no_act(
    control_plane: Kube, tmp_path: Path
) -> None:
    names = [f"busy-{n}" for n in range(20)]
    with RealSite(tmp_path, control_plane) as site:
        for name in names:
            again(site, name)
            site.evidence.idle = []
            site.deployment(name, replicas=1)
            path = f"/apis/apps/v1/namespaces/team-a/deployments/{name}/status"
            every_s = max(0.2, REQUESTS * measure_answer(control_plane, path))
            with written(control_plane, path, every_s) as count:
                actor = site.actor()
                site.told_and_waited(actor)
                results: list[str] = []
                steps: Sequence[StepResult] = ()
                while "acted" not in results:
                    assert len(results) < 3, (results, [step.reasons for step in steps])
                    steps = actor.turn(dry_run=False).steps
                    results += [step.result for step in steps]
                assert count() > 0
            site.remove("Deployment", name)


def measure_answer(kube: Kube, path: str) -> float:
    """Return the median seconds of a request: other processes take the processor's time too."""
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        assert kube.ask("GET", path).code == 200
        seconds.append(time.monotonic() - begin)
    return statistics.median(seconds)


@contextmanager
def written(kube: Kube, path: str, every_s: float) -> Iterator[Callable[[], int]]:
    """Write the status of an object all the time, as its controller would."""
    stopped, count = threading.Event(), [0]

    def write() -> None:
        while not stopped.wait(every_s):
            count[0] += 1
            condition = {"type": "Busy", "status": "True", "reason": f"N{count[0]}"}
            kube.ask("PATCH", path, {"status": {"conditions": [condition]}}, media=STRATEGIC)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield lambda: count[0]
    finally:
        stopped.set()
        thread.join()


def move_back(site: Site) -> None:
    """Bring the pods onto the sick node again, by a restart while no other place is open."""
    draining.shut(site, OTHER, closed=True)
    site.patch("Deployment", "web", {"spec": {"replicas": 0}}, manager="kubectl-scale")
    site.pass_time(minutes=2)
    site.patch("Deployment", "web", {"spec": {"replicas": 2}}, manager="kubectl-scale")
    site.pass_time(minutes=3)
    draining.shut(site, OTHER, closed=False)
    assert len(draining.on(site, SICK)) == 2
