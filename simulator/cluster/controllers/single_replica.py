"""Simulate kinds that wrap one other object: Notebook, Workspace, InferenceService."""

from fallow.kube.objects import get_annotations, get_path, get_uid, is_deleting, name
from simulator.cluster.controllers.child_changes import (
    ChildChanges,
    ControllerView,
    build_child,
    keep,
)
from simulator.cluster.objects import Object, set_conditions

STOPPED = "kubeflow-resource-stopped"
KSERVE_STOP = "serving.kserve.io/stop"
RAW = {"RawDeployment", "Standard"}


def reconcile_notebook(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep a StatefulSet with one replica; with none while the stop annotation is there.

    Scaling the StatefulSet itself is reverted: the annotation is the only switch.
    """
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    set_name = name(obj)
    stopped = bool(get_annotations(obj).get(STOPPED))
    labels = {"notebook-name": set_name, "statefulset": set_name}
    template = _add_labels(get_path(obj, "spec", "template", default={}), labels)
    wanted = _build_stateful_set(obj, set_name, template, labels, 0 if stopped else 1)
    return _mirror(plan, obj, sight, wanted)


def reconcile_workspace(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep a StatefulSet with one replica; with none while the workspace is paused."""
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    labels = {"statefulset": f"ws-{name(obj)}"}
    template = _add_labels(get_path(obj, "spec", "podTemplate", default={}), labels)
    count = 0 if obj["spec"].get("paused") else 1
    return _mirror(
        plan, obj, sight, _build_stateful_set(obj, f"ws-{name(obj)}", template, labels, count)
    )


def _add_labels(template: Object, labels: dict[str, str]) -> Object:
    meta = template.get("metadata") or {}
    return {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}


def _build_stateful_set(
    obj: Object, set_name: str, template: Object, labels: dict[str, str], count: int
) -> Object:
    spec = {
        "replicas": count,
        "selector": {"matchLabels": dict(labels)},
        "serviceName": set_name,
        "template": template,
    }
    return build_child(obj, "apps/v1", "StatefulSet", set_name, spec)


def _mirror(plan: ChildChanges, obj: Object, sight: ControllerView, wanted: Object) -> ChildChanges:
    current = keep(plan, sight.view.children(get_uid(obj), "StatefulSet"), [wanted])
    members = [p for s in current for p in sight.view.children(get_uid(s), "Pod")]
    status = members[0].get("status", {}) if members else {}
    containers = status.get("containerStatuses") or [{}]
    plan.status = {
        "readyReplicas": int(get_path(current[0], "status", "readyReplicas", default=0))
        if current
        else 0,
        "containerState": containers[0].get("state") or {},
        "conditions": status.get("conditions") or [],
    }
    return plan


def reconcile_inference_service(obj: Object, sight: ControllerView) -> ChildChanges:
    """Keep the Deployment of a predictor; no replica runs while stop is "true".

    `minReplicas: 0` allows zero replicas in serverless mode without requests (this world has no
    activator); in raw mode the autoscaler keeps at least one.
    """
    plan = ChildChanges()
    if is_deleting(obj):
        return plan
    notes, predictor = get_annotations(obj), obj["spec"].get("predictor") or {}
    raw = notes.get("serving.kserve.io/deploymentMode", "Serverless") in RAW
    count = max(int(predictor.get("minReplicas", 1)), 1 if raw else 0)
    stopped = notes.get(KSERVE_STOP, "").lower() == "true"
    labels = {"serving.kserve.io/inferenceservice": name(obj), "component": "predictor"}
    fields = {"containers", "nodeSelector", "tolerations", "priorityClassName"}
    containers = predictor.get("containers") or [
        {"name": "kserve-container", **(predictor.get("model") or {})}
    ]
    pod_spec = {k: v for k, v in predictor.items() if k in fields} | {"containers": containers}
    spec = {
        "replicas": count,
        "selector": {"matchLabels": dict(labels)},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec},
    }
    wanted = [build_child(obj, "apps/v1", "Deployment", f"{name(obj)}-predictor", spec)]
    current = keep(plan, sight.view.children(get_uid(obj), "Deployment"), [] if stopped else wanted)
    enough = (
        bool(current) and int(get_path(current[0], "status", "readyReplicas", default=0)) >= count
    )
    reason = "Stopped" if stopped else ("" if enough else "MinimumReplicasUnavailable")
    plan.status = {
        "conditions": set_conditions(
            obj,
            sight.now_s,
            ("Ready", enough, reason, ""),
            ("Stopped", stopped, "Stopped" if stopped else "", ""),
        )
    }
    return plan
