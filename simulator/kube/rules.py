"""Apply the built-in kinds' defaults and immutable fields: a small part of validation."""

from collections.abc import Iterator, Mapping
from typing import Any

from simulator.kube import pods
from simulator.kube.kinds import ApiKind
from simulator.kube.patches import copy_json
from simulator.kube.policy_rules import find_invalid_policy_fields
from simulator.kube.status import InvalidField

Object = dict[str, Any]

REPLICATED = {"Deployment", "ReplicaSet", "StatefulSet"}
KEEPS_STATUS = {"Node", "CustomResourceDefinition"}
"""Kinds whose status may come with a create."""
_JOB = "Job"
_SET_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_WHILE_SUSPENDED = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def fill_defaults(kind: ApiKind, item: Object, now: str) -> Object:
    """Return a new object with the defaults of its kind and without a status of the caller's."""
    if kind.status and kind.key not in KEEPS_STATUS:
        item = {k: v for k, v in item.items() if k != "status"}
        if not kind.custom:
            item["status"] = {}
    if kind.key == "Pod":
        return pods.fill_defaults(item, now)
    if kind.key == "Namespace":
        return {**item, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    return apply_defaults(kind, item)


def apply_defaults(kind: ApiKind, item: Object) -> Object:
    """Return an object with its kind's defaults, whether it is new or a field was removed."""
    spec = item.get("spec")
    if kind.custom or not isinstance(spec, dict):
        return item
    if kind.key in REPLICATED and spec.get("replicas") is None:
        return {**item, "spec": {**spec, "replicas": 1}}
    if kind.key == _JOB:
        return {**item, "spec": _get_job(spec)}
    return item


def _get_job(spec: Object) -> Object:
    out = {"backoffLimit": 6, "suspend": False, "completionMode": "NonIndexed", **spec}
    if out.get("parallelism") is None:
        out["parallelism"] = 1
    if out.get("completions") is None and "parallelism" not in spec:
        out["completions"] = 1
    return out


def find_invalid_fields(kind: ApiKind, item: Object) -> Iterator[InvalidField]:
    """Yield what validation refuses about an object of its kind."""
    spec = item.get("spec") or {}
    if kind.key == "Pod":
        yield from pods.find_invalid_fields(spec)
    yield from find_invalid_policy_fields(kind.key, spec)
    if kind.key in REPLICATED:
        replicas = spec.get("replicas")
        if isinstance(replicas, int) and replicas < 0:
            message = f"Invalid value: {replicas}: must be greater than or equal to 0"
            yield InvalidField("spec.replicas", message)
        if not spec.get("selector"):
            yield InvalidField("spec.selector", "Required value", "FieldValueRequired")
        elif not _is_within(spec):
            labels = _get_labels(spec)
            message = f"Invalid value: {labels}: `selector` does not match template `labels`"
            yield InvalidField("spec.template.metadata.labels", message)
    if kind.custom or kind.key == "Pod":
        return
    template = (spec.get("template") or {}).get("spec")
    if template is not None and kind.key in {*REPLICATED, _JOB}:
        for wrong in pods.find_invalid_fields(template):
            yield InvalidField(f"spec.template.{wrong.field}", wrong.why, wrong.reason)


def _get_labels(spec: Mapping[str, Any]) -> Mapping[str, str]:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}


def _is_within(spec: Mapping[str, Any]) -> bool:
    wanted: Mapping[str, str] = spec["selector"].get("matchLabels") or {}
    return wanted.items() <= _get_labels(spec).items()


def find_invalid_updates(
    kind: ApiKind, old: Object, new: Object, subresource: str
) -> Iterator[InvalidField]:
    """Yield what may not change on an existing object of its kind."""
    if kind.key == "Pod":
        yield from pods.find_invalid_updates(old, new, subresource)
        return
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if kind.key == "StatefulSet":
        fixed = (before.keys() | after.keys()) - set(_SET_MUTABLE)
        if any(before.get(k) != after.get(k) for k in fixed):
            listed = ", ".join(f"'{k}'" for k in _SET_MUTABLE[:-1])
            message = (
                "Forbidden: updates to statefulset spec for fields other than "
                f"{listed} and '{_SET_MUTABLE[-1]}' are forbidden"
            )
            yield InvalidField("spec", message, "FieldValueForbidden")
    if kind.key in {"Deployment", "ReplicaSet"}:
        yield from _check_immutable_field(before, after, "selector")
    if kind.key == _JOB:
        yield from _check_immutable_field(before, after, "selector")
        yield from _check_immutable_field(before, after, "completionMode")
        if _get_template(before, before) != _get_template(after, before):
            yield InvalidField("spec.template", "Invalid value: field is immutable")


def _check_immutable_field(
    before: Mapping[str, Any], after: Mapping[str, Any], field: str
) -> Iterator[InvalidField]:
    if before.get(field) != after.get(field):
        yield InvalidField(f"spec.{field}", "Invalid value: field is immutable")


def _get_template(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Any:
    """Return the immutable part of a job's template; it is smaller while the job is suspended."""
    template = copy_json(spec.get("template") or {})
    if before.get("suspend"):
        pod = template.get("spec") or {}
        for field in _WHILE_SUSPENDED:
            pod.pop(field, None)
        for key in ("containers", "initContainers"):
            for container in pod.get(key) or ():
                container.pop("resources", None)
        meta = template.get("metadata") or {}
        meta.pop("labels", None)
        meta.pop("annotations", None)
    return template
