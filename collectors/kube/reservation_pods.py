"""Attribute KAI's reservation pods: they hold a GPU that other pods share, and have no owner.

The device plugin knows only the holder, so telemetry names the holder. The pods that really use the
GPU have the same `runai-gpu-group` label. Here the users get the holder's device, and the holder's
row names the pods that it holds the GPU for.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from collectors.inventory import document
from collectors.kube.devices import PodDevice
from collectors.kube.pods import KAI_FRACTION, build_devices_document
from collectors.kube.shapes import Meta
from fallow.kube.quantities import parse_quantity

GROUP = "runai-gpu-group"
MULTI_GROUP_PREFIX = f"{GROUP}/"
RESERVED = "run.ai/reserve_for_gpu_index"
"""Annotation of a holder; despite its name it is the GPU's UUID (KAI resource-reservation)."""

HOLDER_NAMESPACES = {"kai-resource-reservation", "runai-reservation"}
HOLDS_FOR = "fallow.holds_for"
"""Annotation of a holder's row: the pods, as namespace/pod, that share its device."""

HELD_BY = "fallow.held_by"
"""Annotation of a user's row: the holder, as namespace/pod, that telemetry names instead."""


def find_groups(meta: Meta) -> set[str]:
    """Return the GPU groups a pod belongs to."""
    result = set()
    for key, value in (meta.labels or {}).items():
        if key == GROUP or key.startswith(MULTI_GROUP_PREFIX):
            result.add(value)
    return result


def is_holder(meta: Meta) -> bool:
    """Return whether a pod only reserves a GPU."""
    if meta.namespace in HOLDER_NAMESPACES:
        return bool(find_groups(meta)) or RESERVED in (meta.annotations or {})
    return RESERVED in (meta.annotations or {})


def remap(rows: Iterable[tuple[Meta, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of all pods of GPU groups with devices and holders set.

    A holder with exactly one user takes over that user's workload; with several it has none.
    """
    pairs = list(rows)
    # Anybody may write the annotation and the label: a holder requests a GPU, and those in KAI's
    # own namespaces come last, so that they win.
    reserving = [(m, r) for m, r in pairs if is_holder(m) and r.get("gpu_resource")]
    reserving.sort(key=lambda pair: pair[0].namespace in HOLDER_NAMESPACES)
    holders = {g: (m, r) for m, r in reserving for g in find_groups(m)}
    users: dict[str, list[tuple[Meta, dict[str, Any]]]] = {}
    for meta, row in pairs:
        if not is_holder(meta):
            for group in sorted(find_groups(meta)):
                users.setdefault(group, []).append((meta, row))
                _give(meta, row, holders.get(group))
    for group, (_, row) in holders.items():
        sharing = users.get(group, [])
        only = sharing[0][1] if len(sharing) == 1 else {}
        for column in ("workload_kind", "workload", "workload_uid", "team", "queue"):
            row[column] = only.get(column)
        row["gpu_request"] = 0.0  # the users' fractions are the demand
        row["annotations"] = _set_key(
            row["annotations"], HOLDS_FOR, [f"{m.namespace}/{m.name}" for m, _ in sharing]
        )
    return [row for _, row in pairs]


def _give(meta: Meta, row: dict[str, Any], holder: tuple[Meta, dict[str, Any]] | None) -> None:
    # Only a pod that requests a fraction, on the node of the GPU, uses it.
    if holder is None or not row.get("gpu_resource") or holder[1]["node"] != row["node"]:
        return
    member, _ = holder
    uuid = (member.annotations or {}).get(RESERVED, "")
    row["annotations"] = _set_key(row["annotations"], HELD_BY, f"{member.namespace}/{member.name}")
    if not uuid or uuid == "-1":  # the holder has no GPU yet
        return
    fraction = parse_quantity((meta.annotations or {}).get(KAI_FRACTION, ""))
    share = None if fraction is None else float(fraction)
    device = PodDevice(uuid, share, "kai", estimated=member.namespace not in HOLDER_NAMESPACES)
    devices = msgspec.json.decode(row["devices"] or "[]", type=list[PodDevice])
    row["devices"] = build_devices_document([*(d for d in devices if d.device != uuid), device])


def _set_key(text: str | None, key: str, value: object) -> str | None:
    document_map = msgspec.json.decode(text) if text else {}
    return document({**document_map, key: value})
