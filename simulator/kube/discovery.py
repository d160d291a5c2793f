"""Answer which groups, versions and resources are served."""

from typing import Any

from simulator.kube.kinds import RESIZE_SINCE, ApiKind, KindCatalog
from simulator.kube.status import build_no_such_path

Object = dict[str, Any]

_VERBS = ["create", "delete", "get", "list", "patch", "watch"]
REVIEWS = ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")


def answer(catalog: KindCatalog, parts: list[str], host: str) -> Object | None:
    """Return the response to a discovery request; None if the path is no such request.

    Raises:
        ApiError: 404 no such group or version.
    """
    match parts:
        case ["version"]:
            return _build_version(catalog.version)
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
            entry = {"kind": "APIVersions", "versions": ["v1"]}
            return {**entry, "serverAddressByClientCIDRs": addresses}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in _build_groups(catalog).items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name]:
            return {"kind": "APIGroup", "apiVersion": "v1", **_build_group(catalog, name)}
        case ["api", version] | ["apis", _, version]:
            return _build_resources(catalog, parts[1] if parts[0] == "apis" else "", version)
    return None


def _build_version(version: str) -> Object:
    major, minor = version.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{version}.2+fallow",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-11-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _build_group(catalog: KindCatalog, name: str) -> Object:
    versions = _build_groups(catalog).get(name)
    if not versions:
        raise build_no_such_path()
    return _group(name, versions)


def _build_groups(catalog: KindCatalog) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {REVIEWS[0]: [REVIEWS[1]]}
    for kind in catalog:
        if kind.group:
            versions = out.setdefault(kind.group, [])
            versions += [v for v in kind.versions if v not in versions]
    return out


def _group(name: str, versions: list[str]) -> Object:
    group_versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": group_versions, "preferredVersion": group_versions[0]}


def _build_resources(catalog: KindCatalog, group: str, version: str) -> Object:
    served = [k for k in catalog if k.group == group and version in k.versions]
    resources = [resource for kind in served for resource in _split_path(kind, catalog)]
    if (group, version) == REVIEWS[:2]:
        entry = {"name": REVIEWS[2], "singularName": "", "namespaced": False, "kind": REVIEWS[3]}
        resources.append({**entry, "verbs": ["create"]})
    if not resources:
        raise build_no_such_path()
    name = f"{group}/{version}" if group else version
    kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name}
    return {**kind, "resources": resources}


def _split_path(kind: ApiKind, catalog: KindCatalog) -> list[Object]:
    whole: Object = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
    }
    if kind.short:
        whole["shortNames"] = list(kind.short)
    out = [whole]

    def part(name: str, kind_name: str, verbs: list[str], **more: str) -> None:
        entry = {"name": f"{kind.plural}/{name}", "singularName": "", "kind": kind_name}
        out.append({**entry, "namespaced": kind.namespaced, "verbs": verbs, **more})

    if kind.status:
        part("status", kind.kind, ["get", "patch"])
    if kind.scale is not None:
        verbs = ["get", "patch"]
        part("scale", "Scale", verbs, group="autoscaling", version="v1")
    if kind.key == "Pod":
        part("eviction", "Eviction", ["create"], group="policy", version="v1")
    if kind.key == "Pod" and catalog.has(RESIZE_SINCE):
        part("resize", "Pod", ["get", "patch"])
    return out
