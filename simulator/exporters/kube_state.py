"""Write kube-state-metrics' `/metrics` from objects as the API prints them.

Labels, resource names and units are spelled as in its version 2 (reference domain dossier 1.7):
every character that is not a letter or digit is `_`, label keys are snake case.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from fallow.resources import read_table
from simulator.exporters.dcgm import quote_labels

Object = Mapping[str, Any]
Objects = Mapping[str, Sequence[Object]]
"""Objects by kind: Pod, Node, Namespace, ReplicaSet, Job; other kinds are left out."""

PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
QOS = ("BestEffort", "Burstable", "Guaranteed")
STATUSES = ("true", "false", "unknown")
_UNITS = {
    "cpu": ("cpu", "core"),
    "memory": ("memory", "byte"),
    "ephemeral-storage": ("ephemeral_storage", "byte"),
    "pods": ("pods", "integer"),
}
_SUFFIX = re.compile(r"^([0-9.eE+-]+?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
_SIZES = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SIZES |= {f"{unit}i": 1024.0 ** (power + 1) for power, unit in enumerate("KMGTP")}


class _Lines:
    """Series by family."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {name: [] for name, _, _ in _read_families()}

    def add(self, metric: str, labels: Mapping[str, str], value: float) -> None:
        """Append one series."""
        self._families[metric].append(
            f"{metric}{{{quote_labels(labels)}}} {_format_number(value)}\n"
        )

    def add_time(self, metric: str, labels: Mapping[str, str], text: str | None) -> None:
        """Append a series whose value is a timestamp, where there is one."""
        if text:
            self.add(metric, labels, parse_seconds(text))

    def text(self) -> bytes:
        """Return all families, headers included, as kube-state-metrics does for empty ones too."""
        parts = []
        for name, kind, help_text in _read_families():
            parts += [f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n", *self._families[name]]
        return "".join(parts).encode()


def render_text(objects: Objects) -> bytes:
    """Return kube-state-metrics' text about a cluster's objects."""
    lines = _Lines()
    for kind, write in _WRITERS.items():
        for item in objects.get(kind, ()):
            write(lines, item)
    return lines.text()


def _add_pod(lines: _Lines, pod: Object) -> None:
    meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    key = {"namespace": meta["namespace"], "pod": meta["name"], "uid": meta.get("uid", "")}
    owners = meta.get("ownerReferences") or []
    maker: Object = next((o for o in owners if o.get("controller")), {})
    lines.add(
        "kube_pod_info",
        {
            **key,
            "host_ip": status.get("hostIP", ""),
            "pod_ip": status.get("podIP", ""),
            "node": spec.get("nodeName", ""),
            "created_by_kind": maker.get("kind", "<none>"),
            "created_by_name": maker.get("name", "<none>"),
            "priority_class": spec.get("priorityClassName", ""),
            "host_network": str(bool(spec.get("hostNetwork"))).lower(),
        },
        1,
    )
    _add_owners(lines, "kube_pod_owner", key, owners)
    lines.add("kube_pod_labels", {**key, **convert_labels(meta.get("labels"))}, 1)
    _add_annotations(lines, "pod", key, meta)
    lines.add_time("kube_pod_created", key, meta.get("creationTimestamp"))
    lines.add_time("kube_pod_deletion_timestamp", key, meta.get("deletionTimestamp"))
    lines.add_time("kube_pod_start_time", key, status.get("startTime"))
    for phase in PHASES if status.get("phase") else ():
        lines.add("kube_pod_status_phase", {**key, "phase": phase}, phase == status["phase"])
    for qos in QOS if status.get("qosClass") else ():
        named = {**key, "qos_class": qos}
        lines.add("kube_pod_status_qos_class", named, qos == status["qosClass"])
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            bound = condition.get("lastTransitionTime")
            lines.add_time("kube_pod_status_scheduled_time", key, bound)
    states = [s.get("state", {}).get("terminated") for s in status.get("containerStatuses") or ()]
    if states and all(states):
        ended = max((s.get("finishedAt") or "" for s in states if s), default="")
        lines.add_time("kube_pod_completion_time", key, ended)
    _add_containers(lines, key, spec, status)


def _add_containers(lines: _Lines, key: Mapping[str, str], spec: Object, status: Object) -> None:
    for container_status in status.get("containerStatuses") or ():
        reason = (container_status.get("lastState") or {}).get("terminated", {}).get("reason")
        if reason:
            ended_by = {**key, "container": container_status["name"], "reason": reason}
            lines.add("kube_pod_container_status_last_terminated_reason", ended_by, 1)
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for side in ("requests", "limits"):
            for name, amount in (resources.get(side) or {}).items():
                resource, unit = _split_resource(name)
                place = {**key, "container": container["name"], "node": spec.get("nodeName", "")}
                labels = {**place, "resource": resource, "unit": unit}
                lines.add(f"kube_pod_container_resource_{side}", labels, parse_quantity(amount))


def _add_node(lines: _Lines, node: Object) -> None:
    meta, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
    key = {"node": meta["name"]}
    node_info = status.get("nodeInfo") or {}
    lines.add(
        "kube_node_info",
        {
            **key,
            "kernel_version": node_info.get("kernelVersion", ""),
            "os_image": node_info.get("osImage", ""),
            "container_runtime_version": node_info.get("containerRuntimeVersion", ""),
            "kubelet_version": node_info.get("kubeletVersion", ""),
            "provider_id": spec.get("providerID", ""),
            "system_uuid": node_info.get("systemUUID", ""),
        },
        1,
    )
    lines.add("kube_node_labels", {**key, **convert_labels(meta.get("labels"))}, 1)
    lines.add_time("kube_node_created", key, meta.get("creationTimestamp"))
    lines.add("kube_node_spec_unschedulable", key, bool(spec.get("unschedulable")))
    for taint in spec.get("taints") or ():
        taint_labels = {n: str(taint.get(n) or "") for n in ("key", "value", "effect")}
        lines.add("kube_node_spec_taint", {**key, **taint_labels}, 1)
    for condition in status.get("conditions") or ():
        for word in STATUSES:
            labels = {**key, "condition": condition["type"], "status": word}
            lines.add("kube_node_status_condition", labels, word == condition["status"].lower())
    for side in ("allocatable", "capacity"):
        for name, amount in (status.get(side) or {}).items():
            resource, unit = _split_resource(name)
            labels = {**key, "resource": resource, "unit": unit}
            lines.add(f"kube_node_status_{side}", labels, parse_quantity(amount))


def _add_namespace(lines: _Lines, item: Object) -> None:
    meta = item["metadata"]
    words = convert_labels(meta.get("labels"))
    lines.add("kube_namespace_labels", {"namespace": meta["name"], **words}, 1)
    _add_annotations(lines, "namespace", {"namespace": meta["name"]}, meta)


def _add_replicaset(lines: _Lines, item: Object) -> None:
    meta = item["metadata"]
    key = {"namespace": meta["namespace"], "replicaset": meta["name"]}
    _add_owners(lines, "kube_replicaset_owner", key, meta.get("ownerReferences") or [])
    _add_annotations(lines, "replicaset", key, meta)


def _add_job(lines: _Lines, item: Object) -> None:
    meta = item["metadata"]
    key = {"namespace": meta["namespace"], "job_name": meta["name"]}
    _add_owners(lines, "kube_job_owner", key, meta.get("ownerReferences") or [])
    _add_annotations(lines, "job", key, meta)
    lines.add("kube_job_labels", {**key, **convert_labels(meta.get("labels"))}, 1)


def _add_workload(noun: str) -> Callable[[_Lines, Object], None]:
    """Return what writes the labels and annotations of a kind that has its name for a label."""

    def write(lines: _Lines, item: Object) -> None:
        meta = item["metadata"]
        key = {"namespace": meta["namespace"], noun: meta["name"]}
        _add_annotations(lines, noun, key, meta)
        lines.add(f"kube_{noun}_labels", {**key, **convert_labels(meta.get("labels"))}, 1)

    return write


def _add_annotations(lines: _Lines, noun: str, key: Mapping[str, str], meta: Object) -> None:
    annotations = convert_labels(meta.get("annotations"), "annotation")
    if annotations:
        lines.add(f"kube_{noun}_annotations", {**key, **annotations}, 1)


_WRITERS: dict[str, Callable[[_Lines, Object], None]] = {
    "Deployment": _add_workload("deployment"),
    "StatefulSet": _add_workload("statefulset"),
    "CronJob": _add_workload("cronjob"),
    "Pod": _add_pod,
    "Node": _add_node,
    "Namespace": _add_namespace,
    "ReplicaSet": _add_replicaset,
    "Job": _add_job,
}


def _add_owners(
    lines: _Lines, metric: str, key: Mapping[str, str], owners: Iterable[Object]
) -> None:
    named = [(o["kind"], o["name"], str(bool(o.get("controller"))).lower()) for o in owners] or [
        ("<none>", "<none>", "<none>")
    ]
    for kind, name, controls in named:
        owner = {"owner_kind": kind, "owner_name": name, "owner_is_controller": controls}
        lines.add(metric, {**key, **owner}, 1)


def convert_labels(labels: Mapping[str, str] | None, noun: str = "label") -> dict[str, str]:
    """Return an object's labels as labels of a series; keys that fall together are numbered.

    `noun`: what the series' labels begin with, `label` or `annotation`.
    """
    result: dict[str, str] = {}
    for name, value in sorted((labels or {}).items()):
        spelled = f"{noun}_{_convert_to_snake(name)}"
        name_count = sum(n == spelled or n.startswith(f"{spelled}_conflict") for n in result)
        result[f"{spelled}_conflict{name_count}" if name_count else spelled] = value
    return result


def parse_quantity(amount: str | float) -> float:
    """Return a Kubernetes quantity as a number.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _SUFFIX.match(str(amount))
    if match is None:
        raise ValueError(f"{amount!r} is not a Kubernetes quantity")
    return float(match[1]) * _SIZES.get(match[2] or "", 1.0)


def parse_seconds(text: str) -> float:
    """Return the API's text of a timestamp as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _split_resource(name: str) -> tuple[str, str]:
    return _UNITS.get(name) or (re.sub(r"[^a-zA-Z0-9_]", "_", name), "integer")


def _convert_to_snake(name: str) -> str:
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"[^a-zA-Z0-9_]", "_", parted).lower()


def _format_number(value: float) -> str:
    """Return a number as Go prints it: whole ones without a point."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)  # noqa: PLR2004


@cache
def _read_families() -> tuple[tuple[str, str, str], ...]:
    rows = read_table("simulator.exporters", "kube_families.csv")
    return tuple((r["metric"], r["type"], r["help"]) for r in rows)
