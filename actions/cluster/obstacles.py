"""Find what would revert a change: GitOps, autoscalers, Kueue, an owner above, a rollout.

If the intent is given, only those that would undo exactly these writes are named. An HPA ignores a
Deployment at zero replicas (unless zero is its own minimum: HPAScaleToZero), KEDA keeps the
replicas at which it was paused, and no GitOps tool restores a field that is not in Git.
"""

import json
from collections.abc import Iterator
from functools import cache

import msgspec

from actions.cluster import autoscalers
from actions.cluster.pointers import MISSING, resolve_pointer
from actions.reclaim import kueue
from fallow.action_models import Intent, Reason
from fallow.kube.objects import (
    Object,
    find_controller,
    format_object,
    get_annotations,
    get_labels,
    get_metadata,
    get_path,
    get_uid,
    group,
    is_deleting,
)
from fallow.protocols import ClusterReader
from fallow.resources import read_table

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUEUE = "kueue.x-k8s.io"


class GitOpsTool(msgspec.Struct, frozen=True):
    """A GitOps tool: the text in its tracking labels or annotations, or its field managers."""

    tool: str
    where: str
    key: str
    note: str


@cache
def read_gitops_tools() -> tuple[GitOpsTool, ...]:
    """Return the rows of `gitops.csv`."""
    return tuple(GitOpsTool(**row) for row in read_table("actions.cluster", "gitops.csv"))


def find_obstacles(
    obj: Object, cluster: ClusterReader, *, intent: Intent | None = None
) -> tuple[Reason, ...]:
    """Return why a change of an object would be undone or is unsafe now; () = there is no obstacle.

    Raises:
        RefusedError: an object that has to be read may not be.
        TemporaryError: the API does not answer.
    """
    pairs = [
        *_find_transitions(obj),
        *_find_gitops(obj, intent),
        *_find_autoscaler_obstacles(obj, cluster, intent),
        *_find_kueue(obj, cluster, intent),
    ]
    return tuple(Reason(gate, text) for gate, text in dict.fromkeys(pairs))


def _find_transitions(obj: Object) -> Iterator[tuple[str, str]]:
    if is_deleting(obj):
        yield "terminating", f"{format_object(obj)} is being deleted"
    owner = find_controller(obj)
    if owner is not None:
        yield (
            "controlled",
            f"{format_object(obj)} is controlled by {owner.get('kind')} {owner.get('name')}",
        )
    if why := explain_rollout(obj):
        yield "rollout", f"{format_object(obj)}: {why}"


def explain_rollout(obj: Object) -> str | None:
    """Return why a rollout counts as under way, or None."""
    status, generation = obj.get("status") or {}, get_metadata(obj).get("generation")
    observed = status.get("observedGeneration")
    if isinstance(observed, int) and isinstance(generation, int) and observed < generation:
        return "its controller has not yet seen the last change"
    if obj.get("kind") in {"Deployment", "StatefulSet", "Rollout"}:
        replicas = get_path(obj, "spec", "replicas")
        updated = status.get("updatedReplicas") or 0
        if isinstance(replicas, int) and updated < replicas:
            return f"a rollout is under way: {updated} of {replicas} replicas are updated"
    return None


def _find_gitops(obj: Object, intent: Intent | None) -> Iterator[tuple[str, str]]:
    tool = find_gitops_tool(obj)
    if tool is None:
        return
    if intent is None:
        yield "gitops", f"{format_object(obj)} is kept by {tool}"
        return
    for change in intent.changes:
        if change.target.uid != get_uid(obj):
            continue
        for pointer in change.becomes:
            if _is_tracked(obj, pointer):
                yield (
                    "gitops",
                    f"{tool} keeps {pointer} of {format_object(obj)} and would put it back",
                )


def find_gitops_tool(obj: Object) -> str | None:
    """Return the GitOps tool that manages an object; None = none, or the object is excluded."""
    marks = {"label": get_labels(obj), "annotation": get_annotations(obj)}
    managers = {str(e.get("manager") or "") for e in get_metadata(obj).get("managedFields") or ()}
    if any(t.where == "off" and _is_turned_off(t.key, obj) for t in read_gitops_tools()):
        return None
    for tool in read_gitops_tools():
        if tool.where in marks and tool.key in marks[tool.where]:
            return tool.tool
        if tool.where == "manager" and tool.key in managers:
            return tool.tool
    return None


def _is_turned_off(rule: str, obj: Object) -> bool:
    key, _, value = rule.partition("=")
    return get_annotations(obj).get(key, "").lower() == value


def _is_tracked(obj: Object, pointer: str) -> bool:
    """Return whether Git may manage a field: present, and in the applied manifest if known."""
    if resolve_pointer(obj, pointer) is MISSING:
        return False
    applied = get_annotations(obj).get(LAST_APPLIED)
    if applied is None:
        return True
    try:
        return resolve_pointer(json.loads(applied), pointer) is not MISSING
    except ValueError:
        return True


def _find_autoscaler_obstacles(
    obj: Object, cluster: ClusterReader, intent: Intent | None
) -> Iterator[tuple[str, str]]:
    for scaler in autoscalers.find_autoscalers(obj, cluster):
        kind = str(scaler.get("kind"))
        if intent is not None and (
            (
                kind == autoscalers.HPA
                and get_path(scaler, "spec", "minReplicas") != 0
                and _can_scale_to_zero(intent, obj)
            )
            or _is_written(intent, scaler)
        ):
            continue
        if kind == autoscalers.KEDA_OBJECT and autoscalers.get_paused_replicas(scaler) == "0":
            continue
        yield "autoscaler", f"{format_object(scaler)} scales {format_object(obj)}"


def _can_scale_to_zero(intent: Intent, obj: Object) -> bool:
    return any(
        c.target.uid == get_uid(obj) and c.becomes.get("/spec/replicas") == 0
        for c in intent.changes
    )


def _is_written(intent: Intent, obj: Object) -> bool:
    return any(c.target.uid == get_uid(obj) for c in intent.changes)


def _find_kueue(
    obj: Object, cluster: ClusterReader, intent: Intent | None
) -> Iterator[tuple[str, str]]:
    if intent is None or not kueue.is_reverted(obj):
        return
    if any(group(c.target.api_version) == KUEUE for c in intent.changes):
        return
    if kueue.is_managed(obj, cluster):
        yield "kueue", f"Kueue keeps {format_object(obj)}: its Workload has to be switched"
