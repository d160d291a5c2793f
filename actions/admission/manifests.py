"""Build a ValidatingAdmissionPolicy and its binding for each role of the actor.

They bind the actor's accounts and nobody else. Where two roles write the same resource, each of
their policies allows what either may write: the API server does not know for which role a request
is made. Of several that deny, the server shows one: each names the write, why it is refused, and
every role that has this right. The last policy denies every write that no role has.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actions.admission.expressions import (
    ANNOTATION_VARIABLES,
    VARIABLES,
    allow_scope,
    build_reasons,
    format_resource,
    quote,
)
from actions.admission.scopes import Scope, Write, name_sources

API = "admissionregistration.k8s.io/v1"
"""Stable from Kubernetes 1.30 on."""
REMAINDER = "fallow-other-writes"
"""The policy of everything that no role names."""
REVIEWS = "authorization.k8s.io"
"""The group of access reviews, which are sent as writes and change nothing."""
REFUSAL = "Fallow may not "
FINGERPRINTS = "fallow.dev/policies"


def build_manifests(
    role_writes: Mapping[str, Sequence[Write]],
    scopes: Sequence[Scope],
    accounts: Sequence[str],
    fingerprints: str = "",
) -> list[dict[str, Any]]:
    """Return a policy and a binding for each role, and for what no role names.

    `accounts`: service accounts as NAMESPACE/NAME.
    """
    documents = []
    holders: dict[Write, list[str]] = {}
    for role, writes in role_writes.items():
        for write in writes:
            holders.setdefault(write, []).append(role)

    def explain(write: Write) -> str:
        sources = ", ".join(name_sources([s for s in scopes if write in s.writes]))
        reason = f"not named by {sources}" if sources else "no policy uses this right"
        return f"{reason}; roles that have it: {', '.join(holders[write])}"

    for role, writes in role_writes.items():
        resources = frozenset((write.group, write.resource) for write in writes)
        rules = [
            _build_rule(group, [resource for g, resource in sorted(resources) if g == group])
            for group in sorted({group for group, _ in resources})
        ]
        named = [narrow for scope in scopes if (narrow := _narrow(scope, resources)).writes]
        expression = " || ".join(allow_scope(scope) for scope in named) or "false"
        reasons = build_reasons(
            (write for write in holders if (write.group, write.resource) in resources), explain
        )
        documents += _build_pair(
            role, rules, expression, reasons, accounts=accounts, fingerprints=fingerprints
        )
    resources = frozenset((w.group, w.resource) for writes in role_writes.values() for w in writes)
    names = ", ".join(quote(format_resource(*resource)) for resource in sorted(resources))
    expression = f"request.resource.group == {quote(REVIEWS)} || variables.resource in [{names}]"
    documents += _build_pair(
        REMAINDER,
        [_build_rule("*", ["*/*"])],
        expression,
        "{}",
        accounts=accounts,
        fingerprints=fingerprints,
    )
    return documents


def _narrow(scope: Scope, resources: frozenset[tuple[str, str]]) -> Scope:
    writes = tuple(w for w in scope.writes if (w.group, w.resource) in resources)
    return msgspec.structs.replace(scope, writes=writes)


def _build_rule(group: str, resources: Sequence[str]) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": list(resources),
    }


def _build_pair(
    role: str,
    rules: list[dict[str, Any]],
    expression: str,
    reasons: str,
    *,
    accounts: Sequence[str],
    fingerprints: str,
) -> list[dict[str, Any]]:
    names = [f"system:serviceaccount:{account.replace('/', ':')}" for account in accounts]
    usernames = ", ".join(map(quote, names))
    variables = VARIABLES | (ANNOTATION_VARIABLES if "variables.before" in expression else {})
    reason = quote("no role has this right")
    if reasons != "{}":
        variables = variables | {"reasons": reasons}
        chosen = "variables.reasons[variables.write]"
        reason = f"(variables.write in variables.reasons ? {chosen} : {reason})"
    policy = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _build_metadata(role, fingerprints),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [
                {"name": "actor", "expression": f"request.userInfo.username in [{usernames}]"}
            ],
            "variables": [{"name": n, "expression": text} for n, text in variables.items()],
            "validations": [
                {
                    "expression": expression,
                    "message": "Fallow may not do this: see `fallow policy admission`",
                    "messageExpression": (
                        f"{quote(REFUSAL)} + variables.write + ' ' + variables.space + '/'"
                        f" + variables.name + ': ' + {reason}"
                    ),
                    "reason": "Forbidden",
                }
            ],
        },
    }
    binding = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": _build_metadata(role, fingerprints),
        "spec": {"policyName": role, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _build_metadata(role: str, fingerprints: str) -> dict[str, Any]:
    return {
        "name": role,
        "labels": {"app.kubernetes.io/part-of": "fallow"},
        **({"annotations": {FINGERPRINTS: fingerprints}} if fingerprints else {}),
    }
