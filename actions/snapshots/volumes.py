"""VolumeSnapshots of a pod's claims (CSI, snapshot.storage.k8s.io/v1), where a class exists."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from actions.snapshots.models import SnapshotPart
from fallow.action_models import Change, Target
from fallow.errors import FallowError
from fallow.protocols import ClusterReader, Right

GROUP = "snapshot.storage.k8s.io"
DEFAULT = f"{GROUP}/is-default-class"
POLL_S = 2.0
RIGHTS = (
    Right("", "persistentvolumeclaims", ("get",)),
    Right("storage.k8s.io", "storageclasses", ("get",)),
    Right(GROUP, "volumesnapshotclasses", ("list",)),
    Right(GROUP, "volumesnapshots", ("get", "create")),
)
_LONGEST = 253


class ClusterWriter(ClusterReader, Protocol):
    """A cluster that also takes writes."""

    def send(self, change: Change, *, dry_run: bool) -> Any:
        """Send one write and return the answer."""
        ...


class VolumeSnapshotError(FallowError):
    """Report a claim that cannot be snapshot, and why."""


def list_claims(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    sources = (v.get("persistentVolumeClaim") for v in pod["spec"].get("volumes", ()))
    return sorted({c["claimName"] for c in sources if c})


def request_snapshot(
    cluster: ClusterWriter, namespace: str, claim: str, snapshot: str, target: Target
) -> str:
    """Request a VolumeSnapshot of a claim and return its path; a second call creates no second one.

    Raises:
        VolumeSnapshotError: no such claim, no class for its driver, or the API refuses.
    """
    base = f"/apis/{GROUP}/v1"
    claim_object = cluster.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    if claim_object is None:
        raise VolumeSnapshotError(f"claim {namespace}/{claim} is not there")
    class_name = claim_object["spec"].get("storageClassName")
    storage = (
        cluster.get(f"/apis/storage.k8s.io/v1/storageclasses/{class_name}") if class_name else None
    )
    driver = storage and storage.get("provisioner")
    if not driver:
        raise VolumeSnapshotError(
            f"claim {namespace}/{claim} has no storage class that says its driver"
        )
    snapshot_class = _find_class(cluster, driver)
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
            "volumeSnapshotClassName": snapshot_class,
            "source": {"persistentVolumeClaimName": claim},
        },
    }
    if cluster.get(f"{path}/{name}") is None:
        change = Change(target, "POST", path, body, "application/json", guarded=False)
        result = cluster.send(change, dry_run=False)
        if result.code >= _ERRORS:
            raise VolumeSnapshotError(
                f"the VolumeSnapshot of {namespace}/{claim} was refused: {result.reason}"
            )
    return f"{path}/{name}"


def await_ready(
    cluster: ClusterReader,
    paths: Sequence[str],
    *,
    within_s: float,
    ticks: Callable[[], float],
    sleep: Callable[[float], object],
) -> list[SnapshotPart]:
    """Poll VolumeSnapshots until each is ready, reports an error, or the time is over."""
    until = ticks() + within_s
    parts: dict[str, SnapshotPart] = {}
    while True:
        for path in paths:
            if path not in parts and (part := _build_part(path, cluster.get(path))) is not None:
                parts[path] = part
        if len(parts) == len(paths):
            break
        if ticks() >= until:
            note = f"not ready within {within_s:g} s"
            parts |= {
                p: SnapshotPart("volume", p, verified=False, note=note)
                for p in paths - parts.keys()
            }
            break
        sleep(POLL_S)
    return [parts[path] for path in paths]


def _build_part(path: str, volume_snapshot: Mapping[str, Any] | None) -> SnapshotPart | None:
    if volume_snapshot is None:
        return SnapshotPart("volume", path, verified=False, note="it is gone")
    status = volume_snapshot.get("status") or {}
    if status.get("readyToUse"):
        return SnapshotPart("volume", path, verified=True, note=str(status.get("restoreSize", "")))
    if error := status.get("error"):
        return SnapshotPart(
            "volume", path, verified=False, note=str(error.get("message", "it failed"))
        )
    return None


def _find_class(cluster: ClusterReader, driver: str) -> str:
    """Return the class for a driver: the default one, else the first by name."""
    collection = cluster.collection("VolumeSnapshotClass", GROUP)
    fitting = (
        [c for c in cluster.items(collection) if c.get("driver") == driver] if collection else []
    )
    if not fitting:
        raise VolumeSnapshotError(f"no VolumeSnapshotClass for driver {driver}")

    def order(snapshot_class: Mapping[str, Any]) -> tuple[bool, str]:
        annotations = snapshot_class["metadata"].get("annotations") or {}
        return annotations.get(DEFAULT) != "true", snapshot_class["metadata"]["name"]

    return str(min(fitting, key=order)["metadata"]["name"])


_ERRORS = 300


class RequestedSnapshots(msgspec.Struct, frozen=True):
    """VolumeSnapshots that were requested, and claims that cannot be snapshot."""

    paths: tuple[str, ...]
    missing: tuple[str, ...]


def request_snapshots(
    cluster: ClusterWriter, pods: Sequence[Mapping[str, Any]], snapshot: str, target: Target
) -> RequestedSnapshots:
    """Request a VolumeSnapshot of every claim that pods mount, each once."""
    paths, missing = [], []
    claims_wanted = sorted(
        {(p["metadata"]["namespace"], claim) for p in pods for claim in list_claims(p)}
    )
    for namespace, claim in claims_wanted:
        try:
            paths.append(request_snapshot(cluster, namespace, claim, snapshot, target))
        except FallowError as error:
            missing.append(str(error))
    return RequestedSnapshots(tuple(paths), tuple(missing))
