"""Evict a bare pod, which has no other way to be stopped.

This is allowed only where its owner or namespace opted in.
"""

from typing import Any, ClassVar

from actions.cluster.allocations import CLAIMS
from actions.cluster.literal_values import drop_last_applied, find_literals
from actions.reclaim.subjects import LiveWorkload, read_workload, to_freed_pods
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import (
    get_annotations,
    get_labels,
    get_namespace,
    get_path,
    has_ended,
    name,
)
from fallow.protocols import ClusterReader, Right
from fallow.stored_annotations import MIRROR

OPT_IN = "fallow.dev/evict"
GROUPS = ("kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling")
"""Labels of pods that run together or not at all."""
_TOKEN = "kube-api-access-"  # noqa: S105  (the name that admission gives to a volume)
_SERVERS = ("nodeName", "priority", "preemptionPolicy", "serviceAccount", "ephemeralContainers")
"""Fields that the API server fills in, and would reject or misread in a new pod."""
_TIES = ("ownerReferences", "finalizers")
RESTORE = "restore"
"""The parameter with which a policy asks that the undo creates a pod again."""
RESTORE_ROLE = "fallow-restore-pods"
RESTORE_RIGHTS = (Right("", "pods", ("create",)),)
"""What the undo of an eviction needs. It is a role of its own: who may create pods may run
anything, and only policies that restore bare pods need it."""
MAX_LITERALS = 3
"""Places of literal values that a refusal names."""


class EvictExecutor:
    """Evict a bare pod through the Eviction API, which respects disruption budgets."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Pod"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"evict"})
    verbs: ClassVar[frozenset[str]] = frozenset({"evict"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "pods", ("get", "list")),
        Right("", "pods/eviction", ("create",)),
        Right("", "namespaces", ("get",)),
        CLAIMS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the eviction; its undo creates a pod from the same manifest.

        The eviction carries no precondition: one that fails would still use up the budget.

        Raises:
            RefusedError: the policy does not ask to restore pods, no opt-in, it is no bare pod, or
                its manifest has literal values that may be secrets and so cannot be
                stored for the undo.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        pod = workload.obj
        if has_ended(pod):
            raise RefusedError(f"{workload} is over: {get_path(pod, 'status', 'phase')}")
        if MIRROR in get_annotations(pod):
            raise RefusedError(f"{workload} is a static pod: it belongs to its node")
        if group := next((g for g in GROUPS if g in get_labels(pod)), None):
            raise RefusedError(f"{workload} is one of a group ({group}): the others would hang")
        if decision.parameters.get(RESTORE) is not True:
            raise RefusedError(
                f"{workload} is a bare pod, and policy {decision.policy} does not ask to create it "
                f"again on undo: write act: {{do: evict, with: {{{RESTORE}: true}}}} and bind "
                f"{RESTORE_ROLE}"
            )
        _require_opt_in(workload, cluster)
        _refuse_literals(workload)
        eviction_path = f"{workload.path}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name(pod), "namespace": get_namespace(pod)},
        }
        evict = Change(
            workload.target,
            "POST",
            eviction_path,
            body,
            content_type="application/json",
            read=workload.path,
            was={"/metadata/uid": workload.target.uid},
            becomes={"/metadata/uid": None},
            guarded=False,
        )
        frees = to_freed_pods((pod,), cluster)
        recreate = Change(
            workload.later,
            "POST",
            workload.path.rpartition("/")[0],
            build_manifest(pod),
            content_type="application/json",
            read=workload.path,
            was={"/metadata/name": None},
            becomes={"/metadata/name": name(pod)},
            guarded=False,
            after=frees,
        )
        return Intent(
            target=workload.target,
            capability="evict",
            changes=(evict,),
            undo=(recreate,),
            frees=frees,
            lost="everything outside its volumes: the undo is a new pod of the same manifest",
        )


def _require_opt_in(workload: LiveWorkload, cluster: ClusterReader) -> None:
    path = cluster.collection("Namespace", "")
    namespace = cluster.get(f"{path}/{workload.target.namespace}")
    for obj in (workload.obj, *(() if namespace is None else (namespace,))):
        value = get_annotations(obj).get(OPT_IN) or get_labels(obj).get(OPT_IN) or ""
        if value.lower() == "false":
            break
        if value.lower() == "true":
            return
    raise RefusedError(
        f"{workload} is a bare pod, and its owner did not opt in to eviction",
        hint=f"annotate it or its namespace with {OPT_IN}=true",
    )


def _refuse_literals(workload: LiveWorkload) -> None:
    """Refuse a pod whose manifest cannot be stored: then nothing could create it again."""
    places = find_literals({k: workload.obj.get(k) for k in ("metadata", "spec")})
    if not places:
        return
    more = "" if len(places) <= MAX_LITERALS else f" and {len(places) - MAX_LITERALS} more"
    raise RefusedError(
        f"{workload} is a bare pod with literal values ({', '.join(places[:MAX_LITERALS])}{more}): "
        "Fallow stores no such value, so no undo could create the pod again; take the values from "
        "a Secret or ConfigMap (valueFrom, envFrom), or run the pod under a Job or Deployment"
    )


def build_manifest(pod: Any) -> dict[str, Any]:
    """Return the manifest that creates the same pod again, without fields that servers set."""
    spec = {k: v for k, v in pod["spec"].items() if k not in _SERVERS}
    if "volumes" in spec:
        spec["volumes"] = [v for v in spec["volumes"] if not v["name"].startswith(_TOKEN)]
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [_drop_token(c) for c in spec[key]]
    notes = drop_last_applied(get_annotations(pod))
    marks = {k: v for k, v in (("labels", get_labels(pod)), ("annotations", notes)) if v}
    metadata = {
        "name": name(pod),
        "namespace": get_namespace(pod),
        **{k: dict(v) for k, v in marks.items()},
        # Without them nobody collects the pod, or waits for its end, as before.
        **{k: pod["metadata"][k] for k in _TIES if pod["metadata"].get(k)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _drop_token(container: dict[str, Any]) -> dict[str, Any]:
    mounts = container.get("volumeMounts")
    if mounts is None:
        return container
    mounts_kept = [m for m in mounts if not m["name"].startswith(_TOKEN)]
    return {**container, "volumeMounts": mounts_kept}
