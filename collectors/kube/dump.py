"""Import `kubectl get nodes,pods -A -o json`: the same mapping, no API access."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from collectors.inventory import batches, look
from collectors.kube.addresses import address_rows, of_node, of_pod
from collectors.kube.budgets import budget_row
from collectors.kube.devices import Dra, hami_registered
from collectors.kube.events import event_row, refusal
from collectors.kube.holders import remap
from collectors.kube.nodes import node_gpus, node_row
from collectors.kube.owners import Owners, Resolver, by_template_hash, from_index, split
from collectors.kube.pods import Surroundings, pod_row
from collectors.kube.queues import Queues
from collectors.kube.quotas import quota_kinds, quota_rows
from collectors.kube.shapes import Custom, Event, Meta, Node, Partial, Pod
from collectors.kube.survey import SHARED, in_group
from fallow.errors import UsageError
from fallow.kube.shapes import Shape
from fallow.protections import named
from fallow.settings import KubernetesSettings
from fallow.tables import Batch

COMMAND = "kubectl get nodes,pods -A -o json > dump.json"
T = TypeVar("T")
Row = dict[str, Any]


class Document(Shape, frozen=True):
    """Whatever `kubectl -o json` printed."""

    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class Typed(Shape, frozen=True):
    """An item's kind; the items of a typed list (`PodList`) omit it."""

    kind: str = ""
    api_version: str = ""


class Dump:
    """The items of one dump by kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._items: dict[tuple[str, str], list[msgspec.Raw]] = {}
        listed = _read(path)
        for position, item in enumerate(listed.items or ()):
            what = self._decode(item, Typed, position)
            kind = what.kind or listed.kind.removesuffix("List")
            group, _ = split(what.api_version or listed.api_version)
            self._items.setdefault((group, kind), []).append(item)
        if not self._items.get(("", "Node")) and not self._items.get(("", "Pod")):
            held = Counter({kind: len(items) for (_, kind), items in self._items.items()})
            said = ", ".join(f"{n} {kind or 'nameless'}" for kind, n in held.most_common(5))
            raise UsageError(
                f"{path} holds no Node and no Pod ({said or 'it is an empty List'})", hint=COMMAND
            )

    def of(self, group: str, kind: str, shape: type[T]) -> list[T]:
        """Return the objects of one kind."""
        found = self._items.get((group, kind), [])
        return [self._decode(item, shape, i) for i, item in enumerate(found)]

    def metadata(self) -> dict[tuple[str, str, str, str], Meta]:
        """Return every object's metadata by group, kind, namespace and name."""
        out = {}
        for group, kind in self._items:
            for item in self.of(group, kind, Partial):
                meta = item.metadata
                out[group, kind, meta.namespace, meta.name] = meta
        return out

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def _decode(self, item: msgspec.Raw, shape: type[T], position: int) -> T:
        try:
            return msgspec.json.decode(item, type=shape)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{self.path}: object {position + 1} is no {shape.__name__} of the "
                f"Kubernetes API: {error}"
            ) from error


