"""Keep GPUs ready with placeholders: made once, then scaled; undone to none.

KEDA served here  the Deployment stands at none; a ScaledObject scales it by the hour, or a metric
no KEDA           the Deployment stands at the median hour's head-room; notes hold the manifest

Nothing is ever deleted: the undo leaves a Deployment without pods, and a class nobody uses.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from actions.cluster.objects import Object, annotations, deep, labels, target
from actions.scaling import manifests
from actions.scaling.manifests import CLASS, CRON, MARK, WarmPool
from fallow.acting import Change, Decision, Intent, Target
from fallow.errors import RefusedError, UsageError
from fallow.seams import Cluster, Right

KEEP_READY = "shrink-headroom"
"""Keep ready what pays and let the rest go: what `fallow analyze demand` advises."""
PAUSED = "autoscaling.keda.sh/paused-replicas"
KEDA = "keda.sh"
_PAUSED_AT = f"/metadata/annotations/{PAUSED.replace('/', '~1')}"
_FIELDS = ("minReplicaCount", "maxReplicaCount", "triggers")


class Told(msgspec.Struct, frozen=True):
    """What a policy's rung says of a warm pool; the head-room comes from the finding."""

    image: str
    """An image that does nothing."""
    namespace: str = "fallow-warm-pool"
    gpus_per_pod: int = 1
    most_gpus: float | None = None
    node_selector: dict[str, str] = {}
    resource: str = manifests.GPU
    headroom_by_hour_utc: tuple[float, ...] = ()
    metric: str = ""
    prometheus: str = ""


class WarmPoolExecutor:
    """Hold the advised head-room with pods that any other pod drives out."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Fleet"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"warm-pool"})
    verbs: ClassVar[frozenset[str]] = frozenset({KEEP_READY})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "namespaces", ("get",)),
        Right("scheduling.k8s.io", "priorityclasses", ("get", "create")),
        Right("apps", "deployments", ("get", "create", "patch")),
        Right("apps", "deployments/scale", ("patch",)),
        Right(KEDA, "scaledobjects", ("get", "create", "patch")),
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return what makes the pool, or what sets one that is there to what is advised now.

        Raises:
            UsageError: the rung names no image, or the finding no head-room by the hour.
            RefusedError: the namespace is not there, or something else has the pool's name.
            TemporaryError: the API does not answer.
        """
        pool = pool_of(decision)
        space = cluster.get(f"/api/v1/namespaces/{pool.namespace}")
        if space is None:
            raise RefusedError(
                f"there is no namespace {pool.namespace}",
                hint="make one for placeholders, with no quota and nothing else in it",
            )
        root = cluster.collection("Deployment", "apps", pool.namespace)
        there = cluster.get(f"{root}/{pool.name}")
        keda = cluster.collection("ScaledObject", KEDA, pool.namespace)
        if there is None:
            return _made(pool, space, f"{root}", keda, cluster)
        if labels(there).get(MARK) != pool.name:
            raise RefusedError(f"Deployment {pool.namespace}/{pool.name} is somebody else's")
        return _set(pool, there, f"{root}/{pool.name}", keda, cluster)


def pool_of(decision: Decision) -> WarmPool:
    """Return the warm pool that a decision asks for.

    Raises:
        UsageError: the rung or the finding does not say what is needed.
    """
    said = {k: v for k, v in decision.parameters.items() if k in Told.__struct_fields__}
    try:
        told = msgspec.convert(said, Told, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the warm pool is not described as it must be: {error}",
            hint="the rung names at least an image that does nothing: image: IMAGE",
        ) from error
    if len(told.headroom_by_hour_utc) != CRON or told.gpus_per_pod < 1:
        raise UsageError("a warm pool takes head-room for 24 hours, and pods of one GPU or more")
    return WarmPool(
        "fallow-warm-pool",
        told.namespace,
        told.image,
        told.headroom_by_hour_utc,
        told.gpus_per_pod,
        told.most_gpus,
        told.node_selector,
        told.resource,
        told.metric,
        told.prometheus,
    )


