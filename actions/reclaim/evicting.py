"""A bare pod can only be evicted, and only where its owner or namespace opted in."""

from typing import Any, ClassVar

from actions.cluster.allocations import CLAIMS
from actions.cluster.objects import annotations, deep, ended, labels, name, namespace
from actions.reclaim.subjects import Subject, freed, subject
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

OPT_IN = "fallow.dev/evict"
GROUPS = ("kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling")
"""Labels of pods that run together or not at all."""
_TOKEN = "kube-api-access-"  # noqa: S105  (the name that admission gives to a volume)
_SERVERS = ("nodeName", "priority", "preemptionPolicy", "serviceAccount")
"""Fields that the API server fills in, and would refuse or misread on the way back."""


class EvictExecutor:
    """Evict a bare pod through the Eviction API, which heeds disruption budgets."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Pod"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"evict"})
    verbs: ClassVar[frozenset[str]] = frozenset({"evict"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "pods", ("get", "list", "create")),
        Right("", "pods/eviction", ("create",)),
        Right("", "namespaces", ("get",)),
        CLAIMS,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the eviction; its undo is a new pod of the same manifest.

        The eviction carries no precondition: one that fails would still use up the budget.

        Raises:
            RefusedError: nobody opted in, or it is no bare pod.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        pod = found.obj
        if ended(pod):
            raise RefusedError(f"{found} is over: {deep(pod, 'status', 'phase')}")
        if "kubernetes.io/config.mirror" in annotations(pod):
            raise RefusedError(f"{found} is a static pod: it belongs to its node")
        if group := next((g for g in GROUPS if g in labels(pod)), None):
            raise RefusedError(f"{found} is one of a group ({group}): the others would hang")
        _opted_in(found, cluster)
        where = f"{found.path}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name(pod), "namespace": namespace(pod)},
        }
        evict = Change(
            found.target,
            "POST",
            where,
            body,
            content_type="application/json",
            read=found.path,
            was={"/metadata/uid": found.target.uid},
            becomes={"/metadata/uid": None},
            guarded=False,
        )
        again = Change(
            found.later,
            "POST",
            found.path.rpartition("/")[0],
            manifest(pod),
            content_type="application/json",
            read=found.path,
            was={"/metadata/name": None},
            becomes={"/metadata/name": name(pod)},
            guarded=False,
        )
        return Intent(
            target=found.target,
            capability="evict",
            changes=(evict,),
            undo=(again,),
            frees=freed((pod,), cluster),
            lost="everything outside its volumes: the undo is a new pod of the same manifest",
        )


def _opted_in(found: Subject, cluster: Cluster) -> None:
    path = cluster.collection("Namespace", "")
    space = cluster.get(f"{path}/{found.target.namespace}")
    for obj in (found.obj, *(() if space is None else (space,))):
        said = annotations(obj).get(OPT_IN) or labels(obj).get(OPT_IN) or ""
        if said.lower() == "false":
            break
        if said.lower() == "true":
            return
    raise RefusedError(
        f"{found} is a bare pod, and nobody opted in to eviction",
        hint=f"annotate it or its namespace with {OPT_IN}=true",
    )


def manifest(pod: Any) -> dict[str, Any]:
    """Return what to post to have such a pod again, without what servers had filled in."""
    spec = {k: v for k, v in pod["spec"].items() if k not in _SERVERS}
    if "volumes" in spec:
        spec["volumes"] = [v for v in spec["volumes"] if not v["name"].startswith(_TOKEN)]
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [_untold(c) for c in spec[key]]
    said = {k: v for k, v in (("labels", labels(pod)), ("annotations", annotations(pod))) if v}
    head = {"name": name(pod), "namespace": namespace(pod), **{k: dict(v) for k, v in said.items()}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}


def _untold(container: dict[str, Any]) -> dict[str, Any]:
    mounts = container.get("volumeMounts")
    if mounts is None:
        return container
    kept = [m for m in mounts if not m["name"].startswith(_TOKEN)]
    return {**container, "volumeMounts": kept}
