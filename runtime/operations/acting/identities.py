"""Complete identities at planning time: what stored rows lack is read from the cluster's API.

pods with devices, without their owner's uid ─► nodes, pods, owners of the API ─► views with them
                                                                             (nothing is stored)
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from actions.cluster.client import connect
from actions.facts import identity
from collectors.kube.collector import KubernetesCollector
from fallow.action_models import Facts
from fallow.errors import FallowError
from fallow.kube.api import BackOff
from fallow.protocols import Views
from fallow.settings import Settings
from fallow.tables import get_schema
from fallow.window import Window
from runtime.operations.queries import load_sql
from warehouse.overlay import overlay_inventory

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient
    from warehouse.lake import Warehouse

HASH = 32
"""Digits of a uid that a source without uids computes from a name; the API's have hyphens."""


class _EvidencePod(NamedTuple):
    """A pod in the evidence: where its devices are, and its uid if the evidence has one."""

    node: str | None
    uid: str


def build_views_with_identities(
    warehouse: "Warehouse", settings: Settings, window: Window, now: datetime
) -> Views:
    """Return views in which pods that hold devices have the owners that the API shows.

    Only a pod that is certainly the one of the evidence counts: by its uid, else by name and node,
    and only from its own start on. Other pods of its workload are added, so that the workload is
    judged as a whole. If the rows are complete, if no live source is set, or if the API does not
    respond, the views are the warehouse's own.
    """
    if settings.kubernetes.enabled or not _has_live_source(settings):
        return warehouse
    evidence_pods = _drop_owner(warehouse, settings, window)
    if not evidence_pods:
        return warehouse
    try:
        nodes, pods = _read_inventory(settings, now)
    except FallowError:
        return warehouse  # each case gets the reason: see `with_reasons`
    certain = [
        (row["namespace"], row["pod"]) in evidence_pods
        and _is_same_pod(evidence_pods[row["namespace"], row["pod"]], row["uid"], row["node"])
        for row in pods.select(["namespace", "pod", "uid", "node"]).to_pylist()
    ]
    owners = pods.filter(pa.array(certain, pa.bool_())).column("workload_uid").drop_null()
    if not len(owners):
        return warehouse
    workload_pods = pods.filter(pc.fill_null(pc.is_in(pods.column("workload_uid"), owners), False))
    return overlay_inventory(warehouse, nodes, workload_pods, window)


def add_reasons(settings: Settings, facts: Sequence[Facts]) -> tuple[list[Facts], list[str]]:
    """Return facts with the reason why their object is not known, and a note of the reasons."""
    if not any(identity.is_unresolved(f) for f in facts) or not _has_live_source(settings):
        return [*facts], []
    try:
        resolved_facts = identity.identify(facts, _connect_cluster(settings))
    except FallowError as error:
        resolved_facts = identity.mark_unidentified(
            facts, f"no Kubernetes API can be asked: {error.message}"
        )
    unresolved_facts = [f for f in resolved_facts if identity.is_unresolved(f)]
    if not unresolved_facts:
        return resolved_facts, []
    first = min(unresolved_facts, key=lambda f: f.finding.id)
    cases = "1 case is" if len(unresolved_facts) == 1 else f"{len(unresolved_facts)} cases is"
    who = first.finding.subject.workload
    return resolved_facts, [
        f"the identity of {cases} unknown, none acts: {who}: {first.unidentified}"
    ]


def _has_live_source(settings: Settings) -> bool:
    sources = (settings.prometheus.url, settings.exporters.targets, settings.kubernetes.enabled)
    return settings.actions.enabled or any(sources)


def _drop_owner(
    warehouse: "Warehouse", settings: Settings, window: Window
) -> dict[tuple[str, str], list[_EvidencePod]]:
    rows = warehouse.query(
        load_sql("held_without_owner"),
        {"cluster": settings.cluster, "since": window.start, "until": window.end},
    ).to_pylist()
    pods: dict[tuple[str, str], list[_EvidencePod]] = defaultdict(list)
    for row in rows:
        pods[row["namespace"], row["pod"]].append(_EvidencePod(row["node"], row["pod_uid"]))
    return pods


def _is_same_pod(seen: Iterable[_EvidencePod], uid: str, node: str | None) -> bool:
    """Return whether a pod of the API is one that the evidence names."""
    return any(
        pod.node == node is not None if len(pod.uid) == HASH and "-" not in pod.uid
        else pod.uid == uid
        for pod in seen
    )  # fmt: skip


def _read_inventory(settings: Settings, now: datetime) -> tuple[pa.Table, pa.Table]:
    api = _connect_cluster(settings).api
    collector = KubernetesCollector(settings.kubernetes, settings.cluster, lambda: now, api=api)
    parts: dict[str, list[pa.Table]] = {"node": [], "pod": []}
    for batch in collector.nodes_and_pods():
        parts[batch.table].append(batch.rows)
    nodes, pods = (
        pa.concat_tables(parts[noun]) if parts[noun] else get_schema(noun).empty_table()
        for noun in ("node", "pod")
    )
    return nodes, pods


def _connect_cluster(settings: Settings) -> "KubeClient":
    return connect(settings, pause=BackOff(sleep=lambda _s: None))
