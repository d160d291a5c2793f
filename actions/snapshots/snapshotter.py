"""Keep what a workload would lose, check it, and give it back on undo.

take:     manifests ─► volumes ─► home and packages of every pod ─► index, written last
restore:  what did not lie on a claim is written again, and the trees are compared
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from actions.snapshots import archive, volumes
from actions.snapshots.containers import Place, Shell
from actions.snapshots.nouns import Part, Restored, Snapshot, What, as_document
from actions.snapshots.store import Store
from fallow.acting import Intent, Target
from fallow.errors import FallowError
from fallow.seams import Right
from fallow.snapshot_settings import SnapshotSettings

INDEX = "snapshot.json"
RIGHTS = (
    Right("", "pods", ("get",)),
    Right("", "pods/exec", ("create", "get")),
    *volumes.RIGHTS,
)
_GPU = ("nvidia.com/", "amd.com/", "habana.ai/", "gpu.intel.com/", "huawei.com/")


class Snapshotter:
    """Takes and restores snapshots. `clock` says the time; `sleep` waits between two looks."""

    def __init__(
        self,
        cluster: volumes.Sender,
        shell: Shell,
        store: Store,
        settings: SnapshotSettings,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster, self._shell, self._store = cluster, shell, store
        self._settings, self._clock, self._sleep = settings, clock, sleep

    def take(self, intent: Intent, what: Collection[What]) -> Snapshot:
        """Keep what is asked for of every pod that the intent would stop; nothing is raised.

        What cannot be kept is in `missing`: a snapshot with anything missing is not verified.
        """
        at, target = self._clock(), intent.target
        name = hashlib.sha256(f"{target.uid}\x1f{at.isoformat()}".encode()).hexdigest()[:12]
        root = "/".join(
            _safe(p) for p in (target.cluster, target.namespace, target.kind, target.name, name)
        )
        missing: list[str] = []
        parts: list[Part] = []
        pods = self._pods(intent, missing)
        if "manifest" in what:
            self._try(missing, parts, lambda: [self._manifests(intent, pods, root)])
        asked = volumes.Asked((), ())
        if "volume" in what:
            asked = volumes.ask_all(self._cluster, pods, name, target)
            missing += asked.missing
        for pod in pods:
            place, base = _place(pod), f"{root}/{_safe(pod['metadata']['name'])}"
            if "home" in what:
                for n, folder in enumerate(self._folders(pod, place, missing)):
                    key = f"{base}/files-{n}.tar.gz"
                    self._try(missing, parts, self._archived(place, folder, key))
            if "environment" in what:
                self._try(missing, parts, self._packages(place, f"{base}/packages.txt"))
        if asked.paths:
            self._try(missing, parts, lambda: self._ready(asked.paths))
        made = Snapshot(name, target, at, tuple(parts), tuple(missing))
        index: list[Part] = []
        self._try(missing, index, lambda: [self._index(made, root)])
        return msgspec.structs.replace(made, missing=tuple(missing))

    def restore(self, snapshot: Snapshot, target: Target) -> list[Restored]:
        """Give back to the target's running pods what their first ones held, in order of names."""
        pods = sorted(
            (p for p in self._cluster.pods(target) if _running(p)),
            key=lambda p: str(p["metadata"]["name"]),
        )
        kept = [p for p in snapshot.parts if p.what == "home"]
        before = sorted({p.pod for p in kept})
        names = [p["metadata"]["name"] for p in pods]
        if set(before) <= set(names):  # a StatefulSet's and a notebook's pods keep their names
            pods = [p for p in pods if p["metadata"]["name"] in before]
        now = dict(zip(before, pods, strict=False))
        out = []
        for part in kept:
            if part.pod not in now:
                out.append(Restored(part, "failed", "no running pod to give it back to"))
                continue
            place = Place(part.namespace, now[part.pod]["metadata"]["name"], part.container)
            out.append(archive.restore(self._shell, self._store, part, place))
        return out

    def verified(self, snapshot: Snapshot) -> bool:
        """Read every archive back again and tell whether all is still there and whole."""
        return snapshot.verified and all(
            archive.verified(self._store, p) for p in snapshot.parts if p.what == "home"
        )

    def _pods(self, intent: Intent, missing: list[str]) -> list[Mapping[str, Any]]:
        out = []
        for held in intent.frees:
            path = f"/api/v1/namespaces/{held.namespace}/pods/{held.pod}"
            try:
                found = self._cluster.get(path)
            except FallowError as error:
                missing.append(str(error))
                continue
            if found is None or found["metadata"].get("uid") != held.uid:
                missing.append(f"pod {held.namespace}/{held.pod} is another one by now")
            else:
                out.append(found)
        return out

    def _manifests(self, intent: Intent, pods: Sequence[Mapping[str, Any]], root: str) -> Part:
        """Keep the objects that are touched, as they are, and the pods."""
        paths = [c.read or c.path for c in intent.changes if c.door == "kubernetes"]
        shown = {path: self._cluster.get(path) for path in dict.fromkeys(paths)}
        document = {
            "target": msgspec.to_builtins(intent.target),
            "objects": shown,
            "pods": list(pods),
            "undo": msgspec.to_builtins(intent.undo),
        }
        data = msgspec.json.encode(document)
        return archive.keep_bytes(self._store, f"{root}/manifests.json", data, "manifest")

    def _folders(
        self, pod: Mapping[str, Any], place: Place, missing: list[str]
    ) -> list[archive.Folder]:
        wanted = list(self._settings.paths)
        try:
            if not wanted:
                said = b"".join(self._shell.run(place, ["printenv", "HOME"]))
                wanted = [said.decode("utf-8", "replace").strip()]
        except FallowError as error:
            missing.append(f"{place.namespace}/{place.pod}: $HOME is not known: {error}")
            return []
        if wanted in ([""], ["/"]):
            missing.append(f"{place.namespace}/{place.pod}: $HOME is {wanted[0]!r}: set paths")
            return []
        return archive.folders(pod, place.container, wanted)

    def _archived(
        self, place: Place, folder: archive.Folder, key: str
    ) -> Callable[[], Iterable[Part]]:
        settings = self._settings

        def take() -> Iterable[Part]:
            return [
                archive.take(
                    self._shell,
                    self._store,
                    place,
                    folder,
                    key,
                    most=settings.max_bytes,
                    exclude=settings.exclude,
                )
            ]

        return take

    def _packages(self, place: Place, key: str) -> Callable[[], Iterable[Part]]:
        def take() -> Iterable[Part]:
            part = archive.freeze(self._shell, self._store, place, key)
            return [] if part is None else [part]

        return take

    def _ready(self, paths: Sequence[str]) -> list[Part]:
        return volumes.await_ready(
            self._cluster,
            paths,
            within_s=self._settings.ready_within.total_seconds(),
            clock=lambda: self._clock().timestamp(),
            sleep=self._sleep,
        )

    def _index(self, made: Snapshot, root: str) -> Part:
        data = msgspec.json.encode(as_document(made))
        return archive.keep_bytes(self._store, f"{root}/{INDEX}", data, "manifest")

    @staticmethod
    def _try(missing: list[str], parts: list[Part], take: Callable[[], Iterable[Part]]) -> None:
        try:
            parts += take()
        except (FallowError, OSError) as error:
            missing.append(str(error))


def _place(pod: Mapping[str, Any]) -> Place:
    """Return the container that asks for GPUs, else the first."""
    listed = pod["spec"]["containers"]
    asking = (c for c in listed if _asks(c))
    chosen = next(asking, listed[0])
    meta = pod["metadata"]
    return Place(meta["namespace"], meta["name"], chosen["name"])


def _asks(container: Mapping[str, Any]) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(name.startswith(_GPU) for name in limits)


def _running(pod: Mapping[str, Any]) -> bool:
    going = pod["metadata"].get("deletionTimestamp")
    return not going and pod.get("status", {}).get("phase") == "Running"


def _safe(word: str) -> str:
    """Return a word that names a folder and nothing else, whatever a cluster calls its objects."""
    kept = "".join(c if c.isalnum() or c in "-_.@" else "_" for c in word)
    return kept if kept.strip(".") else "_"
