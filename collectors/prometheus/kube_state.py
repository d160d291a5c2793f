"""Map kube-state-metrics to `node` and `pod` rows, for a site that gives no API access.

The series are converted back into the shapes of the API's objects, and then processed exactly as
objects from the API (`collectors.kube`). kube-state-metrics writes every character of a label's or
resource's name that is not a letter or digit as `_`. Tables restore the names that are needed. With
`honorLabels: false` its labels are `exported_pod` and so on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from collectors.kube.devices import Dra
from collectors.kube.nodes import build_node_row
from collectors.kube.owners import TopOwner, find_by_labels, find_by_template_hash, find_controller
from collectors.kube.pods import ENDED, OOM_KILLED, PodContext, build_pod_row
from collectors.kube.shapes import (
    Condition,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Meta,
    Node,
    NodeSpec,
    NodeStatus,
    OwnerRef,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
    Taint,
    TerminatedState,
)
from collectors.kube.table import parse_table
from collectors.prometheus import tables
from collectors.prometheus.newest import (
    OWNERS_WITH_ANNOTATIONS,
    Rows,
    SeriesRow,
    build_key,
    find_own_label,
)
from collectors.series import is_exporter
from fallow.addresses import POD
from fallow.kube.gpu_resources import find_gpu_resource, is_unknown_accelerator
from fallow.kube.node_gpus import read_labels
from fallow.kube.owner_links import list_link_labels
from fallow.partial_documents import mark_partial
from fallow.protections import UNREADABLE, read_annotations, read_notes, select_protections
from fallow.resources import read_table

_NONE = {"", "<none>"}
_DIVIDED = "_replicas"
_LETTERS = re.compile(r"[^a-z0-9]")
_MORE_LABELS = (
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
    "cloud.google.com/gke-gpu-partition-size",
    "pod-template-hash",
)


class KubeState(msgspec.Struct):
    """The content of kube-state-metrics in a window: metric name to label sets and last values.

    `series` has what is current, oldest first, and `past` what its objects no longer have. Every
    row about a pod has its `uid` (see `pod_identity`). `pod_lives` and `node_lives` are the first
    and last timestamps of `kube_pod_info` by (namespace, pod, uid) and of `kube_node_info` by node;
    `pods_running` are those of the phase `Running` of pods that have ended; `changes` is of
    `find_changes`.
    """

    series: Mapping[str, Rows]
    pod_lives: Mapping[tuple[str, str, str], tuple[datetime, datetime]]
    node_lives: Mapping[str, tuple[datetime, datetime]]
    pods_running: Mapping[tuple[str, ...], tuple[datetime, datetime]] = {}
    past: Mapping[str, Rows] = {}
    changes: Mapping[str, frozenset[datetime]] = {}


def read_inventory() -> tuple[dict[str, str], ...]:
    """Return the rows of `inventory.csv`: the metrics to query."""
    return tables.load_table("inventory")


def format_resource(name: str) -> str:
    """Return a resource's name as Kubernetes writes it."""
    for row in tables.load_table("resources"):
        changed, count = re.subn(row["pattern"], row["name"], name)
        if count:
            return changed
    return name


