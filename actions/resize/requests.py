"""Request less CPU or memory per GPU, never below what was used.

In place (`pods/resize`, from Kubernetes 1.33 on): nothing restarts. The owner's template is not
changed, so a new pod requests the old amount again. With `template: true` the owner's template is
changed, and its pods restart. The container is the one that the finding names by its own history,
else the one that requests the GPUs. Memory of a container that was OOM-killed is never lowered.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from actions.cluster.pointers import MISSING, resolve_pointer
from actions.cluster.workload_pods import count_requested_gpus
from actions.reclaim.subjects import POD_RIGHTS, LiveWorkload, build_rights, read_workload
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import (
    Object,
    get_namespace,
    get_path,
    has_ended,
    is_deleting,
    name,
    to_target,
)
from fallow.kube.quantities import is_same_value, parse_quantity, write_canonical
from fallow.protocols import ClusterReader, Right

CPU, MEMORY = "ask for less CPU per GPU", "ask for less memory per GPU"
RESOURCE = {CPU: "cpu", MEMORY: "memory"}
HEADROOM = 1.2
"""Never below p99 x 1.2 nor below the known peak, within the days of data.

Source: telemetry-and-waste.md#safety."""
LEAST_DAYS, MEMORY_HEADROOM = 7.0, 1.15
"""For one container with a week of its own use: never below its 95th percentile of CPU, nor below
the most memory it used x 1.15."""
OOM_KILLED = "OOMKilled"
TEMPLATE = "/spec/template/spec"
TEMPLATE_HINT = "the policy may change the template instead: template: true"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
GUARANTEED = "Guaranteed"


class RequestsExecutor:
    """Lower the requests of a workload's GPU containers."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "StatefulSet", "Notebook"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"resize"})
    verbs: ClassVar[frozenset[str]] = frozenset(RESOURCE)
    rights: ClassVar[tuple[Right, ...]] = (
        *build_rights("Deployment", "StatefulSet", "Notebook"),
        Right("", "pods/resize", ("patch",)),
        *POD_RIGHTS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the resize of every running pod, or the patch of the template.

        Raises:
            RefusedError: the finding does not contain what was used, nothing would be lowered, or
                the object has changed.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        resource = RESOURCE[decision.verb]
        minimum = get_minimum(decision, resource)
        container = decision.parameters.get("container")
        if resource == "memory":
            _require_no_oom(workload, cluster, container)
        if not decision.parameters.get("template"):
            _require_resize(workload, cluster)
            changes = _resize_pods(workload, cluster, resource, minimum, container)
            lost, note = "", "a new pod asks for the old amount until its template is changed"
        else:
            changes = (_patch_template(workload, resource, minimum, container),)
            lost, note = "memory of its pods, which start anew", ""
        if not changes:
            raise RefusedError(f"{workload} asks for no more {resource} than it needs")
        return Intent(
            target=workload.target,
            capability="resize",
            changes=changes,
            undo=tuple(_build_undo(c) for c in reversed(changes)),
            lost=lost,
            notes=(note,) if note else (),
        )


def get_minimum(decision: Decision, resource: str) -> float:
    """Return the minimum request of a pod, or of the container that the finding names.

    In millicores, or bytes.

    Raises:
        RefusedError: the finding does not contain what was used.
    """
    parameters = decision.parameters
    if parameters.get("container"):
        return _get_container_minimum(decision, resource)
    proposed, p99, peak = (parameters.get(k) for k in ("ask", "used_p99", "used_peak"))
    if parameters.get("resource") != resource or None in (proposed, p99, peak):
        raise RefusedError(
            f"{decision.subject[1]}/{decision.subject[2]}/{decision.subject[3]}: what it uses of "
            f"{resource} is not known, so nothing is lowered"
        )
    return max(float(proposed), float(p99) * HEADROOM, float(peak))  # type: ignore[arg-type]


def _get_container_minimum(decision: Decision, resource: str) -> float:
    """Return the minimum request of one container, by its own history."""
    parameters = decision.parameters
    used = parameters.get("used_p95" if resource == "cpu" else "used_most")
    workload = f"{decision.subject[1]}/{decision.subject[2]}/{decision.subject[3]}"
    if parameters.get("resource") != resource or None in {parameters.get("ask"), used}:
        raise RefusedError(
            f"{workload}: what container {parameters['container']} uses of {resource} is not known"
        )
    if float(parameters.get("history_days") or 0.0) < LEAST_DAYS:
        raise RefusedError(
            f"{workload}: {float(parameters.get('history_days') or 0.0):.1f} days of use "
            "are known of "
            f"container {parameters['container']}, {LEAST_DAYS:g} are needed"
        )
    if resource == "memory" and parameters.get("oom_killed") is not False:
        raise RefusedError(
            f"{workload}: container {parameters['container']} was killed for its memory"
        )
    margin = 1.0 if resource == "cpu" else MEMORY_HEADROOM
    return max(float(parameters["ask"]), float(used) * margin)  # type: ignore[arg-type]


def _require_no_oom(workload: LiveWorkload, cluster: ClusterReader, container: str | None) -> None:
    """Refuse where the status of a pod shows that a container was OOM-killed."""
    for pod in cluster.pods(workload.target):
        for status in get_path(pod, "status", "containerStatuses") or ():
            reasons = {
                get_path(status, "lastState", "terminated", "reason"),
                get_path(status, "state", "terminated", "reason"),
            }
            if OOM_KILLED in reasons and container in {None, status.get("name")}:
                raise RefusedError(
                    f"{workload}: container {status.get('name')} of pod {name(pod)} was killed for "
                    "its memory, so its memory is not lowered"
                )


def _require_resize(workload: LiveWorkload, cluster: ClusterReader) -> None:
    """Refuse where the server cannot resize a pod in place: a restart is the policy's to permit."""
    served = (cluster.get("/api/v1") or {}).get("resources") or ()
    if not any(r.get("name") == "pods/resize" for r in served):
        raise RefusedError(
            f"{workload}: the server of {cluster.name} has no pods/resize: its pods would start "
            "anew",
            hint=TEMPLATE_HINT,
        )


