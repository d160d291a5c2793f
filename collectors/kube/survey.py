"""Read a cluster's full inventory, kind by kind; a refusal of one kind does not stop the others.

The objects come from the API (`LiveObjects`) or from a dump of kubectl (`dump.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from collectors.inventory import PART, build_batches, build_each
from collectors.kube.addresses import address_rows, list_node_addresses, list_pod_addresses
from collectors.kube.budgets import build_budget_row
from collectors.kube.collection import Collection
from collectors.kube.devices import Dra, read_hami_register
from collectors.kube.events import (
    REFUSALS,
    build_event_row,
    find_controller_kind,
    is_refusal,
    read_controller_reasons,
)
from collectors.kube.lookup import LiveLookup
from collectors.kube.nodes import build_node_row
from collectors.kube.owners import Owners, TopOwner
from collectors.kube.pending_workloads import (
    VOLCANO_JOB,
    JobObjects,
    find_group,
    list_pending_rows,
    needs_volcano_jobs,
)
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.polls import Polls
from collectors.kube.queues import Queues
from collectors.kube.quotas import list_quota_rows, read_quota_kinds
from collectors.kube.readable import PageDecoder
from collectors.kube.reservation_pods import find_groups, is_holder, remap
from collectors.kube.shapes import CustomObject, Event, Meta, Node, Partial, Pod
from collectors.kube.unlisted_pods import UnlistedPods
from collectors.kube.watches import NODES, PODS, Watches
from fallow.kube.api import ApiConnection
from fallow.kube.discovery import Discovery
from fallow.kube.listing import PARTIAL, Listing
from fallow.tables import Batch

T = TypeVar("T", Partial, Node, Pod, Event, CustomObject)
K = TypeVar("K", Node, Pod)
Row = dict[str, Any]

NAMESPACES, EVENTS = "/api/v1/namespaces", "/api/v1/events"
QUIET = timedelta(minutes=5)
"""A watch without data for this long is out of date: bookmarks arrive every minute."""


class ObjectSource(Protocol):
    """Where the objects of a cluster are read."""

    host: str

    def list(
        self,
        path: str,
        shape: type[T],
        *,
        accept: str | None = None,
        query: dict[str, str] | None = None,
    ) -> Iterator[T]:
        """Yield the objects of a kind that every cluster has."""

    def list_custom(self, group: str, plural: str) -> Iterator[CustomObject]:
        """Yield the objects of a kind that may not be served here."""

    def resolve(self, pod: Meta) -> TopOwner | None:
        """Return the topmost owner of a pod; None = unknown."""


class LiveObjects:
    """The objects that an API server lists; each list is a poll."""

    def __init__(self, api: ApiConnection, polls: Polls, *, page_size: int) -> None:
        self._api, self._polls, self._limit = api, polls, page_size
        self.host = api.host
        self._discovery = Discovery(api)
        self.resolve = Owners(LiveLookup(api, self._discovery, polls, limit=page_size)).top

    def list_custom(self, group: str, plural: str) -> Iterator[CustomObject]:
        """Yield the objects of a kind that may not be served here."""
        path: str | None = None
        with self._polls.discovery(self.host, group):
            path = self._discovery.collection(group, plural)
        if path is not None:
            yield from self.list(path, CustomObject)

    def list(
        self,
        path: str,
        shape: type[T],
        *,
        accept: str | None = None,
        query: dict[str, str] | None = None,
    ) -> Iterator[T]:
        """Yield the objects at a path, each once."""
        met: set[str] = set()  # a list that expired in the middle returns objects again
        query_text = "".join(f"?{value}" for value in (query or {}).values())
        with self._polls.begin(f"{self.host}{path}{query_text}") as poll:
            decoder = PageDecoder(shape, poll.reject)
            for page in Listing(
                self._api, path, decoder, limit=self._limit, accept=accept, query=query
            ):
                for item in page:
                    uid = item.metadata.uid
                    if uid not in met or not uid:
                        met.add(uid)
                        poll.samples += 1
                        yield item


class Survey:
    """The results of one poll; `nodes` and `pods` yield rows, the rest is stored for them.

    With `watches` in use, nodes and pods come from the watches, with the time at which the server
    last confirmed them; without, they are listed.
    """

    def __init__(
        self,
        source: ObjectSource,
        team_labels: Sequence[str],
        *,
        cluster: str,
        clock: Callable[[], datetime],
        polls: Polls,
        unlisted: UnlistedPods,
        watches: Watches | None = None,
    ) -> None:
        self._watches = watches if watches is not None and watches.usable else None
        self._source, self._team_labels = source, team_labels
        self._polls, self._unlisted = polls, unlisted
        self._cluster, self._clock = cluster, clock
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._protections: dict[str, dict[str, str]] = {}
        self._parts: dict[str, Fraction] = {}
        self._registers: dict[str, dict[str, float]] = {}
        self._queues = Queues()
        self._dra = Dra()
        self._addresses: dict[tuple[str, str], None] = {}
        """Addresses with their nodes, the newest last."""
        self._gpu_nodes: set[str] = set()
        self._gpu_pods: set[str] = set()
        self._gpu_workloads: set[tuple[str | None, str | None, str | None]] = set()
        self._jobs = JobObjects()
        self._groups_with_pods: set[tuple[str, str]] = set()

    def batches(self) -> Iterator[Batch]:
        """Yield all inventory in the order in which rows need each other.

        Raises:
            TemporaryError: the server does not respond (already recorded).
        """
        self.prepare()
        rejections = self._polls.rejections
        yield from build_batches("node", self.nodes(), rejections)
        yield from build_batches("pod", self.pods(), rejections)
        rows = address_rows(self._addresses, cluster=self._cluster, now=self._clock())
        yield from build_batches("address", rows, rejections)
        yield from build_batches("pending_workload", self._pending(), rejections)
        yield from build_batches("quota", self._quotas(), rejections)
        yield from build_batches("disruption_budget", self._budgets(), rejections)
        yield from build_batches("event", self._events(), rejections)

    def prepare(self) -> None:
        """Read what the rows of nodes and pods refer to: claims, namespaces, queues."""
        self._dra = self._read_claims()
        for namespace in self._source.list(NAMESPACES, Partial, accept=PARTIAL):
            meta = namespace.metadata
            self._namespaces[meta.name] = meta.labels or {}
            self._protections[meta.name] = meta.protections
        self._jobs = JobObjects(
            workloads=list(self._source.list_custom("kueue.x-k8s.io", "workloads")),
            volcano_groups=list(self._source.list_custom("scheduling.volcano.sh", "podgroups")),
        )
        if self._jobs.workloads:
            flavors = list(self._source.list_custom("kueue.x-k8s.io", "resourceflavors"))
            self._jobs = msgspec.structs.replace(self._jobs, flavors=flavors)
        self._queues.add_groups(self._jobs.volcano_groups)
        self._queues.add_groups(self._source.list_custom("scheduling.run.ai", "podgroups"))
        self._queues.add_workloads(self._jobs.workloads)

    def _read_claims(self) -> Dra:
        slices = list(self._source.list_custom("resource.k8s.io", "resourceslices"))
        if not slices:
            return Dra()
        return Dra(slices, self._source.list_custom("resource.k8s.io", "resourceclaims"))

    def nodes(self) -> Iterator[Row]:
        """Yield rows of the `node` table."""
        if self._watches is None:
            yield from (self.node(node) for node in self._source.list(NODES, Node))
            return
        for node, at in self._from_watch(NODES, self._watches.nodes):
            yield self.node(node, at)

    def pods(self) -> Iterator[Row]:
        """Yield rows of the `pod` table: first pods, then GPU groups, then deleted pods."""
        self._unlisted.begin()
        reserved_rows: list[tuple[Meta, Row]] = []
        before = len(self._polls.rows)
        pods_listed: Iterator[tuple[Pod, datetime | None]]
        if self._watches is None:
            pods_listed = ((pod, None) for pod in self._source.list(PODS, Pod))
        else:
            pods_listed = self._from_watch(PODS, self._watches.pods)
        for pod, at in pods_listed:
            row = self.pod(pod, at)
            if is_in_group(pod.metadata):
                reserved_rows.append((pod.metadata, row))
            else:
                yield row
        yield from remap(reserved_rows)
        pod_polls = [r for r in self._polls.rows[before:] if r["target"].endswith(PODS)]
        # A pod that was refused exists, although the list lacks it.
        if all(r["up"] and not r["rejected"] for r in pod_polls):
            yield from self._unlisted.complete(self._clock())

    def _from_watch(
        self, path: str, collection: Collection[K]
    ) -> Iterator[tuple[K, datetime | None]]:
        """Yield a watch's current objects, and record a poll with the time of their state."""
        objects, at = collection.current() or ([], self._clock())
        silent = self._clock() - at
        late = f"the watch said nothing for {silent}" if silent > QUIET else None
        self._polls.record(f"{self._source.host}{path}", at, len(objects), late, end=at)
        yield from ((item, at) for item in objects)

    def _keep_addresses(self, pairs: Iterable[tuple[str, str]]) -> None:
        for pair in pairs:
            self._addresses.pop(pair, None)
            self._addresses[pair] = None

    def node(self, node: Node, at: datetime | None = None) -> Row:
        """Return one node's row as of a time (now), and store what its pods' rows need."""
        name, now = node.metadata.name, at or self._clock()
        row = build_node_row(node, cluster=self._cluster, now=now, dra=self._dra)
        self._keep_addresses(list_node_addresses(node))
        self._parts[name] = row.get(PART, Fraction(1))
        registered = read_hami_register(node.metadata.annotations)
        self._registers[name] = {device.id: device.devmem for device in registered}
        if row["gpu_count"]:
            self._gpu_nodes.add(name)
        return row

    def pod(self, pod: Pod, at: datetime | None = None) -> Row:
        """Return one pod's row as of a time (now)."""
        row = build_pod_row(pod, self._build_context(at))
        self._unlisted.saw(row)
        if (group := find_group(pod.metadata)) is not None:
            self._groups_with_pods.add(group)
        self._keep_addresses(list_pod_addresses(pod))
        if row.get("gpu_resource"):
            self._gpu_pods.add(pod.metadata.uid)
            self._gpu_workloads.add(
                (row.get("workload_kind"), pod.metadata.namespace, row.get("workload"))
            )
        return row

    def _build_context(self, at: datetime | None = None) -> PodContext:
        """Return what rows of pods need of other objects, as of a time (now)."""
        return PodContext(
            cluster=self._cluster,
            now=self._clock if at is None else lambda: at,
            resolve=self._source.resolve,
            team_labels=self._team_labels,
            namespaces=self._namespaces,
            protections=self._protections,
            parts=self._parts,
            registers=self._registers,
            refused=self._polls.rejections,
            queues=self._queues,
            dra=self._dra,
        )

    def _pending(self) -> Iterator[Row]:
        """Yield rows of the `pending_workload` table: jobs that may wait without pods."""
        jobs = self._jobs
        listed = (
            list(self._source.list_custom(VOLCANO_JOB[0], "jobs"))
            if needs_volcano_jobs(jobs.volcano_groups)
            else ()
        )
        objects = msgspec.structs.replace(
            jobs,
            groups=list(self._source.list_custom("scheduling.x-k8s.io", "podgroups")),
            volcano_jobs={(job.metadata.namespace, job.metadata.name): job for job in listed},
        )
        yield from list_pending_rows(
            objects,
            self._build_context(),
            frozenset(self._groups_with_pods),
            self._polls.rejections,
        )

    def _quotas(self) -> Iterator[Row]:
        build = partial(
            list_quota_rows, cluster=self._cluster, now=self._clock(), queues=self._queues
        )
        for kind in read_quota_kinds():
            items = self._source.list_custom(kind.group, kind.plural)
            yield from build_each("quota", items, partial(build, kind), self._polls.rejections)

    def _budgets(self) -> Iterator[Row]:
        now = self._clock()
        for item in self._source.list_custom("policy", "poddisruptionbudgets"):
            yield build_budget_row(item, cluster=self._cluster, now=now)

    def _events(self) -> Iterator[Row]:
        for kind, names_wanted in (("Pod", self._gpu_pods), ("Node", self._gpu_nodes)):
            if not names_wanted:
                continue
            query = {"fieldSelector": f"involvedObject.kind={kind}"}
            for event in self._source.list(EVENTS, Event, query=query):
                about = event.involved_object
                if (about.uid if kind == "Pod" else about.name) in names_wanted:
                    yield build_event_row(event, cluster=self._cluster)
        for reason in REFUSALS:
            for event in self._source.list(
                EVENTS, Event, query={"fieldSelector": f"reason={reason}"}
            ):
                if is_refusal(event):
                    yield build_event_row(event, cluster=self._cluster)
        yield from self._controller_events()

    def _controller_events(self) -> Iterator[Row]:
        """Yield what controllers say of restarts and ends of workloads that have GPU pods here."""
        kinds = {kind for kind, _, _ in self._gpu_workloads}
        for api_kind in sorted(
            {a for (a, _), k in read_controller_reasons().items() if k in kinds}
        ):
            query = {"fieldSelector": f"involvedObject.kind={api_kind}"}
            for event in self._source.list(EVENTS, Event, query=query):
                about, kind = event.involved_object, find_controller_kind(event)
                if (kind, about.namespace, about.name) in self._gpu_workloads:
                    yield {**build_event_row(event, cluster=self._cluster), "kind": kind}


def is_in_group(meta: Meta) -> bool:
    """Return whether a pod shares a GPU through KAI, or holds one for pods that do."""
    return is_holder(meta) or bool(find_groups(meta))
