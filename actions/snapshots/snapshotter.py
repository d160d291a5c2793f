"""Keep what a workload would lose, verify it, and restore it on undo.

take:     manifests ─► volumes ─► home and packages of every pod ─► index, written last
restore:  files that were not on a claim are written again, and the trees are compared
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from actions.cluster.literal_values import hide_literals
from actions.snapshots import archive, volumes
from actions.snapshots.containers import CommandRunner, ContainerRef
from actions.snapshots.models import PartKind, RestoredPart, Snapshot, SnapshotPart, to_document
from actions.snapshots.store import SnapshotStore
from fallow.action_models import Intent, Target
from fallow.errors import FallowError
from fallow.protocols import Right
from fallow.settings.snapshots import SnapshotSettings

INDEX = "snapshot.json"
RIGHTS = (Right("", "pods", ("get",)), Right("", "pods/exec", ("create", "get")), *volumes.RIGHTS)
_GPU = ("nvidia.com/", "amd.com/", "habana.ai/", "gpu.intel.com/", "huawei.com/")


class Snapshotter:
    """Takes and restores snapshots.

    `clock` returns the time, `ticks` seconds of a clock that is never set; `sleep` waits between
    two polls.
    """

    def __init__(
        self,
        cluster: volumes.ClusterWriter,
        shell: CommandRunner,
        store: SnapshotStore,
        settings: SnapshotSettings,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], object] = time.sleep,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._shell, self._store = cluster, shell, store
        self._settings, self._clock, self._sleep = settings, clock, sleep
        self._ticks = ticks

    def take(self, intent: Intent, kinds: Collection[PartKind]) -> Snapshot:
        """Keep the requested parts of every pod that the intent would stop; it raises nothing.

        Parts that cannot be kept are in `missing`: a snapshot with anything missing is not
        verified.
        """
        at, target = self._clock(), intent.target
        name = hashlib.sha256(f"{target.uid}\x1f{at.isoformat()}".encode()).hexdigest()[:12]
        root = "/".join(
            _to_folder_name(p)
            for p in (target.cluster, target.namespace, target.kind, target.name, name)
        )
        missing: list[str] = []
        parts: list[SnapshotPart] = []
        pods = self._pods(intent, missing)
        if "manifest" in kinds:
            self._try(missing, parts, lambda: [self._manifests(intent, pods, root)])
        requested = volumes.RequestedSnapshots((), ())
        if "volume" in kinds:
            requested = volumes.request_snapshots(self._cluster, pods, name, target)
            missing += requested.missing
        for pod in pods:
            container, base = (
                _choose_container(pod),
                f"{root}/{_to_folder_name(pod['metadata']['name'])}",
            )
            if "home" in kinds:
                for n, folder in enumerate(self._folders(pod, container, missing)):
                    key = f"{base}/files-{n}.tar.gz"
                    self._try(missing, parts, self._archived(container, folder, key))
            if "environment" in kinds:
                self._try(missing, parts, self._packages(container, f"{base}/packages.txt"))
        if requested.paths:
            self._try(missing, parts, lambda: self._ready(requested.paths))
        snapshot = Snapshot(name, target, at, tuple(parts), tuple(missing))
        index: list[SnapshotPart] = []
        self._try(missing, index, lambda: [self._index(snapshot, root)])
        return msgspec.structs.replace(snapshot, missing=tuple(missing))

    def restore(self, snapshot: Snapshot, target: Target) -> list[RestoredPart]:
        """Restore the parts of the first pods to the target's running pods, by order of names."""
        pods = sorted(
            (p for p in self._cluster.pods(target) if _is_running(p)),
            key=lambda p: str(p["metadata"]["name"]),
        )
        parts = [p for p in snapshot.parts if p.kind == "home"]
        before = sorted({p.pod for p in parts})
        names = [p["metadata"]["name"] for p in pods]
        if set(before) <= set(names):  # pods of a StatefulSet and of a notebook keep their names
            pods = [p for p in pods if p["metadata"]["name"] in before]
        pod_by_name = dict(zip(before, pods, strict=False))
        results = []
        for part in parts:
            if part.pod not in pod_by_name:
                results.append(RestoredPart(part, "failed", "no running pod to give it back to"))
                continue
            container = ContainerRef(
                part.namespace, pod_by_name[part.pod]["metadata"]["name"], part.container
            )
            results.append(archive.restore_part(self._shell, self._store, part, container))
        return results

    def verified(self, snapshot: Snapshot) -> bool:
        """Read every archive back again and return whether all are still there and complete."""
        return snapshot.verified and all(
            archive.is_verified(self._store, p) for p in snapshot.parts if p.kind == "home"
        )

    def _pods(self, intent: Intent, missing: list[str]) -> list[Mapping[str, Any]]:
        pods = []
        for freed in intent.frees:
            path = f"/api/v1/namespaces/{freed.namespace}/pods/{freed.pod}"
            try:
                pod = self._cluster.get(path)
            except FallowError as error:
                missing.append(str(error))
                continue
            if pod is None or pod["metadata"].get("uid") != freed.uid:
                missing.append(f"pod {freed.namespace}/{freed.pod} is another one by now")
            else:
                pods.append(pod)
        return pods

    def _manifests(
        self, intent: Intent, pods: Sequence[Mapping[str, Any]], root: str
    ) -> SnapshotPart:
        """Store the affected objects in their current state, and the pods.

        Literal values that may be secrets are left out. No restore reads them: an undo writes the
        fields that the act changed, and the owner has all the others.
        """
        paths = [c.read or c.path for c in intent.changes if c.client == "kubernetes"]
        objects = {path: self._cluster.get(path) for path in dict.fromkeys(paths)}
        document = {
            "target": msgspec.to_builtins(intent.target),
            "objects": objects,
            "pods": list(pods),
            "undo": msgspec.to_builtins(intent.undo),
        }
        data = msgspec.json.encode(hide_literals(document))
        return archive.keep_bytes(self._store, f"{root}/manifests.json", data, "manifest")

    def _folders(
        self, pod: Mapping[str, Any], container: ContainerRef, missing: list[str]
    ) -> list[archive.ArchivedFolder]:
        paths = list(self._settings.paths)
        try:
            if not paths:
                output = b"".join(self._shell.run(container, ["printenv", "HOME"]))
                paths = [output.decode("utf-8", "replace").strip()]
        except FallowError as error:
            missing.append(f"{container.namespace}/{container.pod}: $HOME is not known: {error}")
            return []
        if paths in ([""], ["/"]):
            missing.append(
                f"{container.namespace}/{container.pod}: $HOME is {paths[0]!r}: set paths"
            )
            return []
        return archive.list_folders(pod, container.container, paths)

    def _archived(
        self, container: ContainerRef, folder: archive.ArchivedFolder, key: str
    ) -> Callable[[], Iterable[SnapshotPart]]:
        settings = self._settings

        def take() -> Iterable[SnapshotPart]:
            return [
                archive.archive_folder(
                    self._shell,
                    self._store,
                    container,
                    folder,
                    key,
                    max_bytes=settings.max_bytes,
                    exclude=settings.exclude,
                )
            ]

        return take

    def _packages(self, container: ContainerRef, key: str) -> Callable[[], Iterable[SnapshotPart]]:
        def take() -> Iterable[SnapshotPart]:
            part = archive.keep_packages(self._shell, self._store, container, key)
            return [] if part is None else [part]

        return take

    def _ready(self, paths: Sequence[str]) -> list[SnapshotPart]:
        return volumes.await_ready(
            self._cluster,
            paths,
            within_s=self._settings.ready_within.total_seconds(),
            ticks=self._ticks,
            sleep=self._sleep,
        )

    def _index(self, snapshot: Snapshot, root: str) -> SnapshotPart:
        data = msgspec.json.encode(to_document(snapshot))
        return archive.keep_bytes(self._store, f"{root}/{INDEX}", data, "manifest")

    @staticmethod
    def _try(
        missing: list[str], parts: list[SnapshotPart], take: Callable[[], Iterable[SnapshotPart]]
    ) -> None:
        try:
            parts += take()
        except (FallowError, OSError) as error:
            missing.append(str(error))


def _choose_container(pod: Mapping[str, Any]) -> ContainerRef:
    """Return the container that requests GPUs, else the first."""
    containers = pod["spec"]["containers"]
    with_gpus = (c for c in containers if _is_requesting_gpus(c))
    container = next(with_gpus, containers[0])
    meta = pod["metadata"]
    return ContainerRef(meta["namespace"], meta["name"], container["name"])


def _is_requesting_gpus(container: Mapping[str, Any]) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(name.startswith(_GPU) for name in limits)


def _is_running(pod: Mapping[str, Any]) -> bool:
    is_deleting = pod["metadata"].get("deletionTimestamp")
    return not is_deleting and pod.get("status", {}).get("phase") == "Running"


def _to_folder_name(text: str) -> str:
    """Return a safe folder name for an object, whatever characters its name has."""
    name = "".join(c if c.isalnum() or c in "-_.@" else "_" for c in text)
    return name if name.strip(".") else "_"
