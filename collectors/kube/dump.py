"""Import `kubectl get nodes,pods -A -o json`: the same mapping, no API access."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from collectors.inventory import build_batches, build_each, build_scrape_row
from collectors.kube.addresses import address_rows, list_node_addresses, list_pod_addresses
from collectors.kube.budgets import build_budget_row
from collectors.kube.devices import Dra, read_hami_register
from collectors.kube.dump_file import read_cut
from collectors.kube.events import build_event_row, find_controller_kind, is_refusal
from collectors.kube.nodes import build_node_row
from collectors.kube.owners import (
    Owners,
    Resolver,
    TopOwner,
    build_lookup,
    find_by_labels,
    find_by_template_hash,
    find_controller,
)
from collectors.kube.pending_workloads import (
    VOLCANO_JOB,
    JobObjects,
    find_group,
    list_pending_rows,
)
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.queues import Queues
from collectors.kube.quotas import list_quota_rows, read_quota_kinds
from collectors.kube.readable import load_object, prune, read_object, split_items
from collectors.kube.reservation_pods import remap
from collectors.kube.shapes import CustomObject, Event, Meta, Node, Partial, Pod
from collectors.kube.survey import SHARED, is_in_group
from fallow.errors import UsageError
from fallow.kube.api_objects import ApiObject
from fallow.kube.owner_chains import split_api_version
from fallow.rejections import Rejection, build_batch
from fallow.settings.collectors import KubernetesSettings
from fallow.system.input_files import UTF_16
from fallow.tables import Batch

COMMAND = "kubectl get nodes,pods -A -o json > dump.json"
T = TypeVar("T", bound=Partial | Node | Pod | Event | CustomObject)
Row = dict[str, Any]


class KubectlDocument(ApiObject, frozen=True):
    """The output of `kubectl -o json`."""

    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class TypedItem(ApiObject, frozen=True):
    """An item's kind; the items of a typed list (`PodList`) omit it."""

    kind: str = ""
    api_version: str = ""


class Dump:
    """The items of one dump by kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._items: dict[tuple[str, str], list[msgspec.Raw]] = {}
        self.rejections: list[Rejection] = []
        self._listed: set[tuple[str, str]] = set()
        document = _read(path)
        for item in document.items or ():
            item_type = _read_type(item)
            kind = item_type.kind or document.kind.removesuffix("List")
            group, _ = split_api_version(item_type.api_version or document.api_version)
            self._items.setdefault((group, kind), []).append(item)
        if not self._items.get(("", "Node")) and not self._items.get(("", "Pod")):
            kind_counts = Counter({kind: len(items) for (_, kind), items in self._items.items()})
            counts_text = ", ".join(
                f"{n} {kind or 'nameless'}" for kind, n in kind_counts.most_common(5)
            )
            raise UsageError(
                f"{path} holds no Node and no Pod ({counts_text or 'it is an empty List'})",
                hint=COMMAND,
            )

    def of(self, group: str, kind: str, shape: type[T]) -> list[T]:
        """Return the objects of one kind that can be read; the others are listed once."""
        entries = self._items.get((group, kind), [])
        is_repeated = (group, kind) in self._listed or shape is Partial
        self._listed |= set() if shape is Partial else {(group, kind)}
        reject = (lambda _: None) if is_repeated else self.rejections.append
        items = (read_object(item, shape, reject) for item in entries)
        return [item for item in items if item is not None]

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


def import_kubectl(
    path: Path, cluster: str, now: datetime, team_labels: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield `node`, `pod`, `pending_workload`, `quota` and other rows of one dump.

    Owners are taken from the dump. A ReplicaSet's Deployment is also known by its pods' hash label;
    any other owner that is not in the dump is unknown. Add `replicasets`, `statefulsets`, `jobs`
    and other kinds to the command to name them.

    Raises:
        UsageError: the file cannot be read or is no such dump.
    """
    dump = Dump(path)
    dra = Dra(
        dump.of("resource.k8s.io", "ResourceSlice", CustomObject),
        dump.of("resource.k8s.io", "ResourceClaim", CustomObject),
    )
    nodes = dump.of("", "Node", Node)
    node_rows = [build_node_row(n, cluster=cluster, now=now, dra=dra) for n in nodes]
    yield from build_batches("node", node_rows, dump.rejections)
    spaces = dump.of("", "Namespace", Partial)
    context = PodContext(
        cluster=cluster,
        now=lambda: now,
        resolve=_build_resolver(dump),
        team_labels=KubernetesSettings().team_labels if team_labels is None else team_labels,
        namespaces={n.metadata.name: n.metadata.labels or {} for n in spaces},
        protections={n.metadata.name: n.metadata.protections for n in spaces},
        replicas={
            row["node"]: row["gpu_replicas"]
            for row in node_rows
            if row["sharing"] in SHARED and row["gpu_replicas"]
        },
        registers={
            n.metadata.name: {d.id: d.devmem for d in read_hami_register(n.metadata.annotations)}
            for n in nodes
        },
        queues=_read_queues(dump),
        refused=dump.rejections,
        dra=dra,
    )
    pod_objects = dump.of("", "Pod", Pod)
    pairs = chain.from_iterable(
        [*map(list_node_addresses, nodes), *map(list_pod_addresses, pod_objects)]
    )
    yield from build_batches("address", address_rows(pairs, cluster=cluster, now=now))
    pods = [(pod.metadata, build_pod_row(pod, context)) for pod in pod_objects]
    alone = (row for meta, row in pods if not is_in_group(meta))
    grouped = remap(pair for pair in pods if is_in_group(pair[0]))
    pending = _list_pending(dump, context, pod_objects)
    quotas = _list_quotas(dump, cluster, now, context.queues)
    yield from build_batches("pod", alone, dump.rejections)
    yield from build_batches("pod", grouped, dump.rejections)
    yield from build_batches("pending_workload", pending, dump.rejections)
    yield from build_batches("quota", quotas, dump.rejections)
    budgets = dump.of("policy", "PodDisruptionBudget", CustomObject)
    budget_rows = (build_budget_row(b, cluster=cluster, now=now) for b in budgets)
    yield from build_batches("disruption_budget", budget_rows, dump.rejections)
    yield from build_batches("event", _list_events(dump, cluster), dump.rejections)
    row = build_scrape_row(
        "kubectl", str(path), cluster=cluster, start=now, end=now, samples=len(dump), error=None
    )
    if dump.rejections:
        yield build_batch(dump.rejections, cluster=cluster, source="kubectl", at=now)
    yield from build_batches("scrape", [row])