def _made(pool: WarmPool, space: Object, root: str, keda: str | None, cluster: Cluster) -> Intent:
    """Return the POSTs of a new pool; undone, no placeholder runs."""
    told = target(space, cluster.name, "Namespace", "v1")
    steady = _steady(pool)
    changes = []
    classes = cluster.collection("PriorityClass", "scheduling.k8s.io")
    if classes is not None and cluster.get(f"{classes}/{CLASS}") is None:
        made = manifests.priority_class()
        changes.append(_post(told, classes, made, {"/value": made["value"]}))
    deployment = manifests.placeholders(pool, 0 if keda else steady)
    shows = {f"/metadata/labels/{MARK.replace('/', '~1')}": pool.name}
    changes.append(_post(told, root, deployment, shows))
    path = f"{root}/{pool.name}"
    if keda is None:
        undo = [_scaled(told, path, steady, 0)]
        return _intent(told, changes, undo, pool, keda)
    changes.append(_post(told, keda, manifests.scaler(pool), shows))
    undo = [_paused(told, f"{keda}/{pool.name}", None, "0")]
    return _intent(told, changes, undo, pool, keda)


def _set(pool: WarmPool, there: Object, path: str, keda: str | None, cluster: Cluster) -> Intent:
    """Return what sets a pool to the head-room that is advised now."""
    told = target(there, cluster.name, "Deployment", "apps/v1")
    scaler = cluster.get(f"{keda}/{pool.name}") if keda else None
    if keda is None or scaler is None:
        now, steady = int(deep(there, "spec", "replicas") or 0), _steady(pool)
        if now == steady:
            raise RefusedError(f"{now} placeholders stand there already")
        changes, undo = _scaled(told, path, now, steady), _scaled(told, path, steady, now)
        return _intent(told, [changes], [undo], pool, keda)
    told = target(scaler, cluster.name, "ScaledObject", f"{KEDA}/{keda.split('/')[3]}")
    wanted = manifests.scaler(pool)
    was, new = _shown(scaler), _shown(wanted)
    if was == new:
        raise RefusedError("the placeholders follow this schedule already")
    where = f"{keda}/{pool.name}"
    change = _patch(told, where, _body(wanted), was, new)
    return _intent(told, [change], [_patch(told, where, _body(scaler), new, was)], pool, keda)


def _shown(scaler: Object) -> dict[str, Any]:
    """Return what an intent writes of a ScaledObject: its schedule, and that nobody paused it."""
    spec = {f"/spec/{k}": deep(scaler, "spec", k) for k in _FIELDS}
    return {**spec, _PAUSED_AT: annotations(scaler).get(PAUSED)}


def _body(scaler: Object) -> dict[str, Any]:
    spec = {k: deep(scaler, "spec", k) for k in _FIELDS}
    paused = {"annotations": {PAUSED: annotations(scaler).get(PAUSED)}}
    return {"metadata": paused, "spec": spec}


def _intent(
    told: Target, changes: list[Change], undo: list[Change], pool: WarmPool, keda: str | None
) -> Intent:
    notes = [
        f"up to {pool.most} placeholders of {pool.gpus_per_pod} GPUs; any pod drives them out",
        "let the pool of nodes shrink to none by itself: the placeholders keep what is worth it",
    ]
    if keda is None:
        other = manifests.hpa(pool) if pool.metric else manifests.by_schedule(pool)
        notes.append(f"no KEDA here; for people to review:\n{manifests.text([other])}")
    lost = "a Deployment without pods and its PriorityClass stay: nothing is deleted"
    return Intent(told, "warm-pool", tuple(changes), tuple(undo), lost=lost, notes=tuple(notes))


def _steady(pool: WarmPool) -> int:
    """Return the placeholders that stand at all hours: the median hour's."""
    return sorted(pool.replicas(hour) for hour in range(CRON))[CRON // 2]


def _post(told: Target, root: str, body: Mapping[str, Any], shows: dict[str, Any]) -> Change:
    name = body["metadata"]["name"]
    return Change(
        told,
        "POST",
        root,
        dict(body),
        "application/json",
        read=f"{root}/{name}",
        was=dict.fromkeys(shows),
        becomes=shows,
        guarded=False,
    )


def _scaled(told: Target, path: str, now: int, to: int) -> Change:
    was, becomes = {"/spec/replicas": now}, {"/spec/replicas": to}
    scale = _patch(told, f"{path}/scale", {"spec": {"replicas": to}}, was, becomes)
    return msgspec.structs.replace(scale, read=path)


def _paused(told: Target, path: str, now: str | None, to: str | None) -> Change:
    body = {"metadata": {"annotations": {PAUSED: to}}}
    return _patch(told, path, body, {_PAUSED_AT: now}, {_PAUSED_AT: to})


def _patch(
    told: Target, path: str, body: Any, was: dict[str, Any], becomes: dict[str, Any]
) -> Change:
    """Return a patch; of an object that the action itself made nobody knows the uid before."""
    later = msgspec.structs.replace(told, resource_version=None)
    known = told.kind != "Namespace"
    return Change(later, "PATCH", path, body, was=was, becomes=becomes, guarded=known)
