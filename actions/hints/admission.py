"""Build admission policies that set environment defaults in pods whose owner set a format label.

Fallow installs none of this and needs no permission for it: platform engineers review and apply the
manifests. A pod template without the label is never changed. A variable that a container sets
itself is kept. A pod is admitted whatever fails.
"""

from functools import cache
from typing import Any

import msgspec

from fallow.resources import read_table

API = "admissionregistration.k8s.io/v1"
"""Stable from Kubernetes 1.36 on (KEP-3962)."""
LABEL = "fallow.dev/precision"
"""Label on a pod, set by its owner: the format it may use."""
_NEVER = ("kube-system", "kube-public", "kube-node-lease")
# Admission does not see the class of a claim; a variable without a GPU changes nothing.
_GPU = (
    "has(c.resources) && (has(c.resources.limits) && "
    "c.resources.limits.exists(r, r.startsWith('nvidia.com/')) || "
    "has(c.resources.claims) && size(c.resources.claims) > 0)"
)
_SIDECAR = "has(c.restartPolicy) && c.restartPolicy == 'Always' && "


class Default(msgspec.Struct, frozen=True):
    """A variable that lets a framework use a format."""

    format: str
    variable: str
    value: str
    framework: str
    source: str


@cache
def read_defaults() -> tuple[Default, ...]:
    """Return the rows of `admission.csv`."""
    return tuple(Default(**row) for row in read_table("actions.hints", "admission.csv"))


def build_manifests() -> list[dict[str, Any]]:
    """Return a policy and its binding for each format."""
    formats = dict.fromkeys(row.format for row in read_defaults())
    return [
        document for name in formats for document in (_build_policy(name), _build_binding(name))
    ]


def build_expression(row: Default) -> str:
    """Return the CEL that adds the variable to GPU containers that do not set it."""
    condition = f"{_GPU} && !(has(c.env) && c.env.exists(e, e.name == '{row.variable}'))"
    setting = f"name: '{row.variable}', value: '{row.value}'"

    def add(field: str, more: str = "") -> str:
        kind = f"Object.spec.{field}"
        change = f"{kind}{{name: c.name, env: [{kind}.env{{{setting}}}]}}"
        return f"object.spec.{field}.filter(c, {more}{condition}).map(c, {change})"

    sidecars = f"has(object.spec.initContainers) ? {add('initContainers', _SIDECAR)} : []"
    spec = f"containers: {add('containers')}, initContainers: {sidecars}"
    return f"Object{{spec: Object.spec{{{spec}}}}}"


def _build_policy(name: str) -> dict[str, Any]:
    rows = [row for row in read_defaults() if row.format == name]
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    return {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": _build_metadata(name),
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {LABEL: name}},
                "resourceRules": [rule],
            },
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": build_expression(row)},
                }
                for row in rows
            ],
        },
    }


def _build_binding(name: str) -> dict[str, Any]:
    selector = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*_NEVER]}
    return {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": _build_metadata(name),
        "spec": {
            "policyName": f"fallow-precision-{name}",
            "matchResources": {"namespaceSelector": {"matchExpressions": [selector]}},
        },
    }


def _build_metadata(name: str) -> dict[str, Any]:
    part = {"app.kubernetes.io/part-of": "fallow"}
    return {"name": f"fallow-precision-{name}", "labels": part}
