"""Turn changes that watches saw into rows: each object once, in its last state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from collectors.kube.collection import Collection, ObjectChange
from collectors.kube.reservation_pods import remap
from collectors.kube.shapes import Meta, Node, Pod
from collectors.kube.survey import Survey, is_in_group

Row = dict[str, Any]


def list_changed_nodes(survey: Survey, changes: Iterable[ObjectChange[Node]]) -> Iterator[Row]:
    """Yield a row per changed node; a deleted node yields none, so that it is not seen any more."""
    for change in changes:
        row = survey.node(change.object, change.at)
        if not change.deleted:
            yield {**row, "first_seen": change.first_at}


def list_changed_pods(
    survey: Survey, changes: Sequence[ObjectChange[Pod]], collection: Collection[Pod]
) -> Iterator[Row]:
    """Yield a row per changed pod; all pods that share a GPU through one holder are included."""
    grouped: dict[str, tuple[Meta, Row]] = {}
    for change in changes:
        row = _build_row(survey, change)
        if is_in_group(change.object.metadata):
            grouped[row["uid"]] = (change.object.metadata, row)
        else:
            yield row
    if grouped:
        objects, at = collection.current() or ((), None)
        for pod in objects:
            if is_in_group(pod.metadata) and pod.metadata.uid not in grouped:
                grouped[pod.metadata.uid] = (pod.metadata, survey.pod(pod, at))
        yield from remap(grouped.values())


def _build_row(survey: Survey, change: ObjectChange[Pod]) -> Row:
    row: Mapping[str, Any] = survey.pod(change.object, change.at)
    if not change.deleted:
        return {**row, "first_seen": change.first_at}
    return {
        **row,
        "first_seen": change.first_at,
        "deleted_at": row["deleted_at"] or change.at,
        "finished_at": row["finished_at"] or change.at,
    }
