"""Identity at planning time: what stored rows leave open is asked of the cluster's API.

held pods without an owner's uid ─► nodes, pods, owners of the API ─► views that know them
                                                                       (nothing is stored)
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fallow.acting import Facts
from fallow.errors import FallowError
from fallow.seams import Views
from fallow.settings import Settings
from fallow.tables import schema
from fallow.window import Window
from runtime.queries import sql

if TYPE_CHECKING:
    from actions.cluster.door import Door
    from warehouse.lake import Warehouse

HASH = 32
"""Digits of a uid that a source without uids makes of a name; the API's have hyphens."""


class _Seen(NamedTuple):
    """A pod that the evidence names: where its devices are, and its uid where it has one."""

    node: str | None
    uid: str


def views_with_identities(
    warehouse: "Warehouse", settings: Settings, window: Window, now: datetime
) -> Views:
    """Return views in which pods that hold devices have the owners that the API shows.

    Only a pod that is certainly the one of the evidence counts: by its uid, else by name and node,
    and from its own start on. The pods of its workload that the evidence does not name are there
    too, so that the workload is judged as a whole. Where rows tell all, where no live source is
    set, or where the API does not answer, the views are the warehouse's own.
    """
    if settings.kubernetes.enabled or not _live(settings):
        return warehouse
    seen = _without_owner(warehouse, settings, window)
    if not seen:
        return warehouse
    try:
        nodes, pods = _listed(settings, now)
    except FallowError:
        return warehouse  # why is said of each case: see `with_reasons`
    certain = [
        (row["namespace"], row["pod"]) in seen
        and _is(seen[row["namespace"], row["pod"]], row["uid"], row["node"])
        for row in pods.select(["namespace", "pod", "uid", "node"]).to_pylist()
    ]
    owners = pods.filter(pa.array(certain, pa.bool_())).column("workload_uid").drop_null()
    if not len(owners):
        return warehouse
    whole = pods.filter(pc.fill_null(pc.is_in(pods.column("workload_uid"), owners), False))
    from warehouse.overlay import with_inventory  # noqa: PLC0415  (the engine loads in 0.3 s)

    return with_inventory(warehouse, nodes, whole, window)


def with_reasons(settings: Settings, facts: Sequence[Facts]) -> tuple[list[Facts], list[str]]:
    """Return facts that say why it is not known which object they are about, and a note of it."""
    from actions.facts import identity  # noqa: PLC0415  (loads the API's client)

    if not any(identity.unresolved(f) for f in facts) or not _live(settings):
        return [*facts], []
    try:
        found = identity.identified(facts, _door(settings))
    except FallowError as error:
        found = identity.unidentified(facts, f"no Kubernetes API can be asked: {error.message}")
    left = [f for f in found if identity.unresolved(f)]
    if not left:
        return found, []
    first = min(left, key=lambda f: f.finding.id)
    cases = "1 case is" if len(left) == 1 else f"{len(left)} cases is"
    who = first.finding.subject.workload
    return found, [f"the identity of {cases} unknown, none acts: {who}: {first.unidentified}"]


def _live(settings: Settings) -> bool:
    sources = (settings.prometheus.url, settings.exporters.targets, settings.kubernetes.enabled)
    return settings.actions.enabled or any(sources)


def _without_owner(
    warehouse: "Warehouse", settings: Settings, window: Window
) -> dict[tuple[str, str], list[_Seen]]:
    rows = warehouse.query(
        sql("held_without_owner"),
        {"cluster": settings.cluster, "since": window.start, "until": window.end},
    ).to_pylist()
    found: dict[tuple[str, str], list[_Seen]] = defaultdict(list)
    for row in rows:
        found[row["namespace"], row["pod"]].append(_Seen(row["node"], row["pod_uid"]))
    return found


def _is(seen: Iterable[_Seen], uid: str, node: str | None) -> bool:
    """Say whether a pod of the API is one that the evidence names."""
    return any(
        one.node == node is not None if len(one.uid) == HASH and "-" not in one.uid
        else one.uid == uid
        for one in seen
    )  # fmt: skip


def _listed(settings: Settings, now: datetime) -> tuple[pa.Table, pa.Table]:
    from collectors.kube.collector import KubernetesCollector  # noqa: PLC0415

    api = _door(settings).api
    collector = KubernetesCollector(settings.kubernetes, settings.cluster, lambda: now, api=api)
    parts: dict[str, list[pa.Table]] = {"node": [], "pod": []}
    for batch in collector.nodes_and_pods():
        parts[batch.table].append(batch.rows)
    nodes, pods = (
        pa.concat_tables(parts[noun]) if parts[noun] else schema(noun).empty_table()
        for noun in ("node", "pod")
    )
    return nodes, pods


def _door(settings: Settings) -> "Door":
    from actions.cluster.door import connect  # noqa: PLC0415
    from fallow.kube.api import Pause  # noqa: PLC0415

    return connect(settings, pause=Pause(sleep=lambda _s: None))
