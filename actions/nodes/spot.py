"""Let eligible work run on spot: a preference and a toleration in its template, not a bid.

    jobs and batches      spot preferred; on demand where there is none
    replicated services   replicas spread evenly over both capacity types, so that half of them stay
                          when spot goes

A template that changes starts its pods anew, as any rollout does.
"""

from typing import Any, ClassVar

import msgspec

from actions.cluster.objects import Object, deep
from actions.cluster.pointers import MISSING, at
from actions.reclaim.subjects import Subject, rights, subject
from fallow.acting import Change, Decision, Intent, Target
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

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
    """Give an owner's template a toleration of spot nodes and a preference for them."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Deployment", "StatefulSet", "Job", "CronJob"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"spot"})
    verbs: ClassVar[frozenset[str]] = frozenset(VERBS)
    rights: ClassVar[tuple[Right, ...]] = rights("Deployment", "StatefulSet", "Job", "CronJob")

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return one JSON patch of the template, whose tests hold it to what was read.

        Raises:
            RefusedError: it is gone, runs on spot already, or is a Job that runs: its template
                cannot be changed.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        root = TEMPLATE if found.kind.kind != "CronJob" else f"/spec/jobTemplate{TEMPLATE}"
        if found.kind.kind == "Job" and not deep(found.obj, "spec", "suspend"):
            raise RefusedError(
                f"{found} runs: a Job's template is fixed until it is suspended",
                hint="its owner sets this where the Job is made, or suspend it first",
            )
        if at(found.obj, root) is MISSING:
            raise RefusedError(f"{found} has no pod template")
        served = found.kind.kind in SERVED
        if served:
            _enough(decision, found)
        wanted = _wanted(found.obj, root, spread=served)
        if not wanted:
            raise RefusedError(f"{found} prefers spot already")
        change = _patch(found.target, found.path, found.obj, wanted)
        undo = _back(found.later, change)
        return Intent(
            target=found.target,
            capability="spot",
            changes=(change,),
            undo=(undo,),
            lost="progress since the last checkpoint when its pods start anew",
            notes=("no bid: a maximum price only caps; price and capacity decide since 2017",),
        )


def _enough(decision: Decision, found: Subject) -> None:
    """Refuse to spread replicas evenly where more than half must stay on demand.

    Raises:
        RefusedError: too few would be left when spot goes.
    """
    many = deep(found.obj, "spec", "replicas")
    many = 1 if many is None else int(many)
    base = int(decision.parameters.get("on_demand_replicas", many))
    if many < 2 or base > many // 2:  # noqa: PLR2004  (one replica has nobody to stand in)
        raise RefusedError(
            f"{found} needs {base} of its {many} replicas on demand: an even spread leaves "
            f"{many // 2}"
        )


def _wanted(obj: Object, root: str, *, spread: bool) -> dict[str, list[Any]]:
    """Return the lists of the template as they should be, by pointer; only those that change."""
    lists: dict[str, Any] = {"/tolerations": TOLERATION}
    if spread:
        lists[SPREAD] = {
            "maxSkew": 1,
            "topologyKey": CAPACITY,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": deep(obj, "spec", "selector"),
        }
    else:
        lists[PREFERENCES] = PREFERRED
    out = {}
    for pointer, item in lists.items():
        now = at(obj, root + pointer)
        have = [] if now is MISSING else list(now)
        if item not in have:
            out[root + pointer] = [*have, item]
    return out


def _patch(target: Target, path: str, obj: Object, wanted: dict[str, list[Any]]) -> Change:
    body: list[dict[str, Any]] = []
    was: dict[str, Any] = {}
    becomes: dict[str, Any] = {}
    for pointer, value in wanted.items():
        now = at(obj, pointer)
        if now is not MISSING:
            body.append({"op": "test", "path": pointer, "value": now})
            was[pointer], becomes[pointer] = now, value
            body.append({"op": "replace", "path": pointer, "value": value})
            continue
        top, made = _absent(obj, pointer, value)
        was[top], becomes[top] = None, made
        body.append({"op": "add", "path": top, "value": made})
    return Change(target, "PATCH", path, body, content_type=JSON_PATCH, was=was, becomes=becomes)


def _absent(obj: Object, pointer: str, value: Any) -> tuple[str, Any]:
    """Return the highest absent part of a pointer, and what to put there."""
    parts = pointer.split("/")
    made = value
    while at(obj, "/".join(parts[:-1])) is MISSING:
        made = {parts.pop(): made}
    return "/".join(parts), made


def _back(later: Target, change: Change) -> Change:
    """Return the patch that puts back what was, as long as what we left is still there."""
    body: list[dict[str, Any]] = []
    for pointer, value in change.becomes.items():
        old = change.was[pointer]
        body.append({"op": "test", "path": pointer, "value": value})
        body.append(
            {"op": "remove", "path": pointer}
            if old is None
            else {"op": "replace", "path": pointer, "value": old}
        )
    return msgspec.structs.replace(
        change, target=later, body=body, was=change.becomes, becomes=change.was
    )