def import_kubectl(
    path: Path, cluster: str, now: datetime, team_labels: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield `node`, `pod`, `quota`, `disruption_budget`, `event` and `scrape` rows of one dump.

    Owners are those that the dump holds; a ReplicaSet's Deployment is known by its pods' hash
    label; any other owner that is not in the dump is unknown. Add `replicasets`, `statefulsets`,
    `jobs` and the like to the command to name them.

    Raises:
        UsageError: the file cannot be read or is no such dump.
    """
    dump = Dump(path)
    dra = Dra(
        dump.of("resource.k8s.io", "ResourceSlice", Custom),
        dump.of("resource.k8s.io", "ResourceClaim", Custom),
    )
    nodes = dump.of("", "Node", Node)
    found = {node.metadata.name: node_gpus(node, dra) for node in nodes}
    yield from batches("node", (node_row(n, cluster=cluster, now=now, dra=dra) for n in nodes))
    spaces = dump.of("", "Namespace", Partial)
    around = Surroundings(
        cluster=cluster,
        now=lambda: now,
        resolve=_resolver(dump),
        team_labels=KubernetesSettings().team_labels if team_labels is None else team_labels,
        namespaces={n.metadata.name: n.metadata.labels or {} for n in spaces},
        protections={
            n.metadata.name: named(n.metadata.labels, n.metadata.annotations) for n in spaces
        },
        replicas={
            name: g.replicas for name, g in found.items() if g.sharing in SHARED and g.replicas
        },
        memory_mib={d.id: d.devmem for n in nodes for d in hami_registered(n.metadata.annotations)},
        queues=_queues(dump),
        dra=dra,
    )
    listed = dump.of("", "Pod", Pod)
    known = chain.from_iterable([*map(of_node, nodes), *map(of_pod, listed)])
    yield from batches("address", address_rows(known, cluster=cluster, now=now))
    pods = [(pod.metadata, pod_row(pod, around)) for pod in listed]
    yield from batches("pod", (row for meta, row in pods if not in_group(meta)))
    yield from batches("pod", remap(pair for pair in pods if in_group(pair[0])))
    yield from batches("quota", _quotas(dump, cluster, now, around.queues))
    budgets = dump.of("policy", "PodDisruptionBudget", Custom)
    yield from batches(
        "disruption_budget", (budget_row(b, cluster=cluster, now=now) for b in budgets)
    )
    yield from batches("event", _events(dump, cluster))
    row = look(
        "kubectl", str(path), cluster=cluster, start=now, end=now, samples=len(dump), error=None
    )
    yield from batches("scrape", [row])


def _resolver(dump: Dump) -> Resolver:
    owners = Owners(from_index(dump.metadata()))
    return lambda pod: owners.top(pod) or by_template_hash(pod)


def _queues(dump: Dump) -> Queues:
    queues = Queues()
    for group in ("scheduling.volcano.sh", "scheduling.run.ai"):
        queues.add_groups(dump.of(group, "PodGroup", Custom))
    queues.add_workloads(dump.of("kueue.x-k8s.io", "Workload", Custom))
    return queues


def _quotas(dump: Dump, cluster: str, now: datetime, queues: Queues) -> Iterator[Row]:
    for kind in quota_kinds():
        for item in dump.of(kind.group, kind.kind.partition(".")[0], Custom):
            yield from quota_rows(kind, item, cluster=cluster, now=now, queues=queues)


def _events(dump: Dump, cluster: str) -> Iterator[Row]:
    for event in dump.of("", "Event", Event):
        if event.involved_object.kind in {"Pod", "Node"} or refusal(event):
            yield event_row(event, cluster=cluster)


def _read(path: Path) -> Document:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:  # PowerShell's > writes UTF-16
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not data:
        raise UsageError(f"{path} is empty", hint=COMMAND)
    try:
        found = msgspec.json.decode(data, type=Document)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is JSON, but no List: {error}", hint=COMMAND) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {_why_not_json(data, error)}", hint=COMMAND) from error
    if not found.kind.endswith("List") or found.items is None:
        what = f"one {found.kind}" if found.kind else "a JSON object"
        raise UsageError(f"{path} holds {what}, not a List", hint=COMMAND)
    return found


def _why_not_json(data: bytes, error: msgspec.DecodeError) -> str:
    head = data[:200].lstrip()
    if head.startswith((b"apiVersion:", b"---")):
        return "this is YAML, not JSON: ask kubectl for -o json"
    if head.startswith(b"NAME"):
        return "this is kubectl's table, not JSON: ask kubectl for -o json"
    if head.startswith(b"{") and not data.endswith(b"}"):
        return f"the JSON is cut off after {len(data):,} bytes: was kubectl interrupted?"
    return f"not JSON: {error}"
