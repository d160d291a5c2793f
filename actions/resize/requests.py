"""Ask for less CPU or memory per GPU, never below what was used.

In place (`pods/resize`) where the cluster serves it: nothing restarts, and the owner's template is
left for its owner, so a new pod asks for the old amount again. Else the owner's template, whose
pods start anew. What is written is the container that the finding names by its own history, else
the one that asks for the GPUs. Memory of a container that was killed for it is never lowered.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from actions.cluster.members import gpus
from actions.cluster.objects import Object, deep, ended, going, name, namespace, target
from actions.cluster.pointers import MISSING, at
from actions.reclaim.subjects import LOOK, Subject, rights, subject
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.quantities import canonical, quantity, same
from fallow.seams import Cluster, Right

CPU, MEMORY = "ask for less CPU per GPU", "ask for less memory per GPU"
RESOURCE = {CPU: "cpu", MEMORY: "memory"}
HEADROOM = 1.2
"""Never below p99 x 1.2 nor below the known peak, as far as days tell.

Source: telemetry-and-waste.md#safety.
"""
LEAST_DAYS, MEMORY_HEADROOM = 7.0, 1.15
"""Of one container with a week of its own use behind it: never below its 95th percentile of CPU,
nor below the most memory it used x 1.15."""
OOM_KILLED = "OOMKilled"
TEMPLATE = "/spec/template/spec"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
GUARANTEED = "Guaranteed"


class RequestsExecutor:
    """Lower the requests of a workload's GPU containers."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "StatefulSet", "Notebook"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"resize"})
    verbs: ClassVar[frozenset[str]] = frozenset(RESOURCE)
    rights: ClassVar[tuple[Right, ...]] = (
        *rights("Deployment", "StatefulSet", "Notebook"),
        Right("", "pods/resize", ("patch",)),
        *LOOK,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the resize of every running pod, or the patch of the template.

        Raises:
            RefusedError: the finding does not say what was used, nothing would be lowered, or the
                object is not what it was.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        resource = RESOURCE[decision.verb]
        least = floor(decision, resource)
        named = decision.parameters.get("container")
        if resource == "memory":
            _never_killed(found, cluster, named)
        if not decision.parameters.get("template") and _in_place(cluster):
            changes = _pods(found, cluster, resource, least, named)
            lost, note = "", "a new pod asks for the old amount until its template is changed"
        else:
            changes = (_template(found, resource, least, named),)
            lost, note = "memory of its pods, which start anew", ""
        if not changes:
            raise RefusedError(f"{found} asks for no more {resource} than it needs")
        return Intent(
            target=found.target,
            capability="resize",
            changes=changes,
            undo=tuple(_undone(c) for c in reversed(changes)),
            lost=lost,
            notes=(note,) if note else (),
        )


def floor(decision: Decision, resource: str) -> float:
    """Return the least a pod, or the container that the finding names, may ask for.

    In millicores, or bytes.

    Raises:
        RefusedError: the finding does not say what was used.
    """
    said = decision.parameters
    if said.get("container"):
        return _own(decision, resource)
    wanted, p99, peak = (said.get(k) for k in ("ask", "used_p99", "used_peak"))
    if said.get("resource") != resource or None in (wanted, p99, peak):
        raise RefusedError(
            f"{decision.subject[1]}/{decision.subject[2]}/{decision.subject[3]}: what it uses of "
            f"{resource} is not known, so nothing is lowered"
        )
    return max(float(wanted), float(p99) * HEADROOM, float(peak))  # type: ignore[arg-type]


def _own(decision: Decision, resource: str) -> float:
    """Return the least that one container may ask for, by its own history."""
    said = decision.parameters
    used = said.get("used_p95" if resource == "cpu" else "used_most")
    about = f"{decision.subject[1]}/{decision.subject[2]}/{decision.subject[3]}"
    if said.get("resource") != resource or None in {said.get("ask"), used}:
        raise RefusedError(
            f"{about}: what container {said['container']} uses of {resource} is not known"
        )
    if float(said.get("history_days") or 0.0) < LEAST_DAYS:
        raise RefusedError(
            f"{about}: {float(said.get('history_days') or 0.0):.1f} days of use are known of "
            f"container {said['container']}, {LEAST_DAYS:g} are needed"
        )
    if resource == "memory" and said.get("oom_killed") is not False:
        raise RefusedError(f"{about}: container {said['container']} was killed for its memory")
    margin = 1.0 if resource == "cpu" else MEMORY_HEADROOM
    return max(float(said["ask"]), float(used) * margin)  # type: ignore[arg-type]


def _never_killed(found: Subject, cluster: Cluster, named: str | None) -> None:
    """Refuse where a pod says now that the kernel killed a container for its memory."""
    for pod in cluster.pods(found.target):
        for status in deep(pod, "status", "containerStatuses") or ():
            reasons = {
                deep(status, "lastState", "terminated", "reason"),
                deep(status, "state", "terminated", "reason"),
            }
            if OOM_KILLED in reasons and named in {None, status.get("name")}:
                raise RefusedError(
                    f"{found}: container {status.get('name')} of pod {name(pod)} was killed for "
                    "its memory, so its memory is not lowered"
                )


def _in_place(cluster: Cluster) -> bool:
    served = (cluster.get("/api/v1") or {}).get("resources") or ()
    return any(r.get("name") == "pods/resize" for r in served)


def _pods(
    found: Subject, cluster: Cluster, resource: str, least: float, named: str | None
) -> tuple[Change, ...]:
    changes = []
    for pod in cluster.pods(found.target):
        if ended(pod) or going(pod) or not deep(pod, "spec", "nodeName"):
            continue
        quality = deep(pod, "status", "qosClass")
        size = _lowered(pod["spec"], resource, least, named=named, quality=quality)
        if size is None:
            continue
        if size.restarts:
            raise RefusedError(
                f"{found} would restart container {size.container} of pod {name(pod)}: its "
                f"resizePolicy of {resource} is RestartContainer",
                hint="the policy may change the template instead: template: true",
            )
        path = f"/api/v1/namespaces/{namespace(pod)}/pods/{name(pod)}"
        was = {f"/spec{pointer}": old for pointer, old in size.was.items()}
        changes.append(
            Change(
                target(pod, found.target.cluster, "Pod", "v1"),
                "PATCH",
                f"{path}/resize",
                _body(size.container, dict.fromkeys(was, size.new)),
                content_type=STRATEGIC,
                read=path,
                was=was,
                becomes=dict.fromkeys(was, size.new),
            )
        )
    return tuple(changes)


def _template(found: Subject, resource: str, least: float, named: str | None) -> Change:
    spec = at(found.obj, TEMPLATE)
    size = None if spec is MISSING else _lowered(spec, resource, least, named=named)
    if size is None:
        raise RefusedError(f"{found} asks for no more {resource} than it needs")
    was = {f"{TEMPLATE}{pointer}": old for pointer, old in size.was.items()}
    path = f"{TEMPLATE}/containers/{size.index}/name"
    return Change(
        found.target,
        "PATCH",
        found.path,
        _operations({"op": "test", "path": path, "value": size.container}, was, size.new),
        content_type=JSON_PATCH,
        was=was,
        becomes=dict.fromkeys(was, size.new),
    )


class Size(msgspec.Struct, frozen=True):
    """What one container is to ask for."""

    index: int
    container: str
    was: dict[str, str]
    """Pointers within the pod's spec, of the request and with it the limit, and their amounts."""
    new: str
    restarts: bool
    """Its resizePolicy has the container started anew for it."""


def _lowered(
    spec: Object,
    resource: str,
    least: float,
    *,
    named: str | None = None,
    quality: str | None = None,
) -> Size | None:
    """Return which container asks for how much, and for how much it should; None = for no more.

    The amount is the `named` container's; without one it is the pod's, of which what the other
    containers ask for comes off that of the one that asks for GPUs. A Guaranteed pod's
    limit goes with its request: the server lets no resize change the class.
    """
    containers: Sequence[Object] = spec.get("containers") or ()
    index = _index(containers, resource, named)
    if index is None:
        return None
    container = containers[index]
    rest = [] if named else [c for n, c in enumerate(containers) if n != index]
    others = sum(_asked(c, resource) for c in rest)
    sides = {side: deep(container, "resources", side, resource) for side in ("requests", "limits")}
    now = sides["requests"] if sides["requests"] is not None else sides["limits"]
    new = max(least - others, 0.0)
    if now is None or new <= 0 or _asked(container, resource) <= new:
        return None
    whole = deep(spec, "resources", "requests", resource) or deep(
        spec, "resources", "limits", resource
    )
    if whole is not None:
        raise RefusedError(f"{resource} is asked for by the pod as a whole, not by its containers")
    together = (quality or _quality(spec)) == GUARANTEED or sides["requests"] is None
    was = {
        f"/containers/{index}/resources/{side}/{resource}": str(amount)
        for side, amount in sides.items()
        if amount is not None and (side == "requests" or together)
    }
    policies = container.get("resizePolicy") or ()
    restarts = any(
        p.get("resourceName") == resource and p.get("restartPolicy") == "RestartContainer"
        for p in policies
    )
    return Size(index, str(container["name"]), was, written(resource, new), restarts)


def _index(containers: Sequence[Object], resource: str, named: str | None) -> int | None:
    """Return which container it is: the named one, else the only one that asks for GPUs."""
    if named is not None:
        return next((n for n, c in enumerate(containers) if c.get("name") == named), None)
    asking = [n for n, c in enumerate(containers) if gpus({"spec": {"containers": [c]}})]
    asking = asking or [n for n, c in enumerate(containers) if deep(c, "resources", "claims")]
    if len(asking) > 1:
        raise RefusedError(f"{len(asking)} containers ask for GPUs: whose {resource} it is, unsaid")
    return asking[0] if asking else None


def _quality(spec: Object) -> str:
    """Return the class of a pod of this spec, as far as it is Guaranteed or not."""
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in every:
        for resource in ("cpu", "memory"):
            limit = deep(container, "resources", "limits", resource)
            request = deep(container, "resources", "requests", resource)
            if limit is None or (request is not None and not same(request, limit)):
                return "Burstable"
    return GUARANTEED


def _asked(container: Object, resource: str) -> float:
    said = deep(container, "resources", "requests", resource)
    if said is None:
        said = deep(container, "resources", "limits", resource)  # the server's default
    value = float(quantity(said) or 0) if said is not None else 0.0
    return value * 1000 if resource == "cpu" else value


def written(resource: str, amount: float) -> str:
    """Return an amount as the API stores it: millicores, or MiB rounded up, in canonical form."""
    text = f"{-int(-amount // 1)}m" if resource == "cpu" else f"{-int(-amount // 2**20)}Mi"
    return canonical(text) or text


def _body(container: str, becomes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the strategic merge patch that sets a container's amounts."""
    amounts: dict[str, dict[str, Any]] = {}
    for pointer, amount in becomes.items():
        *_, side, resource = pointer.split("/")
        amounts.setdefault(side, {})[resource] = amount
    return {"spec": {"containers": [{"name": container, "resources": amounts}]}}


def _operations(named: Any, was: Mapping[str, Any], new: Any) -> list[dict[str, Any]]:
    """Return the JSON patch that replaces amounts, and is refused where they are others."""
    body = [named]
    for pointer, old in was.items():
        after = new[pointer] if isinstance(new, Mapping) else new
        body.append({"op": "test", "path": pointer, "value": old})
        body.append({"op": "replace", "path": pointer, "value": after})
    return body


def _undone(change: Change) -> Change:
    later = msgspec.structs.replace(change.target, resource_version=None, generation=None)
    body: Any
    if change.content_type == JSON_PATCH:
        body = _operations(change.body[0], change.becomes, change.was)
    else:
        body = _body(change.body["spec"]["containers"][0]["name"], change.was)
    return msgspec.structs.replace(
        change, target=later, body=body, was=change.becomes, becomes=change.was
    )
