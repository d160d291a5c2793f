"""Write responses in the requested form: whole objects, or their metadata only."""

from collections.abc import Sequence
from typing import Any

from simulator.kube.paths import RequestTarget

Object = dict[str, Any]

WHOLE, PARTIAL = "", "PartialObjectMetadata"
_LIST = "PartialObjectMetadataList"


def find_requested_form(accept: str) -> str:
    """Return the first form of the Accept header that is served."""
    for media in accept.split(","):
        words = {w.strip() for w in media.split(";")}
        if words & {f"as={PARTIAL}", f"as={_LIST}"}:
            return PARTIAL
        if words & {"application/json", "*/*"} and not any(w.startswith("as=") for w in words):
            return WHOLE
    return WHOLE


def convert_to_form(target: RequestTarget, item: Object, form: str) -> Object:
    """Return one object in the requested form and version."""
    if form == PARTIAL:
        return convert_to_partial(item)
    return convert_to_version(target, item)


def list_in_form(
    target: RequestTarget, items: Sequence[Object], metadata: Object, form: str
) -> Object:
    """Return a list in the requested form and version."""
    if form == PARTIAL:
        kind, api = _LIST, "meta.k8s.io/v1"
        return {
            "kind": kind,
            "apiVersion": api,
            "metadata": metadata,
            "items": [convert_to_partial(i) for i in items],
        }
    if target.kind.custom:
        bodies = [convert_to_version(target, i) for i in items]
    else:  # items of built-in kinds have no kind
        bodies = [{k: v for k, v in i.items() if k not in {"apiVersion", "kind"}} for i in items]
    kind = f"{target.kind.kind}List"
    return {"kind": kind, "apiVersion": target.api_version, "metadata": metadata, "items": bodies}


def convert_to_version(target: RequestTarget, item: Object) -> Object:
    """Return an object in the requested version: the fields are the same in all versions."""
    if item.get("apiVersion") in {target.api_version, "autoscaling/v1"}:
        return item
    return {**item, "apiVersion": target.api_version}


def convert_to_partial(item: Object) -> Object:
    """Return an object's metadata only."""
    return {"kind": PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
