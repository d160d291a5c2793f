"""Find the protections of a workload, set by its owner or by a tool on the owner's behalf.

A protection on a pod, on any owner above it or on the namespace protects the whole workload.
`fallow/protections.csv` lists the annotations, kinds and namespaces. This module reads them from
the live objects.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from actions.recommend import explain_protection
from fallow.action_models import Reason
from fallow.kube.objects import (
    Object,
    format_object,
    get_annotations,
    get_labels,
    get_namespace,
    get_path,
)
from fallow.protections import read_annotations, read_protections

GATE = "protected"


def find_protections(
    chain: Sequence[Object], namespace_object: Object | None, now: datetime | None = None
) -> tuple[Reason, ...]:
    """Return why a workload must not be stopped; () = it has no protection.

    `chain`: its pods and every owner above them. Without `now`, a protection with an end date never
    expires; one whose date cannot be parsed never does. Without the namespace's object its
    protections are unknown, which is itself a reason.
    """
    reasons = [] if namespace_object is not None else ["its namespace cannot be read"]
    for obj in chain:
        kind = str(obj.get("kind") or "Pod")
        # A pod with owners is stopped through them; the executor judges a pod without owners.
        why = explain_protection("" if kind == "Pod" else kind, get_namespace(obj))
        if why is not None:
            reasons.append(f"{format_object(obj, 'Pod')}: {why}")
    for obj in (*chain, *(() if namespace_object is None else (namespace_object,))):
        reasons.extend(_find_annotations(obj, now))
        reasons.extend(_find_priorities(obj))
    return tuple(Reason(GATE, text) for text in dict.fromkeys(reasons))


def _find_annotations(obj: Object, now: datetime | None) -> Iterator[str]:
    for key, protection in read_annotations().items():
        for value in (get_annotations(obj).get(key), get_labels(obj).get(key)):
            if value is not None and protection.protects(value, now):
                yield f"{protection.why}: {key}={value} on {format_object(obj, 'Pod')}"
                break


def _find_priorities(obj: Object) -> Iterator[str]:
    priority = get_path(obj, "spec", "priorityClassName") or get_path(
        obj, "spec", "template", "spec", "priorityClassName"
    )
    for protection in read_protections():
        if (
            protection.where == "priority"
            and isinstance(priority, str)
            and priority.startswith(protection.key)
        ):
            yield f"{protection.why}: priority class {priority} of {format_object(obj, 'Pod')}"
