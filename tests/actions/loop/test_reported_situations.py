"""Situations that others reported of servers and operators; each answer was worked out by hand.

kubernetes-sigs/kueue#8387   a Workload is made inactive and its job's pods run on
kedacore/keda#4989           an operator too old for the annotation that pauses it
kubernetes/kubernetes#72320  pods that crash in a loop hold their disruption budget
Azure/AKS#2197               an admission webhook that refuses every dry run
ray-project/kuberay#4841     an operator whose definition lacks the switch
"""

from typing import Any

import pytest

from actions.journal import ActionState
from actions.loop.actor import Actor
from simulator.cluster.controllers import autoscalers
from simulator.kube.status import StatusError
from tests.actions.loop import draining
from tests.actions.loop.draining import SICK
from tests.actions.loop.site import GROUPS, SPACE, VERBS, Object, Site, bare, pod_spec
from tests.servers.definitions import build_definitions


def manage(site: Site, job: Object) -> None:
    """Give a Job the Workload of a Kueue whose answer to it nobody carries out."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    site.make("Workload", "turn", {"active": True, "queueName": "gpus"})
    body = {"metadata": {"ownerReferences": [owner]}}
    site.patch("Workload", "turn", body, manager="kueue")


def follow(site: Site, actor: Actor) -> None:
    """Let a quarter of an hour pass, turn by turn."""
    for _ in range(5):
        site.pass_time(minutes=3)
        actor.turn(dry_run=False)


def left_and_named(site: Site, actor: Actor, state: ActionState, name: str) -> None:
    """See that nothing counts as freed, and that operators hear which pods are still there."""
    assert state.outcome is not None
    assert state.outcome.result == "not sticking", state.outcome
    assert not state.outcome.freed_gpus
    assert f"still there: team-a/{name}-" in state.outcome.reasons[0].text
    assert any("not sticking" in text for text in site.told.operators())
    assert not actor.turn(dry_run=False).steps


def test_an_inactive_workload_with_running_pods_frees_nothing_and_is_named(
    site: Site,
) -> None:
    """kueue#8387: it is Evicted by its status, while the pod holds its GPU until the end.

    One pod of one GPU stays: 1 - 1 = 0 GPUs are free.
    """
    manage(site, site.job())
    actor = site.actor()
    state = site.acted(actor)
    assert site.get("Workload", "turn")["spec"]["active"] is False
    follow(site, actor)
    left_and_named(site, actor, state, "train")
    assert len(site.pods()) == 1
    assert len(site.writes("/workloads/")) == 1, "no second try"
    actor.undo(state.action.id, "ann")
    assert site.get("Workload", "turn")["spec"]["active"] is True


def test_a_pause_that_an_old_keda_does_not_know_frees_nothing_and_is_undone_exactly(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keda#4989: KEDA 2.6 does not read `paused-replicas` (2.7 does), and both replicas stay."""
    monkeypatch.setattr(autoscalers, "PAUSED_AT", "unknown.example.com/then")
    site.deployment()
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicaCount": 2, "triggers": []}
    before = bare(site.make("ScaledObject", "web", spec))
    actor = site.actor()
    state = site.acted(actor)
    follow(site, actor)
    left_and_named(site, actor, state, "web")
    assert site.replicas() == len(site.pods()) == 2
    actor.undo(state.action.id, "ann")
    assert bare(site.get("ScaledObject", "web")) == before


def test_a_node_with_crashing_pods_under_a_budget_is_left_alone_and_the_budget_named(
    site: Site,
) -> None:
    """kubernetes#72320: 2 pods of which 1 has to be healthy and 0 are: every eviction is a 429."""
    before = draining.loaded(site)
    draining.budget(site, minAvailable=1)
    for pod in site.pods():
        conditions = [{**c, "status": "False"} if c["type"] == "Ready" else c
                      for c in pod["status"]["conditions"]]  # fmt: skip
        body = {"status": {"conditions": conditions}}
        site.store.patch(
            "Pod", pod["metadata"]["name"], SPACE, body, subresource="status", manager="kubelet"
        )
    status = {"status": {"currentHealthy": 0, "disruptionsAllowed": 0}}
    site.store.patch("PodDisruptionBudget", "web", SPACE, status, subresource="status")
    actor = draining.actor(site)
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "held"
    assert "disruption budget web needs 1 healthy pods and has 0 currently" in step.reasons[0].text
    assert bare(site.get("Node", SICK, "")) == before
    assert len(draining.on(site, SICK)) == 2


def test_a_webhook_that_refuses_every_dry_run_holds_the_act_and_is_named(site: Site) -> None:
    """AKS#2197: the server refuses dry runs for a webhook with side effects: 0 writes."""

    def refuse(_new: Object, _old: Object | None, _listed: Any) -> None:
        message = 'admission webhook "gate.azmk8s.io" does not support dry run'
        raise StatusError(400, "BadRequest", message)

    site.deployment()
    site.store.webhooks = {"Deployment": refuse}
    actor = site.actor()
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "refused", step
    assert 'webhook "gate.azmk8s.io" does not support dry run' in step.reasons[0].text
    follow(site, actor)
    assert site.writes() == []
    assert site.replicas() == 2


def test_a_kind_without_the_switch_in_its_definition_is_refused_and_nothing_is_dropped(
    site: Site,
) -> None:
    """kuberay#4841: a RayService without `suspend`: the field is dropped, or refused strictly."""
    (definition,) = (d for d in build_definitions() if d["spec"]["names"]["kind"] == "RayService")
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["suspend"]
    site.store.create("CustomResourceDefinition", definition)
    template = {"metadata": {"labels": {"app": "ray"}}, "spec": pod_spec()}
    config = {"headGroupSpec": {"template": template}}
    site.make("RayService", "serve", {"rayClusterConfig": config})
    site.evidence.idle.append(("RayService", "serve"))
    before = bare(site.get("RayService", "serve"))
    actor = site.actor()
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "refused", step
    assert 'unknown field "spec.suspend"' in step.reasons[0].text
    assert bare(site.get("RayService", "serve")) == before


@pytest.fixture(autouse=True)
def ray_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the site name a RayService."""
    monkeypatch.setitem(VERBS, "RayService", "suspend")
    monkeypatch.setitem(GROUPS, "RayService", "ray.io")
