"""kube-state-metrics to `node` and `pod` rows, for a site that gives no API access.

What the series say is put back into the shapes of the API's objects, and then takes the very
way that objects from the API take (`collectors.kube`). kube-state-metrics writes every sign of
a label's or resource's name that is no letter or digit as `_`; the names that matter are put
back from tables. With `honorLabels: false` its labels are `exported_pod` and so on.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from collectors.kube.devices import Dra
from collectors.kube.nodes import node_row
from collectors.kube.owners import Top, by_template_hash, controller
from collectors.kube.pods import OOM_KILLED, Surroundings, pod_row
from collectors.kube.shapes import (
    Condition,
    Container,
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
    Terminated,
)
from collectors.kube.table import table
from collectors.prometheus.pod_identity import own
from collectors.series import is_exporter
from fallow.kube.gpu_resources import gpu_resource
from fallow.kube.owner_jumps import jumps
from fallow.protections import annotations, named, notes

Rows = list[tuple[dict[str, str], float]]
_NONE = {"", "<none>"}
_LETTERS = re.compile(r"[^a-z0-9]")
_MORE_LABELS = (
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.sharing-strategy",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
    "pod-template-hash",
)


OWNERS_WITH_ANNOTATIONS = {
    "Deployment": "deployment",
    "ReplicaSet": "replicaset",
    "StatefulSet": "statefulset",
    "Job": "job_name",
    "CronJob": "cronjob",
}
"""Kinds of owners whose annotations and labels have series, and the label that names the object."""


class State(msgspec.Struct):
    """What kube-state-metrics said in a window: metric name to label sets and last values.

    Every row about a pod bears its `uid` (see `pod_identity`). `pod_lives` and `node_lives` are the
    first and last moments of `kube_pod_info` by (namespace, pod, uid) and of `kube_node_info` by
    node.
    """

    series: Mapping[str, Rows]
    pod_lives: Mapping[tuple[str, str, str], tuple[datetime, datetime]]
    node_lives: Mapping[str, tuple[datetime, datetime]]


def inventory() -> tuple[dict[str, str], ...]:
    """Return the rows of `inventory.csv`: which metrics are asked for."""
    return _csv("inventory.csv")


@cache
def _csv(name: str) -> tuple[dict[str, str], ...]:
    text = files("collectors.prometheus").joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def resource(name: str) -> str:
    """Return a resource's name as Kubernetes writes it."""
    for row in _csv("resources.csv"):
        changed, count = re.subn(row["pattern"], row["name"], name)
        if count:
            return changed
    return name


