"""Serve the scale subresource: one number, in a field that depends on the kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from fallow.kube.objects import get_path
from simulator.kube.kinds import ApiKind
from simulator.kube.selectors import format_selector
from simulator.kube.status import InvalidField, StatusError, build_invalid, build_no_such_path

Object = dict[str, Any]


def scale_of(kind: ApiKind, item: Object) -> Object:
    """Return the Scale of an object; `spec.replicas` is left out when it is 0.

    Raises:
        ApiError: 404 the kind has none, 500 a custom object does not say its replicas.
    """
    if kind.scale is None:
        raise build_no_such_path()
    replicas = get_path(item, *kind.scale.spec)
    if replicas is None:
        path = "." + ".".join(kind.scale.spec)
        message = f'Internal error occurred: the spec replicas field "{path}" does not exist'
        raise StatusError(500, "InternalError", message, {"causes": [{"message": message}]})
    selector = get_path(item, *kind.scale.selector) if kind.scale.selector else None
    status: Object = {"replicas": get_path(item, *kind.scale.status) or 0}
    if text := format_selector(selector) if isinstance(selector, Mapping) else selector:
        status["selector"] = text
    words = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    meta = item["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {w: meta[w] for w in words if w in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def apply_scale(kind: ApiKind, old: Object, wanted: Object) -> Object:
    """Return an object with the replicas of a Scale.

    Raises:
        ApiError: 422 no number of replicas.
    """
    assert kind.scale is not None  # noqa: S101  (`shown` has refused)
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    name = old["metadata"]["name"]
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        wrong = InvalidField(
            "spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0"
        )
        raise build_invalid("autoscaling", "Scale", name, [wrong])
    out: Object = _set_value(old, kind.scale.spec, replicas)
    return out


def _set_value(item: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    out = dict(item) if isinstance(item, Mapping) else {}
    out[path[0]] = _set_value(out.get(path[0]), path[1:], value)
    return out