def build_node_rows(state: KubeState, *, cluster: str, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield one row of `node` per node."""
    nodes: dict[str, dict[str, str]] = {}
    for label_set, _ in state.series.get("kube_node_info", ()):
        nodes[find_own_label(label_set, "node")] = label_set
    labelled = _group_labels_by_owner(state.series.get("kube_node_labels", ()), "node")
    lost = _group_labels_by_owner(state.past.get("kube_node_labels", ()), "node")
    no_labels: dict[str, str] | None = {} if _is_shown(state, "kube_node_labels") else None
    created = _select_values(state, "kube_node_created", "node")
    cordoned = _select_values(state, "kube_node_spec_unschedulable", "node")
    taints: dict[str, list[Taint]] = {}
    for label_set, _ in state.series.get("kube_node_spec_taint", ()):
        taint = Taint(label_set.get("key", ""), label_set.get("effect", ""), label_set.get("value"))
        taints.setdefault(find_own_label(label_set, "node"), []).append(taint)
    ready = {
        find_own_label(label_set, "node"): label_set.get("status", "").capitalize()
        for label_set, _ in state.series.get("kube_node_status_condition", ())
        if label_set.get("condition") == "Ready"
    }
    sizes = {
        side: _sum_amounts(state.series.get(f"kube_node_status_{side}", ()), ("node",))
        for side in ("allocatable", "capacity")
    }
    for name, info in nodes.items():
        if not name:
            continue
        first, last = state.node_lives.get(name, (now, now))
        node = Node(
            Meta(
                name,
                uid=info.get("system_uuid", ""),
                creation_timestamp=_convert_time(created, (name,)),
                labels=labelled.get(name) or no_labels,
            ),
            NodeSpec(
                info.get("provider_id") or None,
                bool(cordoned.get((name,))),
                # Without the series of its neighbour the source shows no node's taints.
                taints.get(name, [] if (name,) in cordoned else None),
            ),
            NodeStatus(
                sizes["capacity"].get((name,)),
                sizes["allocatable"].get((name,)),
                [Condition("Ready", ready[name])] if name in ready else None,
            ),
        )
        row = build_node_row(node, cluster=cluster, now=first, dra=Dra(), is_whole=False)
        yield {**row, "labels": mark_partial(row["labels"], lost.get(name, ())), "last_seen": last}


def list_addresses(state: KubeState) -> Iterator[tuple[str, str]]:
    """Yield addresses and names of nodes, and of pods that may be exporters, with the node.

    Exporters are pods of a DaemonSet that request no GPU; others are known by name.
    """
    for label_set, _ in state.series.get("kube_node_info", ()):
        node = find_own_label(label_set, "node")
        yield from ((node, node), (label_set.get("internal_ip", ""), node))
    names = ("namespace", "pod")
    working = {
        build_key(label_set, names)
        for label_set, _ in state.series.get("kube_pod_container_resource_limits", ())
        if find_gpu_resource(format_resource(label_set.get("resource", ""))) is not None
    }
    owners = {build_key(w, names): w for w, _ in state.series.get("kube_pod_owner", ())}
    for label_set, _ in state.series.get("kube_pod_info", ()):
        key, node = build_key(label_set, names), find_own_label(label_set, "node")
        owner = _find_owner(owners.get(key), "owner") or _find_owner(label_set, "created_by")
        of_node = owner is not None and owner.kind == "DaemonSet" and key not in working
        if node and (of_node or is_exporter(key[1])):
            yield from ((POD + key[1], node), (label_set.get("pod_ip", ""), node))


def build_pod_rows(
    state: KubeState,
    *,
    cluster: str,
    now: datetime,
    team_labels: Sequence[str],
    holder_pods: frozenset[tuple[str, str]] = frozenset(),
    parts: Mapping[str, Fraction] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row of `pod` per pod that requests devices, is in `holder_pods`, or belongs to one.

    A launcher requests no device, but its gang waits for it.
    """
    facts = _PodFacts(state, team_labels)
    context = PodContext(
        cluster=cluster,
        now=lambda: now,
        resolve=facts.resolve,
        team_labels=team_labels,
        namespaces=_group_labels_by_owner(
            state.series.get("kube_namespace_labels", ()), "namespace", tuple(team_labels)
        ),
        protections=_select_protecting(state.series, "namespace", "namespace"),
        parts=parts or {},
        is_whole=False,
    )
    workloads: set[tuple[str, str, str]] = set()
    other_pods: list[tuple[tuple[str, str, str], Pod]] = []
    for key, info in facts.pods.items():
        pod = facts.pod(key, info)
        if key[:2] not in holder_pods and not _is_requesting_devices(pod):
            other_pods.append((key, pod))
            continue
        row = facts.mark_lost(key, _build_pod_row(state, key, pod, context))
        if not row.get("gpu_resource"):  # these series do not have DRA's claims
            row["gpu_request"] = None
        if row["workload"]:
            workloads.add((row["namespace"], row["workload_kind"], row["workload"]))
        yield row
    for key, pod in other_pods:
        top = facts.resolve(pod.metadata)
        if top is not None and (pod.metadata.namespace, top.kind, top.name) in workloads:
            yield facts.mark_lost(key, _build_pod_row(state, key, pod, context))


def find_changes(series: Mapping[str, Sequence[SeriesRow]]) -> dict[str, frozenset[datetime]]:
    """Return when nodes were seen for the last time under a uid or labels that they lost."""
    changes: dict[str, frozenset[datetime]] = {}
    for metric in ("kube_node_info", "kube_node_labels"):
        rows_by_node: dict[str, list[SeriesRow]] = {}
        for row in series.get(metric, ()):
            rows_by_node.setdefault(find_own_label(row.labels, "node"), []).append(row)
        for node, rows in rows_by_node.items():
            ends: dict[tuple[str | None, ...], float] = {}
            for row in rows if len(rows) > 1 else ():
                identity = _identify_node(row.labels)
                ends[identity] = max(row.newest, ends.get(identity, 0))
            past = {end for end in ends.values() if 0 < end < max(ends.values())}
            if past:
                times = frozenset(datetime.fromtimestamp(end, UTC) for end in past)
                changes[node] = times | changes.get(node, frozenset())
    return changes


def _identify_node(label_set: Mapping[str, str]) -> tuple[str | None, ...]:
    labels = _restore_names(label_set, ())
    fields = ("region", "zone", "instance_type", "capacity_type", "pool", "gpu_model")
    return label_set.get("system_uuid"), *(read_labels(field, labels) for field in fields)


def _build_pod_row(
    state: KubeState, key: tuple[str, str, str], pod: Pod, context: PodContext
) -> dict[str, Any]:
    now = context.now()
    first, last = state.pod_lives.get(key, (now, now))
    row = build_pod_row(pod, context)
    if pod.status.phase in ENDED and not pod.status.container_statuses:
        # The series of a refused or evicted pod go on: it was alive while it ran.
        running = state.pods_running.get(key) or state.pods_running.get((*key[:2], ""))
        row["finished_at"] = None
        last = running[1] if running else row["created_at"] or first
        first = min(first, last)
    return {**row, "first_seen": first, "last_seen": last}


def _is_requesting_devices(pod: Pod) -> bool:
    for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
        sides = container.resources
        for name in {**((sides and sides.requests) or {}), **((sides and sides.limits) or {})}:
            if find_gpu_resource(name) is not None or is_unknown_accelerator(name):
                return True
    return False


class _PodFacts:
    """Every pod series by (namespace, pod, uid): names are used again, uids are not."""

    def __init__(self, state: KubeState, teams: Sequence[str]) -> None:
        self._teams = teams
        self.pods: dict[tuple[str, str, str], dict[str, str]] = {}
        for label_set, _ in state.series.get("kube_pod_info", ()):
            key = (
                find_own_label(label_set, "namespace"),
                find_own_label(label_set, "pod"),
                find_own_label(label_set, "uid"),
            )
            facts_known = self.pods.setdefault(key, {})
            # Before and after binding there are two series of one pod: a value wins over no value.
            facts_known.update({k: v for k, v in label_set.items() if v})
        keys = ("namespace", "pod", "uid")
        self._owner = {build_key(w, keys): w for w, _ in state.series.get("kube_pod_owner", ())}
        self._phase = {
            build_key(w, keys): w.get("phase")
            for w, _ in state.series.get("kube_pod_status_phase", ())
        }
        self._qos = {
            build_key(w, keys): w.get("qos_class")
            for w, _ in state.series.get("kube_pod_status_qos_class", ())
        }
        self._words = _merge_labels(state.series.get("kube_pod_labels", ()), keys)
        self._lost_words = _merge_labels(state.past.get("kube_pod_labels", ()), keys)
        self._notes = _select_protecting(state.series, "pod", *keys)
        self._lost_notes = _select_protecting(state.past, "pod", *keys)
        self._no_labels: dict[str, str] | None = {} if _is_shown(state, "kube_pod_labels") else None
        self._no_notes: dict[str, str] | None = (
            {} if _is_shown(state, "kube_pod_annotations") else None
        )
        self._owners = {
            kind: _select_protecting(state.series, kind.lower(), "namespace", label)
            for kind, label in OWNERS_WITH_ANNOTATIONS.items()
        }
        self._when = {
            name: _select_values(state, f"kube_pod_{name}", *keys)
            for name in (
                "created",
                "start_time",
                "status_scheduled_time",
                "completion_time",
                "deletion_timestamp",
            )
        }
        places = (*keys, "container")
        self._read_containers(state)
        self._killed: dict[tuple[str, ...], list[str]] = {}
        for label_set, _ in state.series.get(
            "kube_pod_container_status_last_terminated_reason", ()
        ):
            if label_set.get("reason") == OOM_KILLED:
                place = build_key(label_set, places)
                self._killed.setdefault(place[:-1], []).append(place[-1])
        self._above = {
            kind: {build_key(w, ("namespace", label)): w for w, _ in state.series.get(metric, ())}
            for kind, label, metric in (
                ("ReplicaSet", "replicaset", "kube_replicaset_owner"),
                ("Job", "job_name", "kube_job_owner"),
            )
        }

    def _read_containers(self, state: KubeState) -> None:
        """Read what containers, init containers and sidecars request."""
        places = ("namespace", "pod", "uid", "container")
        self._requested = {
            side: _sum_amounts(state.series.get(f"kube_pod_container_resource_{side}", ()), places)
            for side in ("requests", "limits")
        }
        self._requested_at_start = {
            side: _sum_amounts(
                state.series.get(f"kube_pod_init_container_resource_{side}", ()), places
            )
            for side in ("requests", "limits")
        }
        self._containers = _group_by_pod(self._requested)
        self._init_containers = _group_by_pod(self._requested_at_start)
        self._restart_policies = {
            build_key(words, places): words["restart_policy"]
            for words, _ in state.series.get("kube_pod_init_container_info", ())
            if words.get("restart_policy")
        }

    def pod(self, key: tuple[str, str, str], info: Mapping[str, str]) -> Pod:
        """Return one pod as the API would return it."""
        namespace, name, uid = at = key
        when = {n: _convert_time(values, at) for n, values in self._when.items()}
        ended = when["completion_time"]
        bound = when["status_scheduled_time"]
        label_set = self._words.get(at)
        owner = _find_owner(self._owner.get(at), "owner") or _find_owner(info, "created_by")
        return Pod(
            Meta(
                name,
                namespace,
                uid,
                creation_timestamp=when["created"],
                deletion_timestamp=when["deletion_timestamp"],
                labels=_restore_names(label_set or {}, self._teams) or self._no_labels,
                annotations=self._notes.get(at) or self._no_notes,
                owner_references=(owner,) if owner else (),
            ),
            PodSpec(
                find_own_label(info, "node") or None,
                info.get("priority_class") or None,
                [
                    ContainerSpec(name, _read_resources(self._requested, (*at, name)))
                    for name in self._containers.get(at, ())
                ],
                [
                    ContainerSpec(
                        name,
                        _read_resources(self._requested_at_start, (*at, name)),
                        self._restart_policies.get((*at, name)),
                    )
                    for name in self._init_containers.get(at, ())
                ],
            ),
            PodStatus(
                self._phase.get(at),
                self._qos.get(at),
                when["start_time"],
                [Condition("PodScheduled", "True", bound)] if bound else None,
                self._statuses(at, ended),
            ),
        )

    def mark_lost(self, key: tuple[str, str, str], row: dict[str, Any]) -> dict[str, Any]:
        """Return a pod's row whose documents have the marks that it has lost, and are partial."""
        labels = _restore_names(self._lost_words.get(key, {}), self._teams)
        return {
            **row,
            "labels": mark_partial(row["labels"], labels),
            "annotations": mark_partial(row["annotations"], self._lost_notes.get(key, ())),
        }

    def _statuses(
        self, at: tuple[str, ...], ended: datetime | None
    ) -> list[ContainerStatus] | None:
        statuses = (
            [ContainerStatus(ContainerState(TerminatedState(finished_at=ended)))] if ended else []
        )
        statuses += [
            ContainerStatus(
                name=name, last_state=ContainerState(TerminatedState(reason=OOM_KILLED))
            )
            for name in self._killed.get(at, ())
        ]
        return statuses or None

    def resolve(self, pod: Meta) -> TopOwner | None:
        """Return the topmost owner that the series lead to; None where the chain is incomplete."""
        ref = find_controller(pod)
        if ref is None:
            return find_by_labels(pod, TopOwner("Pod", pod.name, pod.uid))
        kind, name = ref.kind, ref.name
        protections = select_protections(self._noted(kind, pod.namespace, name))
        if kind in self._above:
            above = self._above[kind].get((pod.namespace, name))
            if above is None:
                return find_by_template_hash(pod)
            upper = _find_owner(above, "owner")
            if upper is not None:
                kind, name = upper.kind, upper.name
                protections = select_protections(
                    protections, self._noted(kind, pod.namespace, name)
                )
        return find_by_labels(pod, TopOwner(kind, name, None, protections))

    def _noted(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        return self._owners.get(kind, {}).get((namespace, name))


def _find_owner(label_set: Mapping[str, str] | None, prefix: str) -> OwnerRef | None:
    if label_set is None:
        return None
    kind, name = label_set.get(f"{prefix}_kind", ""), label_set.get(f"{prefix}_name", "")
    if kind in _NONE or name in _NONE or label_set.get("owner_is_controller") == "false":
        return None
    return OwnerRef(kind, name, controller=True)


def _is_shown(state: KubeState, metric: str) -> bool:
    """Return whether kube-state-metrics shows any label or annotation by this metric.

    It is configured to show some or none; then an object without any has none of those.
    """
    prefix = metric.rpartition("_")[2].removesuffix("s") + "_"
    rows = (*state.series.get(metric, ()), *state.past.get(metric, ()))
    return any(key.startswith(prefix) for label_set, _ in rows for key in label_set)


def _select_values(state: KubeState, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {
        build_key(label_set, labels): value for label_set, value in state.series.get(metric, ())
    }


def _convert_time(values: Mapping[tuple[str, ...], float], key: tuple[str, ...]) -> datetime | None:
    seconds = values.get(key)
    if not seconds or not 0 < seconds < _FAR:
        return None
    return datetime.fromtimestamp(seconds, UTC)


_FAR = datetime(2200, 1, 1, tzinfo=UTC).timestamp()


def _group_by_pod(
    amounts: Mapping[str, Mapping[tuple[str, ...], object]],
) -> dict[tuple[str, ...], list[str]]:
    containers: dict[tuple[str, ...], list[str]] = {}
    for place in dict.fromkeys((*amounts["requests"], *amounts["limits"])):
        containers.setdefault(place[:-1], []).append(place[-1])
    return containers


def _read_resources(
    amounts: Mapping[str, Mapping[tuple[str, ...], dict[str, str | int]]], place: tuple[str, ...]
) -> Resources:
    return Resources(amounts["requests"].get(place), amounts["limits"].get(place))


def _sum_amounts(
    rows: Sequence[tuple[dict[str, str], float]], labels: Sequence[str]
) -> dict[tuple[str, ...], dict[str, str | int]]:
    amounts_by_key: dict[tuple[str, ...], dict[str, str | int]] = {}
    for label_set, value in rows:
        name = format_resource(label_set.get("resource", ""))
        amounts_by_key.setdefault(build_key(label_set, labels), {})[name] = f"{value:.3f}"
    return amounts_by_key


def _group_labels_by_owner(
    rows: Sequence[tuple[dict[str, str], float]], about: str, more: Sequence[str] = ()
) -> dict[str, dict[str, str]]:
    return {
        find_own_label(label_set, about): _restore_names(label_set, more) for label_set, _ in rows
    }


def _merge_labels(
    rows: Iterable[tuple[dict[str, str], float]], keys: Sequence[str]
) -> dict[tuple[str, ...], dict[str, str]]:
    merged: dict[tuple[str, ...], dict[str, str]] = {}
    for label_set, _ in rows:
        merged.setdefault(build_key(label_set, keys), {}).update(label_set)
    return merged


def _select_protecting(
    series: Mapping[str, Rows], noun: str, *about: str
) -> dict[Any, dict[str, str]]:
    """Return what the table of protections names on objects of a kind, from their series.

    With one label that label is the key, with several the key is their tuple.
    """
    owners_keys = {*read_annotations(), *read_notes()} - {UNREADABLE}
    keys = {_LETTERS.sub("", key.lower()): key for key in owners_keys}
    protections_by_key: dict[Any, dict[str, str]] = {}
    for prefix in ("label_", "annotation_"):
        for label_set, _ in series.get(f"kube_{noun}_{prefix.strip('_')}s", ()):
            protected = {
                keys[spelled]: value
                for label, value in label_set.items()
                if label.startswith(prefix)
                and (spelled := _LETTERS.sub("", label.removeprefix(prefix).lower())) in keys
            }
            key = (
                build_key(label_set, about)
                if len(about) > 1
                else find_own_label(label_set, about[0])
            )
            protections_by_key[key] = select_protections(protections_by_key.get(key), protected)
    return protections_by_key


def _restore_names(label_set: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Restore the names of labels: `label_nvidia_com_gpu_product` is `nvidia.com/gpu.product`.

    Names that no table has keep kube-state-metrics' spelling.
    """
    known_names = {_LETTERS.sub("", name.lower()): name for name in (*_list_known_labels(), *more)}
    labels_named = {}
    for label, value in label_set.items():
        if label.startswith("label_"):
            spelled = label.removeprefix("label_")
            if spelled.endswith(_DIVIDED):  # of a resource, as `nvidia.com/mig-1g.5gb.replicas` is
                resource = format_resource(spelled.removesuffix(_DIVIDED))
                spelled = f"{resource}.{_DIVIDED.strip('_')}"
            labels_named[known_names.get(_LETTERS.sub("", spelled.lower()), spelled)] = value
    return labels_named


@cache
def _list_known_labels() -> tuple[str, ...]:
    label_set = [r["label"] for r in read_table("fallow.kube", "node_labels.csv")]
    label_set += [
        *(r["source"] for r in read_table("fallow.kube", "gpu_counts.csv")),
        *(r["key"] for r in parse_table("queue_labels")),
        *list_link_labels(),
    ]
    return (*label_set, *_MORE_LABELS, *read_annotations(), *read_notes())
