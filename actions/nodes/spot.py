"""Let eligible work run on spot: a preference and a toleration in its template.

    jobs and batches      spot preferred; on demand where there is no spot
    replicated services   replicas spread evenly over both capacity types, so that half of them stay
                          when spot nodes are reclaimed

A changed template restarts its pods, as any rollout does.
"""

from typing import Any, ClassVar

import msgspec

from actions.cluster.pointers import MISSING, resolve_pointer
from actions.reclaim.subjects import LiveWorkload, build_rights, read_workload
from fallow.action_models import Change, Decision, Intent, Target
from fallow.errors import RefusedError
from fallow.kube.objects import Object, get_path
from fallow.protocols import ClusterReader, Right

CAPACITY = "karpenter.sh/capacity-type"
TOLERATION = {"key": CAPACITY, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
PREFERRED = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": CAPACITY, "operator": "In", "values": ["spot"]}]},
}
TEMPLATE = "/spec/template/spec"
PREFERENCES = "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = "/topologySpreadConstraints"
JSON_PATCH = "application/json-patch+json"
SERVED = frozenset({"Deployment", "StatefulSet"})
VERBS = (
    "run on spot",
    "run on spot while it keeps its pace, on demand in time",
    "run part of its replicas on spot",
)


class SpotExecutor:
    """Add a toleration of spot nodes and a preference for them to an owner's template."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "StatefulSet", "Job", "CronJob"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"spot"})
    verbs: ClassVar[frozenset[str]] = frozenset(VERBS)
    rights: ClassVar[tuple[Right, ...]] = build_rights(
        "Deployment", "StatefulSet", "Job", "CronJob"
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return one JSON patch of the template, whose `test`s pin the values that were read.

        Raises:
            RefusedError: it is gone, runs on spot already, or is a running Job, whose template
                cannot be changed.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        root = TEMPLATE if workload.kind.kind != "CronJob" else f"/spec/jobTemplate{TEMPLATE}"
        if workload.kind.kind == "Job" and not get_path(workload.obj, "spec", "suspend"):
            raise RefusedError(
                f"{workload} runs: a Job's template is fixed until it is suspended",
                hint="its owner sets this where the Job is made, or suspend it first",
            )
        if resolve_pointer(workload.obj, root) is MISSING:
            raise RefusedError(f"{workload} has no pod template")
        served = workload.kind.kind in SERVED
        if served:
            _require_spread(decision, workload)
        lists_wanted = _build_lists(workload.obj, root, spread=served)
        if not lists_wanted:
            raise RefusedError(f"{workload} prefers spot already")
        change = _patch(workload.target, workload.path, workload.obj, lists_wanted)
        undo = _build_undo(workload.later, change)
        return Intent(
            target=workload.target,
            capability="spot",
            changes=(change,),
            undo=(undo,),
            lost="progress since the last checkpoint when its pods start anew",
            notes=("no bid: a maximum price only caps; price and capacity decide since 2017",),
        )


def _require_spread(decision: Decision, workload: LiveWorkload) -> None:
    """Refuse to spread replicas evenly where more than half must stay on demand.

    Raises:
        RefusedError: too few would be left when spot nodes are reclaimed.
    """
    replicas = get_path(workload.obj, "spec", "replicas")
    replicas = 1 if replicas is None else int(replicas)
    base = int(decision.parameters.get("on_demand_replicas", replicas))
    if replicas < 2 or base > replicas // 2:  # noqa: PLR2004  (one replica has no other to replace it)
        raise RefusedError(
            f"{workload} needs {base} of its {replicas} replicas on demand: an even spread leaves "
            f"{replicas // 2}"
        )


def _build_lists(obj: Object, root: str, *, spread: bool) -> dict[str, list[Any]]:
    """Return the new lists of the template by pointer; only those that change."""
    lists: dict[str, Any] = {"/tolerations": TOLERATION}
    if spread:
        lists[SPREAD] = {
            "maxSkew": 1,
            "topologyKey": CAPACITY,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": get_path(obj, "spec", "selector"),
        }
    else:
        lists[PREFERENCES] = PREFERRED
    changed = {}
    for pointer, item in lists.items():
        current = resolve_pointer(obj, root + pointer)
        items = [] if current is MISSING else list(current)
        if item not in items:
            changed[root + pointer] = [*items, item]
    return changed


def _patch(target: Target, path: str, obj: Object, values: dict[str, list[Any]]) -> Change:
    body: list[dict[str, Any]] = []
    was: dict[str, Any] = {}
    becomes: dict[str, Any] = {}
    for pointer, value in values.items():
        current = resolve_pointer(obj, pointer)
        if current is not MISSING:
            body.append({"op": "test", "path": pointer, "value": current})
            was[pointer], becomes[pointer] = current, value
            body.append({"op": "replace", "path": pointer, "value": value})
            continue
        top, value_to_add = _list_absent(obj, pointer, value)
        was[top], becomes[top] = None, value_to_add
        body.append({"op": "add", "path": top, "value": value_to_add})
    return Change(target, "PATCH", path, body, content_type=JSON_PATCH, was=was, becomes=becomes)


def _list_absent(obj: Object, pointer: str, value: Any) -> tuple[str, Any]:
    """Return the highest absent part of a pointer, and the value to write there."""
    parts = pointer.split("/")
    nested = value
    while resolve_pointer(obj, "/".join(parts[:-1])) is MISSING:
        nested = {parts.pop(): nested}
    return "/".join(parts), nested


def _build_undo(later: Target, change: Change) -> Change:
    """Return the patch that restores the old values, if our values are still there."""
    body: list[dict[str, Any]] = []
    for pointer, value in change.becomes.items():
        before = change.was[pointer]
        body.append({"op": "test", "path": pointer, "value": value})
        body.append(
            {"op": "remove", "path": pointer}
            if before is None
            else {"op": "replace", "path": pointer, "value": before}
        )
    return msgspec.structs.replace(
        change, target=later, body=body, was=change.becomes, becomes=change.was
    )