def _resize_pods(
    workload: LiveWorkload,
    cluster: ClusterReader,
    resource: str,
    minimum: float,
    container: str | None,
) -> tuple[Change, ...]:
    changes = []
    for pod in cluster.pods(workload.target):
        if has_ended(pod) or is_deleting(pod) or not get_path(pod, "spec", "nodeName"):
            continue
        quality = get_path(pod, "status", "qosClass")
        size = _find_lower_size(pod["spec"], resource, minimum, named=container, quality=quality)
        if size is None:
            continue
        if size.restarts:
            raise RefusedError(
                f"{workload} would restart container {size.container} of pod {name(pod)}: its "
                f"resizePolicy of {resource} is RestartContainer",
                hint=TEMPLATE_HINT,
            )
        path = f"/api/v1/namespaces/{get_namespace(pod)}/pods/{name(pod)}"
        was = {f"/spec{pointer}": amount for pointer, amount in size.was.items()}
        changes.append(
            Change(
                to_target(pod, workload.target.cluster, "Pod", "v1"),
                "PATCH",
                f"{path}/resize",
                _build_body(size.container, dict.fromkeys(was, size.new)),
                content_type=STRATEGIC,
                read=path,
                was=was,
                becomes=dict.fromkeys(was, size.new),
            )
        )
    return tuple(changes)


def _patch_template(
    workload: LiveWorkload, resource: str, minimum: float, container: str | None
) -> Change:
    spec = resolve_pointer(workload.obj, TEMPLATE)
    size = None if spec is MISSING else _find_lower_size(spec, resource, minimum, named=container)
    if size is None:
        raise RefusedError(f"{workload} asks for no more {resource} than it needs")
    was = {f"{TEMPLATE}{pointer}": amount for pointer, amount in size.was.items()}
    path = f"{TEMPLATE}/containers/{size.index}/name"
    return Change(
        workload.target,
        "PATCH",
        workload.path,
        _build_operations({"op": "test", "path": path, "value": size.container}, was, size.new),
        content_type=JSON_PATCH,
        was=was,
        becomes=dict.fromkeys(was, size.new),
    )


class ContainerSize(msgspec.Struct, frozen=True):
    """The new request of one container."""

    index: int
    container: str
    was: dict[str, str]
    """Pointers in the pod's spec, of the request and with it the limit, and their amounts."""
    new: str
    restarts: bool
    """True: its resizePolicy restarts the container for a resize."""


