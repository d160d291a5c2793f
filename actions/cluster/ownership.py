"""Who would fight back: GitOps, autoscalers, Kueue, an owner above, a rollout under way.

With the intent at hand only those who would undo just these writes are named: an HPA leaves a
Deployment at zero alone, KEDA keeps the replicas it was told to pause at, and what Git does not
say of an object no GitOps tool puts back.
"""

import csv
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec

from actions.cluster import scalers
from actions.cluster.objects import (
    Object,
    annotations,
    controller,
    deep,
    going,
    group,
    labels,
    meta,
    shown,
    uid,
)
from actions.cluster.pointers import MISSING, at
from fallow.acting import Intent, Reason
from fallow.seams import Cluster

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE = "kueue.x-k8s.io"


class Tool(msgspec.Struct, frozen=True):
    """A GitOps tool: a word by which it marks what it keeps, or its field managers."""

    tool: str
    where: str
    key: str
    note: str


@cache
def tools() -> tuple[Tool, ...]:
    """Return the rows of `gitops.csv`."""
    text = files("actions.cluster").joinpath("gitops.csv").read_text(encoding="utf-8")
    return tuple(Tool(**row) for row in csv.DictReader(text.splitlines()))


def rivals(obj: Object, cluster: Cluster, *, intent: Intent | None = None) -> tuple[Reason, ...]:
    """Return why a change of an object would be undone, or is not safe now; () = nobody fights.

    Raises:
        RefusedError: what would have to be read may not be.
        TemporaryError: the API does not answer.
    """
    found = [
        *_moving(obj),
        *_gitops(obj, intent),
        *_autoscalers(obj, cluster, intent),
        *_kueue(obj, cluster, intent),
    ]
    return tuple(Reason(gate, text) for gate, text in dict.fromkeys(found))


def _moving(obj: Object) -> Iterator[tuple[str, str]]:
    if going(obj):
        yield "terminating", f"{shown(obj)} is being deleted"
    above = controller(obj)
    if above is not None:
        yield "controlled", f"{shown(obj)} is controlled by {above.get('kind')} {above.get('name')}"
    if why := rolling(obj):
        yield "rollout", f"{shown(obj)}: {why}"


def rolling(obj: Object) -> str | None:
    """Say why a rollout counts as under way, or None."""
    status, generation = obj.get("status") or {}, meta(obj).get("generation")
    seen = status.get("observedGeneration")
    if isinstance(seen, int) and isinstance(generation, int) and seen < generation:
        return "its controller has not yet seen the last change"
    if obj.get("kind") in {"Deployment", "StatefulSet", "Rollout"}:
        wanted = deep(obj, "spec", "replicas")
        updated = status.get("updatedReplicas") or 0
        if isinstance(wanted, int) and updated < wanted:
            return f"a rollout is under way: {updated} of {wanted} replicas are updated"
    return None


def _gitops(obj: Object, intent: Intent | None) -> Iterator[tuple[str, str]]:
    tool = kept_by(obj)
    if tool is None:
        return
    if intent is None:
        yield "gitops", f"{shown(obj)} is kept by {tool}"
        return
    for change in intent.changes:
        if change.target.uid != uid(obj):
            continue
        for pointer in change.becomes:
            if _tracked(obj, pointer):
                yield "gitops", f"{tool} keeps {pointer} of {shown(obj)} and would put it back"


def kept_by(obj: Object) -> str | None:
    """Return the GitOps tool that keeps an object; None = none, or it was told not to."""
    words = {"label": labels(obj), "annotation": annotations(obj)}
    managers = {str(e.get("manager") or "") for e in meta(obj).get("managedFields") or ()}
    if any(t.where == "off" and _off(t.key, obj) for t in tools()):
        return None
    for tool in tools():
        if tool.where in words and tool.key in words[tool.where]:
            return tool.tool
        if tool.where == "manager" and tool.key in managers:
            return tool.tool
    return None


def _off(rule: str, obj: Object) -> bool:
    key, _, value = rule.partition("=")
    return annotations(obj).get(key, "").lower() == value


def _tracked(obj: Object, pointer: str) -> bool:
    """A field that is absent, or that the applied manifest does not name, is not in Git."""
    if at(obj, pointer) is MISSING:
        return False
    applied = annotations(obj).get(LAST_APPLIED)
    if applied is None:
        return True
    try:
        return at(json.loads(applied), pointer) is not MISSING
    except ValueError:
        return True


def _autoscalers(obj: Object, cluster: Cluster, intent: Intent | None) -> Iterator[tuple[str, str]]:
    for scaler in scalers.of(obj, cluster):
        kind = str(scaler.get("kind"))
        if intent is not None and (
            (kind == scalers.HPA and _to_zero(intent, obj)) or _written(intent, scaler)
        ):
            continue
        if kind == scalers.KEDA_OBJECT and scalers.paused_at(scaler) == "0":
            continue
        yield "autoscaler", f"{shown(scaler)} scales {shown(obj)}"


def _to_zero(intent: Intent, obj: Object) -> bool:
    return any(
        c.target.uid == uid(obj) and c.becomes.get("/spec/replicas") == 0 for c in intent.changes
    )


def _written(intent: Intent, obj: Object) -> bool:
    return any(c.target.uid == uid(obj) for c in intent.changes)


def _kueue(obj: Object, cluster: Cluster, intent: Intent | None) -> Iterator[tuple[str, str]]:
    from actions.reclaim import kueue  # noqa: PLC0415  (executors read owners too)

    if intent is None or not kueue.reverts(obj):
        return
    if any(group(c.target.api_version) == KUEUE for c in intent.changes):
        return
    if kueue.managed(obj, cluster):
        yield "kueue", f"Kueue keeps {shown(obj)}: its Workload has to be switched"
