"""Run `fallow doctor --actions`: name the cluster, and review our permissions there."""

from collections.abc import Sequence
from typing import Any

from actions import executors
from actions.admission.controls import review_controls
from actions.admission.manifests import REMAINDER
from actions.admission.scopes import list_role_writes
from actions.cluster.access import post_review
from actions.cluster.client import KubeClient
from actions.hints.admission import build_manifests
from actions.reclaim.kinds import read_kinds
from actions.reclaim.subjects import get_plural
from actions.rights import (
    CANARY,
    OWN,
    OWN_ROLES,
    RightCheck,
    check_rights,
    list_cluster_scoped,
    list_roles,
)
from fallow.kube.api import ApiConnection, connect
from fallow.protocols import Right
from fallow.resources import read_table
from fallow.settings import Settings


def list_reader_rights() -> tuple[Right, ...]:
    """Return what collecting reads: `reads.csv`, and every kind that may own a GPU pod."""
    listed = [
        Right(row["group"], row["resource"], tuple(row["verbs"].split()))
        for row in read_table("collectors.kube", "reads.csv")
    ]
    owners = [
        Right(kind.group, get_plural(name), ("get", "list"))
        for name, kind in read_kinds().items()
        if kind.switch != "hub"
    ]
    return (*listed, *owners)


def review_access(
    settings: Settings, namespaces: Sequence[str] = (), api: ApiConnection | None = None
) -> list[dict[str, Any]]:
    """Return the cluster, a row per role with the rights that it lacks, and one per control.

    The review covers each given namespace, or the whole cluster without one.

    Raises:
        SettingsError: no such context.
        AuthError: the API server refuses our credentials.
        TemporaryError: the API server is not reachable.
    """
    context = settings.actions.context or settings.kubernetes.context
    api = api or connect(context, timeout_s=settings.kubernetes.timeout.total_seconds())
    installed = executors.load_executors()
    rights = list_roles(installed)
    proofs = check_rights(lambda body: post_review(api, body), rights, namespaces)
    own = check_rights(
        lambda body: post_review(api, body), {"fallow-own": OWN}, [settings.actions.lease.namespace]
    )
    canary = settings.actions.canary
    if canary.image:
        own += check_rights(
            lambda body: post_review(api, body), {"fallow-canary": CANARY}, [canary.namespace]
        )
    where = context or "the current context, or the pod's own account"
    first = {
        "check": "cluster",
        "status": "ok",
        "finding": f"{settings.cluster}: {api.host} ({where})",
        "next_step": "is it the one you mean? actions.context names another",
    }
    names = dict.fromkeys(p.role for p in (*proofs, *own))
    expected = {
        "admission policies": [*list_role_writes(installed), REMAINDER],
        "precision defaults": [d["metadata"]["name"] for d in build_manifests()],
    }
    controls = review_controls(KubeClient(api, settings.cluster), expected)
    return [
        first,
        *(_build_row(name, [p for p in (*proofs, *own) if p.role == name]) for name in names),
        *(
            {
                "check": state.control,
                "status": state.status,
                "finding": state.finding,
                "next_step": state.next_step,
            }
            for state in controls
        ),
    ]


def _build_row(role: str, proofs: Sequence[RightCheck]) -> dict[str, Any]:
    lacking = [p for p in proofs if not p.allowed]
    if not lacking:
        return {
            "check": role,
            "status": "ok",
            "finding": f"all {len(proofs)} rights are granted",
            "next_step": "",
        }
    examples = [describe_right(p) for p in lacking[:3]]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""  # noqa: PLR2004
    return {
        "check": role,
        "status": "warn" if len(lacking) < len(proofs) else "off",
        "finding": f"may not {', '.join(examples)}{more}",
        "next_step": f"bind {_name_kind(role, lacking)} of deploy/rbac/actor.yaml, or leave it off",
    }


def _name_kind(role: str, lacking: Sequence[RightCheck]) -> str:
    """Return a role with its kind, and by which binding where that of a namespace is not enough."""
    if role in OWN_ROLES:
        return f"Role {role}"
    wide = any((p.group, p.resource) in list_cluster_scoped() for p in lacking)
    return f"ClusterRole {role}{' by a ClusterRoleBinding' if wide else ''}"


def describe_right(proof: RightCheck) -> str:
    """Return a right as a short text."""
    group = f".{proof.group}" if proof.group else ""
    where = f" in {proof.namespace or 'the whole cluster'}"
    return f"{proof.verb} {proof.resource}{group}{where}"
