"""The objects of a simulated world's API server, as rows that a real cluster's collector writes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from collectors.kube.dump import import_kubectl
from fallow.settings import Settings
from fallow.settings.service import WarehouseSettings
from fallow.system.process_folders import open_temporary_folder
from fallow.tables import Batch
from simulator.world import World

CLUSTER = "simulated"
KINDS = (
    "Node", "Pod", "Namespace", "ReplicaSet", "StatefulSet", "Deployment", "Job", "PyTorchJob",
    "Notebook", "InferenceService", "RayCluster", "PodDisruptionBudget", "ResourceQuota",
    "ElasticQuota.scheduling.x-k8s.io", "ClusterQueue", "LocalQueue", "Cohort", "Workload",
)  # fmt: skip


def isolate_settings(home: Path, *, threads: int = 0) -> Settings:
    """Return settings that use only one folder: a site's own settings never apply to a simulation.

    With one engine thread, many small queries take a quarter less CPU time; 0 = all cores.
    """
    return Settings(home=home, cluster=CLUSTER, warehouse=WarehouseSettings(threads=threads))


class Inventory:
    """The objects of a world's API server, as `fallow import kubectl` reads them.

    `constant`: further objects, which no controller of the world changes.
    """

    def __init__(
        self, world: World, cluster: str = CLUSTER, constant: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._constant = constant
        self._store, self._cluster, self._heard = world.store, cluster, world.heard
        self._version = 0

    def skip_deleted(self) -> None:
        """Leave out what was deleted until now: it was read before."""
        self._version = self._store.version

    def batches(self, now_s: float) -> Iterator[Batch]:
        """Yield the current objects, and the last state of those deleted since the last call."""
        self._version, changes = self._store.changes(self._version)
        deleted = [c.object for c in changes if c.type == "DELETED" and c.kind != "Event"]
        present = [o for kind in KINDS for o in self._store.list(kind)]
        uids = {o["metadata"]["uid"] for o in present}
        deleted = [o for o in deleted if o["metadata"]["uid"] not in uids]
        events = [self._heard.popleft() for _ in range(len(self._heard))]
        document = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [*present, *self._constant, *deleted, *events],
        }
        with open_temporary_folder("accuracy") as folder:
            path = folder / "dump.json"
            path.write_bytes(msgspec.json.encode(document))
            now = datetime.fromtimestamp(now_s, UTC)
            for batch in import_kubectl(path, self._cluster, now):
                if batch.table == "scrape":
                    yield _name_target(batch, f"https://kubernetes.{self._cluster}")
                else:
                    yield _end_deleted(batch, deleted) if batch.table == "pod" else batch


def _name_target(batch: Batch, target: str) -> Batch:
    """Name what was read: the dump's path is a temporary file of this machine."""
    index = batch.rows.schema.get_field_index("target")
    names = pa.array([target] * batch.rows.num_rows, pa.string())
    rows = batch.rows.set_column(index, batch.rows.schema.field(index), names)
    return Batch("scrape", rows)


def _end_deleted(batch: Batch, deleted: Sequence[Mapping[str, Any]]) -> Batch:
    """End pods at their deletion, as a watch does: inventories are read often."""
    rows_ = batch.rows
    over = pc.is_in(rows_["uid"], pa.array([o["metadata"]["uid"] for o in deleted], pa.string()))
    finished = pc.coalesce(rows_["finished_at"], pc.if_else(over, rows_["deleted_at"], None))
    last = pc.min_element_wise(rows_["last_seen"], rows_["deleted_at"])
    for name, values in (("finished_at", finished), ("last_seen", last)):
        index = rows_.schema.get_field_index(name)
        rows_ = rows_.set_column(index, rows_.schema.field(index), values)
    return Batch("pod", rows_)
