"""VolumeSnapshots of a pod's claims (CSI, snapshot.storage.k8s.io/v1), where a class exists."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from actions.snapshots.nouns import Part
from fallow.acting import Change, Target
from fallow.errors import FallowError
from fallow.seams import Cluster, Right

GROUP = "snapshot.storage.k8s.io"
DEFAULT = f"{GROUP}/is-default-class"
LOOK_S = 2.0
RIGHTS = (
    Right("", "persistentvolumeclaims", ("get",)),
    Right("storage.k8s.io", "storageclasses", ("get",)),
    Right(GROUP, "volumesnapshotclasses", ("list",)),
    Right(GROUP, "volumesnapshots", ("get", "create")),
)
_LONGEST = 253


class Sender(Cluster, Protocol):
    """A cluster that also takes writes."""

    def send(self, change: Change, *, dry_run: bool) -> Any:
        """Make one write and return the answer."""
        ...


class Unable(FallowError):  # noqa: N818  (a fact about the cluster, not a defect)
    """Report a claim that cannot be snapshot, and why."""


def claims(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    named = (v.get("persistentVolumeClaim") for v in pod["spec"].get("volumes", ()))
    return sorted({c["claimName"] for c in named if c})


def ask(cluster: Sender, namespace: str, claim: str, snapshot: str, target: Target) -> str:
    """Ask for a VolumeSnapshot of a claim and return its path; asking twice asks once.

    Raises:
        Unable: no such claim, no class for its driver, or the API refuses.
    """
    base = f"/apis/{GROUP}/v1"
    found = cluster.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    if found is None:
        raise Unable(f"claim {namespace}/{claim} is not there")
    called = found["spec"].get("storageClassName")
    storage = cluster.get(f"/apis/storage.k8s.io/v1/storageclasses/{called}") if called else None
    driver = storage and storage.get("provisioner")
    if not driver:
        raise Unable(f"claim {namespace}/{claim} has no storage class that says its driver")
    chosen = _class(cluster, driver)
    name = f"fallow-{snapshot}-{claim}"[:_LONGEST].rstrip("-.")
    path = f"{base}/namespaces/{namespace}/volumesnapshots"
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "VolumeSnapshot",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "fallow"},
            "annotations": {"fallow.dev/of": f"{target.kind}/{target.name}"},
        },
        "spec": {
            "volumeSnapshotClassName": chosen,
            "source": {"persistentVolumeClaimName": claim},
        },
    }
    if cluster.get(f"{path}/{name}") is None:
        made = Change(target, "POST", path, body, "application/json", guarded=False)
        answer = cluster.send(made, dry_run=False)
        if answer.code >= _ERRORS:
            raise Unable(f"the VolumeSnapshot of {namespace}/{claim} was refused: {answer.reason}")
    return f"{path}/{name}"


def await_ready(
    cluster: Cluster,
    paths: Sequence[str],
    *,
    within_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> list[Part]:
    """Look at VolumeSnapshots until each is ready, says an error, or the time is over."""
    until = clock() + within_s
    parts: dict[str, Part] = {}
    while True:
        for path in paths:
            if path not in parts and (part := _part(path, cluster.get(path))) is not None:
                parts[path] = part
        if len(parts) == len(paths):
            break
        if clock() >= until:
            late = f"not ready within {within_s:g} s"
            parts |= {p: Part("volume", p, verified=False, note=late) for p in paths - parts.keys()}
            break
        sleep(LOOK_S)
    return [parts[path] for path in paths]


def _part(path: str, found: Mapping[str, Any] | None) -> Part | None:
    if found is None:
        return Part("volume", path, verified=False, note="it is gone")
    status = found.get("status") or {}
    if status.get("readyToUse"):
        return Part("volume", path, verified=True, note=str(status.get("restoreSize", "")))
    if error := status.get("error"):
        return Part("volume", path, verified=False, note=str(error.get("message", "it failed")))
    return None


def _class(cluster: Cluster, driver: str) -> str:
    """Return the class for a driver: the default one, else the first by name."""
    where = cluster.collection("VolumeSnapshotClass", GROUP)
    fitting = [c for c in cluster.items(where) if c.get("driver") == driver] if where else []
    if not fitting:
        raise Unable(f"no VolumeSnapshotClass for driver {driver}")

    def order(one: Mapping[str, Any]) -> tuple[bool, str]:
        notes = one["metadata"].get("annotations") or {}
        return notes.get(DEFAULT) != "true", one["metadata"]["name"]

    return str(min(fitting, key=order)["metadata"]["name"])


_ERRORS = 300


class Asked(msgspec.Struct, frozen=True):
    """VolumeSnapshots that were asked for, and claims that cannot be snapshot."""

    paths: tuple[str, ...]
    missing: tuple[str, ...]


def ask_all(
    cluster: Sender, pods: Sequence[Mapping[str, Any]], snapshot: str, target: Target
) -> Asked:
    """Ask for a VolumeSnapshot of every claim that pods mount, each once."""
    paths, missing = [], []
    wanted = sorted({(p["metadata"]["namespace"], claim) for p in pods for claim in claims(p)})
    for namespace, claim in wanted:
        try:
            paths.append(ask(cluster, namespace, claim, snapshot, target))
        except FallowError as error:
            missing.append(str(error))
    return Asked(tuple(paths), tuple(missing))
