"""Ask for less CPU or memory per GPU, never below what was used.

In place (`pods/resize`) where the cluster serves it: nothing restarts, and the owner's template is
left for its owner, so a new pod asks for the old amount again. Else the owner's template, whose
pods start anew. What is written is the container that asks for the GPUs.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from actions.cluster.members import gpus
from actions.cluster.objects import Object, deep, ended, going, name, namespace, target
from actions.cluster.pointers import MISSING, at
from actions.reclaim.subjects import LOOK, Subject, rights, subject
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.quantities import quantity
from fallow.seams import Cluster, Right

CPU, MEMORY = "ask for less CPU per GPU", "ask for less memory per GPU"
RESOURCE = {CPU: "cpu", MEMORY: "memory"}
HEADROOM = 1.2
"""Never below p99 x 1.2 nor below the known peak (domain.md section 5.1)."""
TEMPLATE = "/spec/template/spec"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


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
        if not decision.parameters.get("template") and _in_place(cluster):
            changes = _pods(found, cluster, resource, least)
            lost, note = "", "a new pod asks for the old amount until its template is changed"
        else:
            changes = (_template(found, resource, least),)
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
    """Return the least a pod may ask for: millicores, or bytes.

    Raises:
        RefusedError: the finding does not say what was used.
    """
    said = decision.parameters
    wanted, p99, peak = (said.get(k) for k in ("ask", "used_p99", "used_peak"))
    if said.get("resource") != resource or None in (wanted, p99, peak):
        raise RefusedError(
            f"{decision.subject[1]}/{decision.subject[2]}/{decision.subject[3]}: what it uses of "
            f"{resource} is not known, so nothing is lowered"
        )
    return max(float(wanted), float(p99) * HEADROOM, float(peak))  # type: ignore[arg-type]


def _in_place(cluster: Cluster) -> bool:
    served = (cluster.get("/api/v1") or {}).get("resources") or ()
    return any(r.get("name") == "pods/resize" for r in served)


def _pods(found: Subject, cluster: Cluster, resource: str, least: float) -> tuple[Change, ...]:
    changes = []
    for pod in cluster.pods(found.target):
        if ended(pod) or going(pod) or not gpus(pod):
            continue
        made = _lowered(deep(pod, "spec", "containers"), resource, least)
        if made is None:
            continue
        index, container, old, new = made
        path = f"/api/v1/namespaces/{namespace(pod)}/pods/{name(pod)}"
        pointer = f"/spec/containers/{index}/resources/requests/{resource}"
        amounts = {"requests": {resource: new}}
        body = {"spec": {"containers": [{"name": container, "resources": amounts}]}}
        changes.append(
            Change(
                target(pod, found.target.cluster, "Pod", "v1"),
                "PATCH",
                f"{path}/resize",
                body,
                content_type=STRATEGIC,
                read=path,
                was={pointer: old},
                becomes={pointer: new},
            )
        )
    return tuple(changes)


def _template(found: Subject, resource: str, least: float) -> Change:
    listed = at(found.obj, f"{TEMPLATE}/containers")
    made = None if listed is MISSING else _lowered(listed, resource, least)
    if made is None:
        raise RefusedError(f"{found} asks for no more {resource} than it needs")
    index, container, old, new = made
    pointer = f"{TEMPLATE}/containers/{index}/resources/requests/{resource}"
    body = [
        {"op": "test", "path": f"{TEMPLATE}/containers/{index}/name", "value": container},
        {"op": "test", "path": pointer, "value": old},
        {"op": "replace", "path": pointer, "value": new},
    ]
    return Change(
        found.target,
        "PATCH",
        found.path,
        body,
        content_type=JSON_PATCH,
        was={pointer: old},
        becomes={pointer: new},
    )


def _lowered(
    containers: Sequence[Object], resource: str, least: float
) -> tuple[int, str, str, str] | None:
    """Return which container asks for how much, and for how much it should; None = for no more.

    The amount is the pod's: what the other containers ask for comes off it.
    """
    asking = [n for n, c in enumerate(containers) if gpus({"spec": {"containers": [c]}})]
    if len(asking) != 1:
        raise RefusedError(f"{len(asking)} containers ask for GPUs: whose {resource} it is, unsaid")
    index = asking[0]
    others = sum(_asked(c, resource) for n, c in enumerate(containers) if n != index)
    old = deep(containers[index], "resources", "requests", resource)
    new = max(least - others, 0.0)
    if old is None or new <= 0 or _asked(containers[index], resource) <= new:
        return None
    return index, str(containers[index]["name"]), str(old), written(resource, new)


def _asked(container: Object, resource: str) -> float:
    said = deep(container, "resources", "requests", resource)
    value = float(quantity(said) or 0) if said is not None else 0.0
    return value * 1000 if resource == "cpu" else value


def written(resource: str, amount: float) -> str:
    """Return an amount as the API writes it: millicores, or MiB rounded up."""
    if resource == "cpu":
        return f"{-int(-amount // 1)}m"
    return f"{-int(-amount // 2**20)}Mi"


def _undone(change: Change) -> Change:
    later = msgspec.structs.replace(change.target, resource_version=None, generation=None)
    body: Any
    if change.content_type == JSON_PATCH:
        name_test, _, _ = change.body
        ((pointer, new),) = change.becomes.items()
        body = [
            name_test,
            {"op": "test", "path": pointer, "value": new},
            {"op": "replace", "path": pointer, "value": change.was[pointer]},
        ]
    else:
        ((pointer, old),) = change.was.items()
        container = change.body["spec"]["containers"][0]["name"]
        resource = pointer.rpartition("/")[2]
        amounts = {"requests": {resource: old}}
        body = {"spec": {"containers": [{"name": container, "resources": amounts}]}}
    return msgspec.structs.replace(
        change, target=later, body=body, was=change.becomes, becomes=change.was
    )