def _build_resolver(dump: Dump) -> Resolver:
    owners = Owners(build_lookup(dump.metadata()))

    def resolve(pod: Meta) -> TopOwner | None:
        top = owners.top(pod) or find_by_template_hash(pod)
        ref = find_controller(pod)
        if top is not None or ref is None:
            return top
        # What is not in the dump may have owners: only a label says whose it is.
        below = TopOwner(ref.kind, ref.name, None)
        named = find_by_labels(pod, below)
        return None if named == below else named

    return resolve


def _read_queues(dump: Dump) -> Queues:
    queues = Queues()
    for group in ("scheduling.volcano.sh", "scheduling.run.ai"):
        queues.add_groups(dump.of(group, "PodGroup", CustomObject))
    queues.add_workloads(dump.of("kueue.x-k8s.io", "Workload", CustomObject))
    return queues


def _list_pending(dump: Dump, context: PodContext, pods: Sequence[Pod]) -> Iterator[Row]:
    jobs = dump.of(*VOLCANO_JOB, CustomObject)
    objects = JobObjects(
        dump.of("kueue.x-k8s.io", "Workload", CustomObject),
        dump.of("scheduling.volcano.sh", "PodGroup", CustomObject),
        dump.of("scheduling.x-k8s.io", "PodGroup", CustomObject),
        {(job.metadata.namespace, job.metadata.name): job for job in jobs},
        dump.of("kueue.x-k8s.io", "ResourceFlavor", CustomObject),
    )
    groups = (find_group(pod.metadata) for pod in pods)
    started = frozenset(filter(None, groups))
    yield from list_pending_rows(objects, context, started, dump.rejections)


def _list_quotas(dump: Dump, cluster: str, now: datetime, queues: Queues) -> Iterator[Row]:
    for kind in read_quota_kinds():
        items = dump.of(kind.group, kind.kind.partition(".")[0], CustomObject)
        build = partial(list_quota_rows, kind, cluster=cluster, now=now, queues=queues)
        yield from build_each("quota", items, build, dump.rejections)


def _list_events(dump: Dump, cluster: str) -> Iterator[Row]:
    for event in dump.of("", "Event", Event):
        if event.involved_object.kind in {"Pod", "Node"} or is_refusal(event):
            yield build_event_row(event, cluster=cluster)
        elif kind := find_controller_kind(event):
            yield {**build_event_row(event, cluster=cluster), "kind": kind}


def _read(path: Path) -> KubectlDocument:
    data = read_cut(path)
    if data[:2] in UTF_16:
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not data:
        raise UsageError(f"{path} is empty", hint=COMMAND)
    try:
        document = _decode(data)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is JSON, but no List: {error}", hint=COMMAND) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {_explain_bad_json(data, error)}", hint=COMMAND) from error
    if not document.kind.endswith("List") or document.items is None:
        description = f"one {document.kind}" if document.kind else "a JSON object"
        if document.kind.endswith("List"):
            raise UsageError(f"{path} holds a {document.kind} without items", hint=COMMAND)
        raise UsageError(f"{path} holds {description}, not a List", hint=COMMAND)
    return document


def _decode(data: bytes) -> KubectlDocument:
    """Return the document; where an item is no JSON or nested too deeply, its items one by one."""
    try:
        return msgspec.json.decode(data, type=KubectlDocument)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        around, elements = split_items(data)
        if not elements:
            raise
    document = msgspec.json.decode(around, type=KubectlDocument)
    return msgspec.structs.replace(document, items=[msgspec.Raw(prune(e)) for e in elements])


def _read_type(item: msgspec.Raw) -> TypedItem:
    try:
        return msgspec.json.decode(item, type=TypedItem)
    except (ValueError, RecursionError):
        document = load_object(bytes(item))
        texts = (document.get(key) for key in ("kind", "apiVersion"))
        return TypedItem(*(text if isinstance(text, str) else "" for text in texts))


def _explain_bad_json(data: bytes, error: msgspec.DecodeError) -> str:
    head = data[:200].lstrip()
    if head.startswith((b"apiVersion:", b"---")):
        return "this is YAML, not JSON: ask kubectl for -o json"
    if head.startswith(b"NAME"):
        return "this is kubectl's table, not JSON: ask kubectl for -o json"
    if head.startswith(b"{") and not data.endswith(b"}"):
        return f"the JSON is cut off after {len(data):,} bytes: was kubectl interrupted?"
    return f"not JSON: {error}"
