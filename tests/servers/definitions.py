"""CustomResourceDefinitions of the kinds that others define, by facts of their own definitions.

`foreign_kinds.csv` has the fields that Fallow writes, and those beside them: unknown fields and
wrong types of these kinds are refused. A field is `PATH:TYPE`, then `!` where it is required,
`=DEFAULT` and `~PATTERN`. `[]` in a path is a list's item; `{TYPE}` is a map, `any` takes anything,
`RUN` stands for the run policy that all jobs of Kubeflow's training operator share. Every other
kind of `simulator/kube/resources.csv` takes any field.
"""

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from simulator.kube.kinds import ApiKind, read_builtin_kinds

Object = dict[str, Any]
ROOT = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANY: Object = {"x-kubernetes-preserve-unknown-fields": True}
QUANTITY: Object = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^[+-]?[0-9.]+([KMGTPE]i?|[numk])?$",
}
FIELD = re.compile(
    r"(?P<path>[^:]+):(?P<type>[^!=~]+)(?P<must>!?)(=(?P<default>[^~]+))?(~(?P<pattern>.+))?"
)
RUN_POLICY = (
    "spec.runPolicy.suspend:boolean=false spec.runPolicy.backoffLimit:integer"
    " spec.runPolicy.cleanPodPolicy:string spec.runPolicy.ttlSecondsAfterFinished:integer"
    " spec.runPolicy.activeDeadlineSeconds:integer spec.runPolicy.managedBy:string"
    " spec.runPolicy.schedulingPolicy:any"
)


@cache
def _read_fields() -> dict[str, str]:
    text = (Path(__file__).parent / "foreign_kinds.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {f"{r['kind']}.{r['group']}": r["fields"].replace("RUN", RUN_POLICY) for r in rows}


def build_definitions() -> Iterator[Object]:
    """Yield the definition of every custom kind that Fallow knows."""
    return (_build_definition(kind) for kind in read_builtin_kinds() if kind.custom)


def is_structural(definition: Object) -> bool:
    """Return whether a definition refuses unknown fields."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return not schema.get("x-kubernetes-preserve-unknown-fields")


def build_schema(fields: str) -> Object:
    """Return the structural schema of fields as the table has them."""
    schema: Object = {"type": "object", "properties": {"status": {"type": "object", **ANY}}}
    for text in fields.split():
        field = FIELD.fullmatch(text)
        assert field is not None, text
        *parents, last = field["path"].split(".")
        node = schema
        for part in parents:
            node = _enter(node, part)
        value = _read_type(field["type"])
        if field["default"]:
            value["default"] = yaml.safe_load(field["default"])
            if value.get("type") == "string":
                value["default"] = field["default"]
        if field["pattern"]:
            value["pattern"] = field["pattern"]
        node.setdefault("properties", {})[last] = value
        if field["must"]:
            node.setdefault("required", []).append(last)
    return schema


def _enter(node: Object, part: str) -> Object:
    fields = node.setdefault("properties", {})
    inner: Object = fields.setdefault(part.removesuffix("[]"), {})
    if not part.endswith("[]"):
        inner["type"] = "object"
        return inner
    inner["type"] = "array"
    item: Object = inner.setdefault("items", {"type": "object"})
    return item


def _read_type(text: str) -> Object:
    if text[0] == "{":
        return {"type": "object", "additionalProperties": _read_type(text[1:-1])}
    if text[0] == "[":
        return {"type": "array", "items": _read_type(text[1:-1])}
    return dict({"any": ANY, "quantity": QUANTITY}.get(text) or {"type": text})


def _build_definition(kind: ApiKind) -> Object:
    fields = _read_fields().get(kind.key)
    schema = {"type": "object", **ANY} if fields is None else build_schema(fields)
    parts: Object = {"status": {}} if kind.status else {}
    if kind.scale:
        paths = {"specReplicasPath": kind.scale.spec, "statusReplicasPath": kind.scale.status}
        parts["scale"] = {key: "." + ".".join(path) for key, path in paths.items()}
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == kind.versions[0],
            "schema": {"openAPIV3Schema": schema},
            "subresources": parts,
        }
        for version in kind.versions
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"plural": kind.plural, "kind": kind.kind, "singular": kind.kind.lower()},
            "versions": versions,
        },
    }
