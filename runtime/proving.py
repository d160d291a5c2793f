"""`fallow doctor --actions`: which cluster it would be, and what we may do there."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actions import executors
from actions.rights import OWN, Proof, prove, roles
from fallow.errors import RefusedError
from fallow.kube.api import Api, connect
from fallow.settings import Settings

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ERRORS = 300


def examine(
    settings: Settings, namespaces: Sequence[str] = (), api: Api | None = None
) -> list[dict[str, Any]]:
    """Return the cluster, and a row for each role: what it may do, and which rights it lacks.

    Asked for each namespace, or for the whole cluster where none is given.

    Raises:
        SettingsError: no such context.
        AuthError: the API server does not take our credentials.
        TemporaryError: it cannot be reached.
    """
    context = settings.actions.context or settings.kubernetes.context
    api = api or connect(context, timeout_s=settings.kubernetes.timeout.total_seconds())
    rights = roles(executors.every())
    proofs = prove(lambda body: ask(api, body), rights, namespaces)
    own = prove(
        lambda body: ask(api, body), {"fallow-own": OWN}, [settings.actions.lease.namespace]
    )
    where = context or "the current context, or the pod's own account"
    first = {
        "check": "cluster",
        "status": "ok",
        "finding": f"{settings.cluster}: {api.host} ({where})",
        "next_step": "is it the one you mean? actions.context names another",
    }
    names = dict.fromkeys(p.role for p in (*proofs, *own))
    return [first, *(_row(name, [p for p in (*proofs, *own) if p.role == name]) for name in names)]


def _row(role: str, proofs: Sequence[Proof]) -> dict[str, Any]:
    lacking = [p for p in proofs if not p.allowed]
    if not lacking:
        return {
            "check": role,
            "status": "ok",
            "finding": f"all {len(proofs)} rights are granted",
            "next_step": "",
        }
    shown = [words(p) for p in lacking[:3]]
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""  # noqa: PLR2004
    return {
        "check": role,
        "status": "warn" if len(lacking) < len(proofs) else "off",
        "finding": f"may not {', '.join(shown)}{more}",
        "next_step": f"bind ClusterRole {role} of deploy/rbac/actor.yaml, or leave it off",
    }


def words(proof: Proof) -> str:
    """Return a right as people say it."""
    group = f".{proof.group}" if proof.group else ""
    where = f" in {proof.namespace}" if proof.namespace else ""
    return f"{proof.verb} {proof.resource}{group}{where}"


def ask(api: Api, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Post a review of one right and return the answer.

    Raises:
        RefusedError: the API does not say.
        TemporaryError: no answer.
    """
    reply = api.write("POST", REVIEWS, body, content_type="application/json")
    if reply.code >= _ERRORS:
        raise RefusedError(f"{api.host} does not say what we may do: HTTP {reply.code}")
    return msgspec.json.decode(reply.body, type=dict[str, Any])
