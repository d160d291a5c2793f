"""Default and validate pods: defaults, GPU amounts, and fields that may not change later."""

from collections.abc import Iterator, Mapping
from typing import Any

from fallow.kube.quantities import require_quantity
from simulator.kube.patches import copy_json
from simulator.kube.status import InvalidField

Object = dict[str, Any]

DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "enableServiceLinks": True,
}
RESIZABLE = {"cpu", "memory"}
_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "resourceClaimStatuses")
_LISTS = ("containers", "initContainers")


def is_extended(resource: str) -> bool:
    """Return whether a resource is counted in whole devices (`nvidia.com/gpu`)."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def fill_defaults(pod: Object, now: str) -> Object:
    """Return a new pod with defaults: requests from limits, phase Pending, quality of service."""
    spec = {**DEFAULTS, **pod.get("spec", {})}
    for key in _LISTS:
        if key in spec:
            spec[key] = [_fill_requests(c) for c in spec[key]]
    status: Object = {"phase": "Pending", "qosClass": find_quality(spec)}
    if gates := spec.get("schedulingGates"):
        message = f"Scheduling is blocked due to non-empty scheduling gates ({len(gates)})"
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        status["conditions"] = [{**condition, "message": message, "lastTransitionTime": now}]
    return {**pod, "spec": spec, "status": status}


def _fill_requests(container: Object) -> Object:
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        requests = {**limits, **(resources.get("requests") or {})}
        resources = {**resources, "requests": requests}
    return {**container, "resources": resources}


def find_quality(spec: Mapping[str, Any]) -> str:
    """Return the quality of service class."""
    containers = [c for key in _LISTS for c in spec.get(key) or ()]
    both = [
        [{k: v for k, v in (r.get(side) or {}).items() if k in RESIZABLE} for side in _SIDES]
        for r in (c.get("resources") or {} for c in containers)
    ]
    if not any(requests or limits for requests, limits in both):
        return "BestEffort"
    whole = all(requests == limits and limits.keys() == RESIZABLE for requests, limits in both)
    return "Guaranteed" if whole else "Burstable"


_SIDES = ("requests", "limits")


def find_invalid_fields(spec: Mapping[str, Any]) -> Iterator[InvalidField]:
    """Yield what validation refuses about a pod's resources and shape."""
    if not spec.get("containers"):
        yield InvalidField("spec.containers", "Required value", "FieldValueRequired")
    for key in _LISTS:
        for i, container in enumerate(spec.get(key) or ()):
            where = f"spec.{key}[{i}]"
            if not container.get("name"):
                yield InvalidField(f"{where}.name", "Required value", "FieldValueRequired")
            yield from _find_resource_errors(container.get("resources") or {}, f"{where}.resources")


def _find_resource_errors(resources: Mapping[str, Any], where: str) -> Iterator[InvalidField]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            field = f"{where}.{side}[{name}]" if is_extended(name) else f"{where}.{side}.{name}"
            try:
                value = require_quantity(text)
            except ValueError as error:
                yield InvalidField(field, f'Invalid value: "{text}": {error}')
                continue
            if value < 0:
                yield InvalidField(
                    field, f'Invalid value: "{text}": must be greater than or equal to 0'
                )
            if is_extended(name) and value.denominator != 1:
                yield InvalidField(field, f'Invalid value: "{text}": must be an integer')
    for name, text in requests.items():
        if is_extended(name) and name not in limits:
            message = "Required value: Limit must be set for non overcommitable resources"
            yield InvalidField(f"{where}.limits", message, "FieldValueRequired")
        elif name in limits and _is_greater(text, limits[name], or_less=is_extended(name)):
            relation = "equal to" if is_extended(name) else "less than or equal to"
            message = f'Invalid value: "{text}": must be {relation} {name} limit of {limits[name]}'
            yield InvalidField(f"{where}.requests", message)


def _is_greater(value: str | float, limit: str | float, *, or_less: bool) -> bool:
    try:
        return (
            require_quantity(value) != require_quantity(limit)
            if or_less
            else require_quantity(value) > require_quantity(limit)
        )
    except ValueError:
        return False  # reported already


def find_invalid_updates(old: Object, new: Object, subresource: str) -> Iterator[InvalidField]:
    """Yield what may not change on an existing pod; the node may be set once."""
    before, after = copy_json(old["spec"]), copy_json(new["spec"])
    if subresource == "resize":
        if _drop_resizable(before) != _drop_resizable(after):
            yield InvalidField("spec", "Forbidden: only cpu and memory resources are mutable")
        now = find_quality(new["spec"])
        if now != find_quality(old["spec"]):
            message = "Pod QOS Class may not change as a result of resizing"
            yield InvalidField("spec", f'Invalid value: "{now}": {message}')
        return
    if not before.get("nodeName"):
        before["nodeName"] = after.get("nodeName")
        before["schedulingGates"] = after.get("schedulingGates")
    for field in _MUTABLE[:2]:
        before[field] = after.get(field)
    for key in _LISTS:
        for old_container, new_container in zip(
            before.get(key) or (), after.get(key) or (), strict=False
        ):
            old_container["image"] = new_container.get("image")
            new_container.setdefault("image", None)
    before, after = ({k: v for k, v in s.items() if v is not None} for s in (before, after))
    if before != after:
        yield InvalidField(
            "spec",
            "Forbidden: pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
            "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
            "previously negative)",
            "FieldValueForbidden",
        )


def _drop_resizable(spec: Object) -> Object:
    for key in _LISTS:
        for container in spec.get(key) or ():
            for side in _SIDES:
                amounts = (container.get("resources") or {}).get(side) or {}
                for name in RESIZABLE & amounts.keys():
                    del amounts[name]
    return spec


def get_grace_seconds(pod: Object, grace_s: float | None) -> int:
    """Return the seconds that a pod has to end: none when no container of it can run."""
    phase = pod.get("status", {}).get("phase")
    if not pod["spec"].get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
    return max(int(seconds), 0)
