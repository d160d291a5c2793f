"""Create a warm pool of placeholder pods, and scale an existing one to the recommended head-room.

KEDA is served    the Deployment has zero replicas; a ScaledObject scales it by the hour or a metric
no KEDA           the Deployment has the replicas of the median hour; a note contains the manifest

Nothing is ever deleted: the undo leaves a Deployment without pods, and an unused priority class.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from actions.scaling import manifests
from actions.scaling.manifests import HOURS_PER_DAY, POOL_LABEL, PRIORITY_CLASS, WarmPool
from fallow.action_models import Change, Decision, Intent, Target
from fallow.errors import RefusedError, UsageError
from fallow.kube.objects import Object, get_annotations, get_labels, get_path, to_target
from fallow.protocols import ClusterReader, Right

KEEP_READY = "shrink-headroom"
"""Keep ready what pays off and release the rest: the advice of `fallow analyze demand`."""
PAUSED = "autoscaling.keda.sh/paused-replicas"
KEDA = "keda.sh"
_PAUSED_AT = f"/metadata/annotations/{PAUSED.replace('/', '~1')}"
_FIELDS = ("minReplicaCount", "maxReplicaCount", "triggers")


class WarmPoolSettings(msgspec.Struct, frozen=True):
    """The stage's settings of a warm pool; the head-room comes from the finding."""

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
    """Hold the recommended head-room with pods that any other pod preempts."""

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

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the writes that create the pool, or set an existing one to the current advice.

        Raises:
            UsageError: the stage names no image, or the finding has no hourly head-room.
            RefusedError: the namespace does not exist, or another object has the pool's name.
            TemporaryError: the API does not answer.
        """
        pool = read_pool(decision)
        namespace = cluster.get(f"/api/v1/namespaces/{pool.namespace}")
        if namespace is None:
            raise RefusedError(
                f"there is no namespace {pool.namespace}",
                hint="make one for placeholders, with no quota and nothing else in it",
            )
        root = cluster.collection("Deployment", "apps", pool.namespace)
        deployment = cluster.get(f"{root}/{pool.name}")
        keda = cluster.collection("ScaledObject", KEDA, pool.namespace)
        if deployment is None:
            return _create_pool(pool, namespace, f"{root}", keda, cluster)
        if get_labels(deployment).get(POOL_LABEL) != pool.name:
            raise RefusedError(f"Deployment {pool.namespace}/{pool.name} is somebody else's")
        return _update_pool(pool, deployment, f"{root}/{pool.name}", keda, cluster)


def read_pool(decision: Decision) -> WarmPool:
    """Return the warm pool that a decision requires.

    Raises:
        UsageError: a value is missing in the stage or the finding.
    """
    fields = {
        k: v for k, v in decision.parameters.items() if k in WarmPoolSettings.__struct_fields__
    }
    try:
        pool_settings = msgspec.convert(fields, WarmPoolSettings, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the warm pool is not described as it must be: {error}",
            hint="the stage names at least an image that does nothing: image: IMAGE",
        ) from error
    if len(pool_settings.headroom_by_hour_utc) != HOURS_PER_DAY or pool_settings.gpus_per_pod < 1:
        raise UsageError("a warm pool takes head-room for 24 hours, and pods of one GPU or more")
    return WarmPool(
        "fallow-warm-pool",
        pool_settings.namespace,
        pool_settings.image,
        pool_settings.headroom_by_hour_utc,
        pool_settings.gpus_per_pod,
        pool_settings.most_gpus,
        pool_settings.node_selector,
        pool_settings.resource,
        pool_settings.metric,
        pool_settings.prometheus,
    )


def _create_pool(
    pool: WarmPool, namespace: Object, root: str, keda: str | None, cluster: ClusterReader
) -> Intent:
    """Return the POSTs of a new pool; after the undo no placeholder runs."""
    namespace_target = to_target(namespace, cluster.name, "Namespace", "v1")
    steady = _compute_median_replicas(pool)
    changes = []
    classes = cluster.collection("PriorityClass", "scheduling.k8s.io")
    if classes is not None and cluster.get(f"{classes}/{PRIORITY_CLASS}") is None:
        priority_class = manifests.build_priority_class()
        changes.append(
            _build_post(
                namespace_target, classes, priority_class, {"/value": priority_class["value"]}
            )
        )
    deployment = manifests.build_placeholders(pool, 0 if keda else steady)
    marks = {f"/metadata/labels/{POOL_LABEL.replace('/', '~1')}": pool.name}
    changes.append(_build_post(namespace_target, root, deployment, marks))
    path = f"{root}/{pool.name}"
    if keda is None:
        undo = [_build_scale(namespace_target, path, steady, 0)]
        return _build_intent(namespace_target, changes, undo, pool, keda)
    changes.append(_build_post(namespace_target, keda, manifests.build_scaler(pool), marks))
    undo = [_build_pause(namespace_target, f"{keda}/{pool.name}", None, "0")]
    return _build_intent(namespace_target, changes, undo, pool, keda)


def _update_pool(
    pool: WarmPool, deployment: Object, path: str, keda: str | None, cluster: ClusterReader
) -> Intent:
    """Return the writes that set a pool to the currently recommended head-room."""
    pool_target = to_target(deployment, cluster.name, "Deployment", "apps/v1")
    scaler = cluster.get(f"{keda}/{pool.name}") if keda else None
    if keda is None or scaler is None:
        current, steady = (
            int(get_path(deployment, "spec", "replicas") or 0),
            _compute_median_replicas(pool),
        )
        if current == steady:
            raise RefusedError(f"{current} placeholders stand there already")
        changes, undo = (
            _build_scale(pool_target, path, current, steady),
            _build_scale(pool_target, path, steady, current),
        )
        return _build_intent(pool_target, [changes], [undo], pool, keda)
    pool_target = to_target(scaler, cluster.name, "ScaledObject", f"{KEDA}/{keda.split('/')[3]}")
    scaler_wanted = manifests.build_scaler(pool)
    before, after = _schedule_fields(scaler), _schedule_fields(scaler_wanted)
    if before == after:
        raise RefusedError("the placeholders follow this schedule already")
    scaler_path = f"{keda}/{pool.name}"
    change = _build_patch(pool_target, scaler_path, _build_body(scaler_wanted), before, after)
    return _build_intent(
        pool_target,
        [change],
        [_build_patch(pool_target, scaler_path, _build_body(scaler), after, before)],
        pool,
        keda,
    )


def _schedule_fields(scaler: Object) -> dict[str, Any]:
    """Return the fields of a ScaledObject that an intent writes: its schedule, and no pause."""
    spec = {f"/spec/{k}": get_path(scaler, "spec", k) for k in _FIELDS}
    return {**spec, _PAUSED_AT: get_annotations(scaler).get(PAUSED)}


def _build_body(scaler: Object) -> dict[str, Any]:
    spec = {k: get_path(scaler, "spec", k) for k in _FIELDS}
    paused = {"annotations": {PAUSED: get_annotations(scaler).get(PAUSED)}}
    return {"metadata": paused, "spec": spec}


def _build_intent(
    pool_target: Target, changes: list[Change], undo: list[Change], pool: WarmPool, keda: str | None
) -> Intent:
    notes = [
        f"up to {pool.most} placeholders of {pool.gpus_per_pod} GPUs; any pod drives them out",
        "let the pool of nodes shrink to none by itself: the placeholders keep what is worth it",
    ]
    if keda is None:
        manifest = manifests.build_hpa(pool) if pool.metric else manifests.build_by_schedule(pool)
        notes.append(f"no KEDA here; for people to review:\n{manifests.to_yaml([manifest])}")
    lost = "a Deployment without pods and its PriorityClass stay: nothing is deleted"
    return Intent(
        pool_target, "warm-pool", tuple(changes), tuple(undo), lost=lost, notes=tuple(notes)
    )


def _compute_median_replicas(pool: WarmPool) -> int:
    """Return the placeholders that run at all hours: those of the median hour."""
    return sorted(pool.replicas(hour) for hour in range(HOURS_PER_DAY))[HOURS_PER_DAY // 2]


def _build_post(
    pool_target: Target, root: str, body: Mapping[str, Any], marks: dict[str, Any]
) -> Change:
    name = body["metadata"]["name"]
    return Change(
        pool_target,
        "POST",
        root,
        dict(body),
        "application/json",
        read=f"{root}/{name}",
        was=dict.fromkeys(marks),
        becomes=marks,
        guarded=False,
    )


def _build_scale(pool_target: Target, path: str, current: int, replicas: int) -> Change:
    was, becomes = {"/spec/replicas": current}, {"/spec/replicas": replicas}
    scale = _build_patch(
        pool_target, f"{path}/scale", {"spec": {"replicas": replicas}}, was, becomes
    )
    return msgspec.structs.replace(scale, read=path)


def _build_pause(
    scaler_target: Target, path: str, current: str | None, replicas: str | None
) -> Change:
    body = {"metadata": {"annotations": {PAUSED: replicas}}}
    return _build_patch(scaler_target, path, body, {_PAUSED_AT: current}, {_PAUSED_AT: replicas})


def _build_patch(
    pool_target: Target, path: str, body: Any, was: dict[str, Any], becomes: dict[str, Any]
) -> Change:
    """Return a patch; an object that the action itself creates has no known uid before."""
    later_target = msgspec.structs.replace(pool_target, resource_version=None)
    is_guarded = pool_target.kind != "Namespace"
    return Change(later_target, "PATCH", path, body, was=was, becomes=becomes, guarded=is_guarded)