def _find_lower_size(
    spec: Object,
    resource: str,
    minimum: float,
    *,
    named: str | None = None,
    quality: str | None = None,
) -> ContainerSize | None:
    """Return the container to lower, with its old and its new request; None = none is lowered.

    The minimum is that of the `named` container. Without a name it is the pod's minimum; the
    requests of the other containers are then subtracted from it. A Guaranteed pod's limit changes
    with its request: the server lets no resize change the class.
    """
    containers: Sequence[Object] = spec.get("containers") or ()
    index = _index(containers, resource, named)
    if index is None:
        return None
    container = containers[index]
    other_containers = [] if named else [c for n, c in enumerate(containers) if n != index]
    others = sum(_get_request(c, resource) for c in other_containers)
    amounts = {
        side: get_path(container, "resources", side, resource) for side in ("requests", "limits")
    }
    current = amounts["requests"] if amounts["requests"] is not None else amounts["limits"]
    new = max(minimum - others, 0.0)
    if current is None or new <= 0 or _get_request(container, resource) <= new:
        return None
    _refuse_amount_of_pod(spec, resource)
    changes_limit = (quality or _find_quality(spec)) == GUARANTEED or amounts["requests"] is None
    was = {
        f"/containers/{index}/resources/{side}/{resource}": str(amount)
        for side, amount in amounts.items()
        if amount is not None and (side == "requests" or changes_limit)
    }
    new_amount = format_amount(resource, new)
    return ContainerSize(
        index, str(container["name"]), was, new_amount, _is_restart_needed(container, resource)
    )


def _refuse_amount_of_pod(spec: Object, resource: str) -> None:
    amount = get_path(spec, "resources", "requests", resource) or get_path(
        spec, "resources", "limits", resource
    )
    if amount is not None:
        raise RefusedError(f"{resource} is asked for by the pod as a whole, not by its containers")


def _is_restart_needed(container: Object, resource: str) -> bool:
    """Return whether a container starts anew when an amount of it is resized."""
    return any(
        p.get("resourceName") == resource and p.get("restartPolicy") == "RestartContainer"
        for p in container.get("resizePolicy") or ()
    )


def _index(containers: Sequence[Object], resource: str, named: str | None) -> int | None:
    """Return the index of the container: the named one, else the only one that requests GPUs."""
    if named is not None:
        return next((n for n, c in enumerate(containers) if c.get("name") == named), None)
    requesting = [
        n for n, c in enumerate(containers) if count_requested_gpus({"spec": {"containers": [c]}})
    ]
    requesting = requesting or [
        n for n, c in enumerate(containers) if get_path(c, "resources", "claims")
    ]
    if len(requesting) > 1:
        raise RefusedError(
            f"{len(requesting)} containers ask for GPUs: whose {resource} it is, unsaid"
        )
    return requesting[0] if requesting else None


def _find_quality(spec: Object) -> str:
    """Return the QoS class of a pod of this spec, as far as it is Guaranteed or not."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in containers:
        for resource in ("cpu", "memory"):
            limit = get_path(container, "resources", "limits", resource)
            request = get_path(container, "resources", "requests", resource)
            if limit is None or (request is not None and not is_same_value(request, limit)):
                return "Burstable"
    return GUARANTEED


def _get_request(container: Object, resource: str) -> float:
    amount = get_path(container, "resources", "requests", resource)
    if amount is None:
        amount = get_path(container, "resources", "limits", resource)  # the server's default
    value = float(parse_quantity(amount) or 0) if amount is not None else 0.0
    return value * 1000 if resource == "cpu" else value


def format_amount(resource: str, amount: float) -> str:
    """Return an amount as the API stores it: millicores, or MiB rounded up, in canonical form."""
    text = f"{-int(-amount // 1)}m" if resource == "cpu" else f"{-int(-amount // 2**20)}Mi"
    return write_canonical(text) or text


def _build_body(container: str, becomes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the strategic merge patch that sets a container's amounts."""
    amounts: dict[str, dict[str, Any]] = {}
    for pointer, amount in becomes.items():
        *_, side, resource = pointer.split("/")
        amounts.setdefault(side, {})[resource] = amount
    return {"spec": {"containers": [{"name": container, "resources": amounts}]}}


def _build_operations(test: Any, was: Mapping[str, Any], new: Any) -> list[dict[str, Any]]:
    """Return the JSON patch that replaces amounts, and is refused where the old amounts differ."""
    body = [test]
    for pointer, before in was.items():
        after = new[pointer] if isinstance(new, Mapping) else new
        body.append({"op": "test", "path": pointer, "value": before})
        body.append({"op": "replace", "path": pointer, "value": after})
    return body


def _build_undo(change: Change) -> Change:
    later = msgspec.structs.replace(change.target, resource_version=None, generation=None)
    body: Any
    if change.content_type == JSON_PATCH:
        body = _build_operations(change.body[0], change.becomes, change.was)
    else:
        body = _build_body(change.body["spec"]["containers"][0]["name"], change.was)
    return msgspec.structs.replace(
        change, target=later, body=body, was=change.becomes, becomes=change.was
    )