def node_rows(state: State, *, cluster: str, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield one row of `node` per node."""
    nodes: dict[str, dict[str, str]] = {}
    for words, _ in state.series.get("kube_node_info", ()):
        nodes[own(words, "node")] = words
    labelled = _labelled(state.series.get("kube_node_labels", ()), "node")
    created = _values(state, "kube_node_created", "node")
    cordoned = _values(state, "kube_node_spec_unschedulable", "node")
    taints: dict[str, list[Taint]] = {}
    for words, _ in state.series.get("kube_node_spec_taint", ()):
        taint = Taint(words.get("key", ""), words.get("effect", ""), words.get("value"))
        taints.setdefault(own(words, "node"), []).append(taint)
    ready = {
        own(words, "node"): words.get("status", "").capitalize()
        for words, _ in state.series.get("kube_node_status_condition", ())
        if words.get("condition") == "Ready"
    }
    sizes = {
        side: _amounts(state.series.get(f"kube_node_status_{side}", ()), ("node",))
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
                creation_timestamp=_at(created, (name,)),
                labels=labelled.get(name),
            ),
            NodeSpec(
                info.get("provider_id") or None, bool(cordoned.get((name,))), taints.get(name)
            ),
            NodeStatus(
                sizes["capacity"].get((name,)),
                sizes["allocatable"].get((name,)),
                [Condition("Ready", ready[name])] if name in ready else None,
            ),
        )
        row = node_row(node, cluster=cluster, now=first, dra=Dra())
        yield {**row, "last_seen": last}


def addresses(state: State) -> Iterator[tuple[str, str]]:
    """Yield the addresses of nodes and of exporters' pods, each with its node's name."""
    for words, _ in state.series.get("kube_node_info", ()):
        yield words.get("internal_ip", ""), own(words, "node")
    for words, _ in state.series.get("kube_pod_info", ()):
        if is_exporter(own(words, "pod")):
            yield words.get("pod_ip", ""), own(words, "node")


def pod_rows(
    state: State,
    *,
    cluster: str,
    now: datetime,
    team_labels: Sequence[str],
    held: frozenset[tuple[str, str]] = frozenset(),
    replicas: Mapping[str, int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row of `pod` per pod that asks for devices, is in `held`, or is a peer of such pods.

    A launcher asks for no device, and its gang waits for it.
    """
    facts = _PodFacts(state)
    around = Surroundings(
        cluster=cluster,
        now=lambda: now,
        resolve=facts.resolve,
        team_labels=team_labels,
        namespaces=_labelled(
            state.series.get("kube_namespace_labels", ()), "namespace", tuple(team_labels)
        ),
        protections=_protecting(state, "namespace", "namespace"),
        replicas=replicas or {},
    )
    workloads: set[tuple[str, str, str]] = set()
    others: list[tuple[tuple[str, str, str], Pod]] = []
    for key, info in facts.pods.items():
        pod = facts.pod(key, info, tuple(team_labels))
        if key[:2] not in held and not _asks(pod):
            others.append((key, pod))
            continue
        row = _pod_row(state, key, pod, around)
        if row["workload"]:
            workloads.add((row["namespace"], row["workload_kind"], row["workload"]))
        yield row
    for key, pod in others:
        top = facts.resolve(pod.metadata)
        if top is not None and (pod.metadata.namespace, top.kind, top.name) in workloads:
            yield _pod_row(state, key, pod, around)


def _pod_row(
    state: State, key: tuple[str, str, str], pod: Pod, around: Surroundings
) -> dict[str, Any]:
    now = around.now()
    first, last = state.pod_lives.get(key, (now, now))
    return {**pod_row(pod, around), "first_seen": first, "last_seen": last}


def _asks(pod: Pod) -> bool:
    for container in pod.spec.containers or ():
        sides = container.resources
        for name in {**((sides and sides.requests) or {}), **((sides and sides.limits) or {})}:
            if gpu_resource(name) is not None:
                return True
    return False


class _PodFacts:
    """Every pod series by (namespace, pod, uid): a name is used again, a uid is not."""

    def __init__(self, state: State) -> None:
        self.pods: dict[tuple[str, str, str], dict[str, str]] = {}
        for words, _ in state.series.get("kube_pod_info", ()):
            key = (own(words, "namespace"), own(words, "pod"), own(words, "uid"))
            known = self.pods.setdefault(key, {})
            # Before and after binding are two series of one pod: what is said wins.
            known.update({k: v for k, v in words.items() if v})
        keys = ("namespace", "pod", "uid")
        self._owner = {_key(w, keys): w for w, _ in state.series.get("kube_pod_owner", ())}
        self._phase = {
            _key(w, keys): w.get("phase") for w, _ in state.series.get("kube_pod_status_phase", ())
        }
        self._qos = {
            _key(w, keys): w.get("qos_class")
            for w, _ in state.series.get("kube_pod_status_qos_class", ())
        }
        self._words: dict[tuple[str, ...], dict[str, str]] = {}
        for words, _ in state.series.get("kube_pod_labels", ()):
            self._words.setdefault(_key(words, keys), {}).update(words)
        self._notes = _protecting(state, "pod", *keys)
        self._owners = {
            kind: _protecting(state, kind.lower(), "namespace", label)
            for kind, label in OWNERS_WITH_ANNOTATIONS.items()
        }
        self._when = {
            name: _values(state, f"kube_pod_{name}", *keys)
            for name in (
                "created",
                "start_time",
                "status_scheduled_time",
                "completion_time",
                "deletion_timestamp",
            )
        }
        places = (*keys, "container")
        self._asked = {
            side: _amounts(state.series.get(f"kube_pod_container_resource_{side}", ()), places)
            for side in ("requests", "limits")
        }
        self._containers: dict[tuple[str, ...], list[str]] = {}
        for place in dict.fromkeys((*self._asked["requests"], *self._asked["limits"])):
            self._containers.setdefault(place[:-1], []).append(place[-1])
        self._killed: dict[tuple[str, ...], list[str]] = {}
        for words, _ in state.series.get("kube_pod_container_status_last_terminated_reason", ()):
            if words.get("reason") == OOM_KILLED:
                place = _key(words, places)
                self._killed.setdefault(place[:-1], []).append(place[-1])
        self._above = {
            kind: {_key(w, ("namespace", label)): w for w, _ in state.series.get(metric, ())}
            for kind, label, metric in (
                ("ReplicaSet", "replicaset", "kube_replicaset_owner"),
                ("Job", "job_name", "kube_job_owner"),
            )
        }

    def pod(self, key: tuple[str, str, str], info: Mapping[str, str], team: Sequence[str]) -> Pod:
        """Return one pod as the API would give it."""
        namespace, name, uid = at = key
        when = {n: _at(values, at) for n, values in self._when.items()}
        ended = when["completion_time"]
        bound = when["status_scheduled_time"]
        words = self._words.get(at)
        owner = _owner(self._owner.get(at), "owner") or _owner(info, "created_by")
        return Pod(
            Meta(
                name,
                namespace,
                uid,
                creation_timestamp=when["created"],
                deletion_timestamp=when["deletion_timestamp"],
                labels=_named(words, team) if words else None,
                annotations=self._notes.get(at),
                owner_references=(owner,) if owner else (),
            ),
            PodSpec(
                own(info, "node") or None,
                info.get("priority_class") or None,
                [self._container(at, c) for c in self._containers.get(at, ())],
            ),
            PodStatus(
                self._phase.get(at),
                self._qos.get(at),
                when["start_time"],
                [Condition("PodScheduled", "True", bound)] if bound else None,
                self._statuses(at, ended),
            ),
        )

    def _statuses(
        self, at: tuple[str, ...], ended: datetime | None
    ) -> list[ContainerStatus] | None:
        found = [ContainerStatus(ContainerState(Terminated(ended)))] if ended else []
        found += [
            ContainerStatus(name=name, last_state=ContainerState(Terminated(reason=OOM_KILLED)))
            for name in self._killed.get(at, ())
        ]
        return found or None

    def _container(self, at: tuple[str, ...], name: str) -> Container:
        place = (*at, name)
        asked = Resources(self._asked["requests"].get(place), self._asked["limits"].get(place))
        return Container(name, asked)

    def resolve(self, pod: Meta) -> Top | None:
        """Return the topmost owner that the series lead to; None where the chain breaks off."""
        ref = controller(pod)
        if ref is None:
            return Top("Pod", pod.name, pod.uid)
        kind, name = ref.kind, ref.name
        said = named(self._noted(kind, pod.namespace, name))
        if kind in self._above:
            above = self._above[kind].get((pod.namespace, name))
            if above is None:
                return by_template_hash(pod)
            upper = _owner(above, "owner")
            if upper is not None:
                kind, name = upper.kind, upper.name
                said = named(said, self._noted(kind, pod.namespace, name))
        notebook = (pod.labels or {}).get("notebook-name")
        if kind == "StatefulSet" and notebook == name:
            kind = "Notebook"
        return Top(kind, name, None, said)

    def _noted(self, kind: str, namespace: str, name: str) -> Mapping[str, str] | None:
        return self._owners.get(kind, {}).get((namespace, name))


def _owner(words: Mapping[str, str] | None, prefix: str) -> OwnerRef | None:
    if words is None:
        return None
    kind, name = words.get(f"{prefix}_kind", ""), words.get(f"{prefix}_name", "")
    if kind in _NONE or name in _NONE or words.get("owner_is_controller") == "false":
        return None
    return OwnerRef(kind, name, controller=True)


def _key(words: Mapping[str, str], labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(own(words, label) for label in labels)


def _values(state: State, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
    return {_key(words, labels): value for words, value in state.series.get(metric, ())}


def _at(values: Mapping[tuple[str, ...], float], key: tuple[str, ...]) -> datetime | None:
    seconds = values.get(key)
    if not seconds or not 0 < seconds < _FAR:
        return None
    return datetime.fromtimestamp(seconds, UTC)


_FAR = datetime(2200, 1, 1, tzinfo=UTC).timestamp()


def _amounts(
    rows: Sequence[tuple[dict[str, str], float]], labels: Sequence[str]
) -> dict[tuple[str, ...], dict[str, str | int]]:
    found: dict[tuple[str, ...], dict[str, str | int]] = {}
    for words, value in rows:
        name = resource(words.get("resource", ""))
        found.setdefault(_key(words, labels), {})[name] = f"{value:.3f}"
    return found


def _labelled(
    rows: Sequence[tuple[dict[str, str], float]], about: str, more: Sequence[str] = ()
) -> dict[str, dict[str, str]]:
    return {own(words, about): _named(words, more) for words, _ in rows}


def _protecting(state: State, noun: str, *about: str) -> dict[Any, dict[str, str]]:
    """Return what the table of protections names on objects of a kind, by what the series say.

    By one label the key is that, by several their tuple.
    """
    keys = {_LETTERS.sub("", key.lower()): key for key in (*annotations(), *notes())}
    found: dict[Any, dict[str, str]] = {}
    for prefix in ("label_", "annotation_"):
        for words, _ in state.series.get(f"kube_{noun}_{prefix.strip('_')}s", ()):
            said = {
                keys[spelled]: value
                for label, value in words.items()
                if label.startswith(prefix)
                and (spelled := _LETTERS.sub("", label.removeprefix(prefix).lower())) in keys
            }
            key = _key(words, about) if len(about) > 1 else own(words, about[0])
            found[key] = named(found.get(key), said)
    return found


def _named(words: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Put back the names of labels: `label_nvidia_com_gpu_product` is `nvidia.com/gpu.product`.

    Names that no table knows keep kube-state-metrics' spelling.
    """
    known = {_LETTERS.sub("", name.lower()): name for name in (*_known_labels(), *more)}
    found = {}
    for label, value in words.items():
        if label.startswith("label_"):
            spelled = label.removeprefix("label_")
            found[known.get(_LETTERS.sub("", spelled.lower()), spelled)] = value
    return found


@cache
def _known_labels() -> tuple[str, ...]:
    words = [r["label"] for r in table("node_labels")]
    words += [*(r["key"] for r in table("queue_labels")), *(j.key for j in jumps())]
    return (*words, *_MORE_LABELS, *annotations(), *notes())
