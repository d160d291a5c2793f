"""Who would fight back is known before anything is written, and by name."""

import json
from typing import Any

import pytest

from actions.cluster import autoscalers
from actions.cluster.obstacles import explain_rollout, find_gitops_tool, find_obstacles
from actions.executors import choose_executor
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Object, Place, door
from tests.actions.reclaim.examples import POD, decided, job, replicated

ARGO = {"argocd.argoproj.io/tracking-id": "app:apps/Deployment:a/x"}
FLUX = {"kustomize.toolkit.fluxcd.io/name": "apps"}
OFF = {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}
PAUSED = {"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "0"}}}
SCALE = "scale to zero"


def deployed(place: Place, **meta: Any) -> Object:
    body = {"metadata": {"name": "x", **meta}, "spec": replicated()}
    status = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3}
    return place.make("Deployment", body, status=status)


def scaler(place: Place, name: str = "x", **meta: Any) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5}
    body = {"metadata": {"name": "h", **meta}, "spec": spec}
    return place.make("HorizontalPodAutoscaler", body)


def keda(place: Place, **meta: Any) -> Object:
    body = {"metadata": {"name": "k", **meta}, "spec": {"scaleTargetRef": {"name": "x"}}}
    return place.make("ScaledObject", body)


def gates(obj: Object, place: Place, intent: Intent | None = None) -> set[str]:
    return {r.gate for r in find_obstacles(obj, place.door, intent=intent)}


def intend(place: Place, kind: str = "Deployment", verb: str = SCALE, name: str = "x") -> Intent:
    decision = decided(kind, place.name, name, verb)
    return choose_executor(decision).writes(decision, place.door)


def test_an_object_of_its_owner_alone_has_no_rivals(place: Place) -> None:
    obj = deployed(place)
    assert gates(obj, place) == set()
    assert gates(obj, place, intend(place)) == set()


@pytest.mark.parametrize(
    ("meta", "tool"),
    [
        ({"annotations": ARGO}, "Argo CD"),
        ({"labels": {"argocd.argoproj.io/instance": "app"}}, "Argo CD"),
        ({"labels": FLUX}, "Flux"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "r"}}, "Flux"),
        ({"managedFields": [{"manager": "argocd-controller"}]}, "Argo CD"),
        ({"managedFields": [{"manager": "kubectl"}]}, None),
        ({"labels": FLUX, "annotations": OFF}, None),
        ({"labels": {"app.kubernetes.io/instance": "helm-release"}}, None),
    ],
)
def test_gitops_is_known_by_its_marks_and_managers(meta: dict[str, Any], tool: str | None) -> None:
    assert find_gitops_tool({"metadata": meta}) == tool


def test_gitops_keeps_what_git_says_and_nothing_else(place: Place) -> None:
    applied = json.dumps({"spec": {"replicas": 3}})
    notes = {**ARGO, "kubectl.kubernetes.io/last-applied-configuration": applied}
    obj = deployed(place, annotations=notes)
    assert gates(obj, place) == {"gitops"}
    assert gates(obj, place, intend(place)) == {"gitops"}


@pytest.mark.parametrize("applied", [None, "not json"])
def test_where_git_cannot_be_read_it_may_say_so(place: Place, applied: str | None) -> None:
    answer = {"kubectl.kubernetes.io/last-applied-configuration": applied} if applied else {}
    obj = deployed(place, annotations={**ARGO, **answer})
    assert gates(obj, place, intend(place)) == {"gitops"}


def test_a_field_that_git_does_not_name_is_nobodys(place: Place) -> None:
    applied = json.dumps({"spec": {"template": {}}})
    notes = {**ARGO, "kubectl.kubernetes.io/last-applied-configuration": applied}
    obj = deployed(place, annotations=notes)
    assert gates(obj, place, intend(place)) == set()


def test_a_stop_annotation_is_not_in_git(place: Place) -> None:
    body = {"metadata": {"name": "x", "annotations": ARGO}, "spec": {"template": {"spec": POD}}}
    obj = place.make("Notebook", body)
    assert gates(obj, place) == {"gitops"}
    assert gates(obj, place, intend(place, "Notebook", "stop")) == set()


def test_an_hpa_rests_at_zero_and_so_is_no_rival_then(place: Place) -> None:
    obj = deployed(place)
    before = scaler(place)
    assert gates(obj, place) == {"autoscaler"}
    intent = intend(place)
    assert gates(obj, place, intent) == set()
    place.send(*intent.changes)
    place.send(*intent.undo)
    after = place.get("HorizontalPodAutoscaler", "h")
    assert after == before, "the HPA is left just as it is"


