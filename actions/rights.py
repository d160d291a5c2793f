"""Generate the roles of each executor from the rights it declares, and check them with the API.

There is one small ClusterRole per executor. A site then grants only what its policies use, and
binds it only in the namespaces they allow. Nothing here ever grants `delete`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from actions.cluster.allocations import CLAIMS, OPTIONAL_RIGHTS
from actions.cluster.budgets import GROUP, RESOURCE
from actions.reclaim.evicting import RESTORE_RIGHTS, RESTORE_ROLE
from actions.reclaim.kinds import read_kinds
from actions.reclaim.subjects import get_plural
from actions.snapshots.snapshotter import RIGHTS as SNAPSHOT
from fallow.errors import UsageError
from fallow.protocols import Executor, Right
from fallow.resources import read_table

LOOP = (
    Right("", "events", ("create",)),
    Right("", "namespaces", ("get",)),
    Right("", "pods", ("get", "list")),
    Right("apps", "replicasets", ("get",)),
    Right("autoscaling", "horizontalpodautoscalers", ("list",)),
    Right(GROUP, RESOURCE, ("list",)),
    Right("keda.sh", "scaledobjects", ("list",)),
    CLAIMS,
    *OPTIONAL_RIGHTS,
)
"""The rights that the loop needs wherever it acts: owners, protections, obstacles, budgets,
pods, annotations."""
OWN = (
    Right("coordination.k8s.io", "leases", ("get", "create", "patch")),
    Right("", "configmaps", ("get", "create", "patch")),
)
"""The rights in its own namespace: the lease of the one actor, and the switch that freezes all."""
CANARY = (
    *(right for right in LOOP if right not in OPTIONAL_RIGHTS),
    Right("apps", "deployments", ("get", "create", "patch")),
    Right("apps", "deployments/scale", ("patch",)),
)
"""The rights in the canary's own namespace, where there is a canary: to make one Deployment, to
stop and to restore it."""
OWN_ROLES = frozenset({"fallow-own", "fallow-canary"})
"""The Roles in namespaces of Fallow's own; all others are ClusterRoles."""
VERBS = ("get", "list", "watch", "create", "patch")
"""Every verb that a right may name; update and delete are not among them."""


class RightCheck(msgspec.Struct, frozen=True):
    """The API's answer about one right."""

    role: str
    group: str
    resource: str
    verb: str
    namespace: str
    allowed: bool
    why: str = ""


@cache
def list_cluster_scoped() -> frozenset[tuple[str, str]]:
    """Return the group and resource of objects without a namespace: no RoleBinding grants them."""
    rows = read_table("actions", "cluster_scoped.csv")
    return frozenset((row["group"], row["resource"]) for row in rows)


def annotate_rights() -> tuple[Right, ...]:
    """Return the rights for annotations on the workload, which a site may leave out."""
    resources = sorted(
        {(k.group, get_plural(n)) for n, k in read_kinds().items() if k.switch != "hub"}
    )
    return tuple(Right(group, resource, ("patch",)) for group, resource in resources)


def list_roles(executors: Mapping[str, Executor]) -> dict[str, tuple[Right, ...]]:
    """Return the rights of each role by its name: one for each executor, and the loop's."""
    by_executor = {
        f"fallow-act-{name}": tuple(e.rights) for name, e in executors.items() if e.rights
    }
    by_part = {
        "fallow-actor": LOOP,
        "fallow-annotate": annotate_rights(),
        "fallow-snapshot": SNAPSHOT,
        RESTORE_ROLE: RESTORE_RIGHTS,
    }
    for name, rights in (by_executor | by_part).items():
        if unknown_verbs := sorted({v for r in rights for v in r.verbs} - set(VERBS)):
            raise UsageError(
                f"{name} asks for {', '.join(unknown_verbs)}: legal are {', '.join(VERBS)}"
            )
    return dict(sorted((by_executor | by_part).items()))


def build_rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return rights as rules of a role: one for each group and set of verbs."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), set()).update(right.verbs)
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), verb_set in sorted(verbs.items()):
        key = group, tuple(v for v in VERBS if v in verb_set)
        grouped.setdefault(key, []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(verb_set)}
        for (group, verb_set), resources in grouped.items()
    ]


def build_manifests(executors: Mapping[str, Executor]) -> list[dict[str, Any]]:
    """Return the ClusterRoles of executors and the loop, and the Roles of its own namespaces."""
    labels = {"app.kubernetes.io/part-of": "fallow"}
    cluster_roles = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": build_rules(rights),
        }
        for name, rights in list_roles(executors).items()
    ]
    own_role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "fallow-own", "namespace": "fallow", "labels": labels},
        "rules": build_rules(OWN),
    }
    canary_role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "fallow-canary", "namespace": "fallow-canary", "labels": labels},
        "rules": build_rules(CANARY),
    }
    return [*cluster_roles, own_role, canary_role]


def check_rights(
    review: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    rights: Mapping[str, Sequence[Right]],
    namespaces: Sequence[str],
) -> list[RightCheck]:
    """Check our rights with the API (SelfSubjectAccessReview), for each right and namespace.

    `review` posts a review and returns the answer; no namespace = the whole cluster, which is also
    where objects without a namespace are.
    """
    answers: dict[tuple[str, str, str, str], tuple[bool, str]] = {}
    proofs = []
    for role, role_rights in rights.items():
        for right in role_rights:
            is_wide = (right.group, right.resource) in list_cluster_scoped()
            for namespace in ("",) if is_wide else namespaces or ("",):
                for verb in right.verbs:
                    key = right.group, right.resource, verb, namespace
                    if key not in answers:
                        answers[key] = _review(review, *key)
                    allowed, why = answers[key]
                    proofs.append(RightCheck(role, *key, allowed, why))
    return proofs


def _review(
    review: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    group: str,
    resource: str,
    verb: str,
    namespace: str,
) -> tuple[bool, str]:
    name, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                **{k: v for k, v in attributes.items() if v},
                **({"namespace": namespace} if namespace else {}),
            }
        },
    }
    status = review(body).get("status") or {}
    return bool(status.get("allowed")), str(status.get("reason") or "")