def test_an_hpa_with_a_minimum_of_zero_scales_up_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HPAScaleToZero: a server without that feature gate refuses the object, so it is not made."""
    obj = deployed(place)
    before = scaler(place)
    intent = intend(place)
    zero = {**before, "kind": autoscalers.HPA, "spec": {**before["spec"], "minReplicas": 0}}
    monkeypatch.setattr(autoscalers, "find_autoscalers", lambda *_: [zero])
    assert gates(obj, place, intent) == {"autoscaler"}


def test_an_hpa_of_another_object_is_nobodys_business(place: Place) -> None:
    obj = deployed(place)
    scaler(place, "other")
    assert gates(obj, place) == set()


def test_the_hpa_that_keda_made_is_kedas(place: Place) -> None:
    obj = deployed(place)
    made = keda(place)
    above = {
        "apiVersion": made["apiVersion"],
        "kind": "ScaledObject",
        "name": "k",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    scaler(place, ownerReferences=[above])
    assert gates(obj, place, intend(place)) == set()
    assert [s["kind"] for s in autoscalers.find_autoscalers(obj, place.door)] == ["ScaledObject"]


def test_keda_is_paused_at_none_instead_of_scaling_below_it(place: Place) -> None:
    obj = deployed(place)
    before = keda(place)
    assert gates(obj, place) == {"autoscaler"}
    intent = intend(place)
    (change,) = intent.changes
    assert change.target.kind == "ScaledObject"
    assert change.body == {
        "metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "0"}}
    }
    assert gates(obj, place, intent) == set()
    place.send(change)
    after = place.get("ScaledObject", "k") or {}
    assert after["metadata"]["annotations"] == {"autoscaling.keda.sh/paused-replicas": "0"}
    place.send(*intent.undo)
    restored = place.get("ScaledObject", "k") or {}
    assert "annotations" not in restored["metadata"]
    assert restored["spec"] == before["spec"]


@pytest.mark.parametrize("key", ["paused-replicas", "paused"])
def test_a_scaled_object_that_somebody_paused_is_left_alone(place: Place, key: str) -> None:
    deployed(place)
    value = "true" if key == "paused" else "1"
    keda(place, annotations={f"autoscaling.keda.sh/{key}": value})
    with pytest.raises(RefusedError, match="paused by somebody"):
        intend(place)


def test_an_autoscaler_that_may_not_be_read_is_no_absence(place: Place) -> None:
    if place.server is None:
        pytest.skip("the stand-in forbids one resource at a time")
    obj = deployed(place)
    place.server.access.users["half"] = "half"
    place.server.access.deny("list", "horizontalpodautoscalers", user="half")
    with pytest.raises(RefusedError, match="forbidden"):
        find_obstacles(obj, door(place.kube.url, token="half"))


def test_whoever_controls_an_object_fights_back(place: Place) -> None:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "c",
        "uid": "1",
        "controller": True,
    }
    obj = deployed(place, ownerReferences=[reference])
    assert gates(obj, place) == {"controlled"}
    with pytest.raises(RefusedError, match="controlled by ConfigMap c"):
        intend(place)


@pytest.mark.parametrize(
    ("spec", "status", "why"),
    [
        ({"replicas": 3}, {"observedGeneration": 1, "updatedReplicas": 3}, "not yet seen"),
        ({"replicas": 3}, {"observedGeneration": 2, "updatedReplicas": 1}, "1 of 3"),
        ({"replicas": 3}, {"observedGeneration": 2, "updatedReplicas": 3}, ""),
        ({"replicas": 0}, {"observedGeneration": 2}, ""),
    ],
)
def test_a_rollout_under_way_is_waited_for(spec: Any, status: Any, why: str) -> None:
    meta = {"name": "x", "generation": 2}
    obj = {"kind": "Deployment", "metadata": meta, "spec": spec, "status": status}
    assert why in (explain_rollout(obj) or "")
    assert bool(explain_rollout(obj)) is bool(why)


def test_an_object_on_its_way_out_is_left_alone(place: Place) -> None:
    body = {"metadata": {"name": "x", "finalizers": ["a/b"]}, "spec": job()}
    place.make("Job", body)
    assert place.kube.ask("DELETE", place.path("Job", "x")).code == 200
    obj = place.get("Job", "x") or {}
    assert "terminating" in gates(obj, place)
    with pytest.raises(RefusedError, match="being deleted"):
        intend(place, "Job", "suspend")
    place.patch("Job", "x", {"metadata": {"finalizers": None}})
