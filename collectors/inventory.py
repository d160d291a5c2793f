"""Build batches from inventory rows (nodes, pods, quotas, polls).

Inventory is small, at most one row per pod of the fleet, so rows are built one by one. Samples are
never built this way.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow.kube.gpu_resources import MOST_DEVICES, is_unknown_accelerator
from fallow.kube.pod_requests import Amounts
from fallow.protections import UNREADABLE
from fallow.rejections import Rejection
from fallow.tables import CLEARABLE, Batch, get_cleared, get_schema, list_columns
from fallow.window import EARLIEST

log = logging.getLogger("fallow.inventory")

BATCH_ROWS = 5000
FAULTS = "faults"
"""In a row, beside its columns: what could not be read of its object."""
DOUBTS = "doubts"
"""In a row, beside its columns: (kind, field, reason, devices) of what is odd of its object."""
PART = "part"
"""In a row of a node, beside its columns: `Gpus.part`."""
WHOLE = "whole"
"""In a row, beside its columns: true where its source shows all of the object."""
UNKNOWN_RESOURCE = "resource"
"""Kind of a rejection: an object with a resource that may be an accelerator of no known kind."""
_MARKED = {"pod": "annotations", "node": "labels"}
"""Columns whose documents have the mark of an unreadable object."""
_NAMED_ELSEWHERE = {"team"}
"""Columns that an object's namespace may name, which its source may not have listed."""
_UNSTORABLE = (ValueError, TypeError, OverflowError)
_encoder = msgspec.json.Encoder(order="sorted")
T = TypeVar("T")
Row = dict[str, Any]


def build_batches(
    table: str, rows: Iterable[Mapping[str, Any]], rejections: list[Rejection] | None = None
) -> Iterator[Batch]:
    """Yield batches of at most `BATCH_ROWS` rows; a row's absent columns become null.

    With `rejections`, what is unreadable of a row is added to them: a value that its column cannot
    hold is null, and a row whose key cannot be held is left out. Without, such a value is an error.
    """
    chunk: list[Mapping[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == BATCH_ROWS:
            yield _build_batch(table, chunk, rejections)
            chunk = []
    if chunk:
        yield _build_batch(table, chunk, rejections)


def _build_batch(
    table: str, rows: list[Mapping[str, Any]], rejections: list[Rejection] | None
) -> Batch:
    rows = [_clear_columns(table, row) for row in rows]
    if rejections is None:
        return Batch(table, pa.Table.from_pylist(rows, schema=get_schema(table)))
    try:
        batch = Batch(table, pa.Table.from_pylist(rows, schema=get_schema(table)))
        _check_times(batch.rows)
    except _UNSTORABLE:
        keys = {c.name for c in list_columns(table) if c.key}
        rows = [_drop_unstorable(table, row) for row in rows]
        sound = [row for row in rows if all(row.get(key) is not None for key in keys)]
        batch = Batch(table, pa.Table.from_pylist(sound, schema=get_schema(table)))
    batch = Batch(table, _drop_unset_times(batch.rows))
    rejections += [describe_rejection(table, row, row[FAULTS]) for row in rows if row.get(FAULTS)]
    rejections += [
        describe_rejection(kind, row, reason, field, devices)
        for row in rows
        for kind, field, reason, devices in row.get(DOUBTS, ())
    ]
    return batch


def _clear_columns(table: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row that says which values its object does not have."""
    if not row.get(WHOLE) or row.get(FAULTS):
        return row
    lacking = (n for n in CLEARABLE[table] if row.get(n) is None and n not in _NAMED_ELSEWHERE)
    return {**row, **{name: get_cleared(table, name) for name in lacking}}


def _drop_unset_times(rows: pa.Table) -> pa.Table:
    """Return the rows without times that nobody has set, such as Go's zero time, the year 1.

    An object that was first seen then was first seen when it was read.
    """
    earliest = pa.scalar(EARLIEST, pa.timestamp("us"))
    for place, field in enumerate(rows.schema):
        if not (pa.types.is_timestamp(field.type) and field.nullable and rows.num_rows):
            continue
        column = rows.column(place)
        unset = pc.fill_null(pc.less(column, earliest), False)
        if pc.any(unset).as_py():
            other = rows["last_seen"] if field.name == "first_seen" else pa.scalar(None, field.type)
            rows = rows.set_column(place, field, pc.if_else(unset, other, column))
    return rows


def _check_times(rows: pa.Table) -> None:
    """Raise OverflowError where a time in UTC is beyond the calendar's year 9999."""
    for column in rows.columns:
        if pa.types.is_timestamp(column.type) and rows.num_rows:
            pc.max(column).as_py()


def _drop_unstorable(table: str, row: Mapping[str, Any]) -> Row:
    """Return a row without the values that their columns cannot hold."""
    sound, faults = dict(row), []
    for field in get_schema(table):
        try:
            _check_times(pa.table({field.name: pa.array([row.get(field.name)], field.type)}))
        except _UNSTORABLE as error:
            sound[field.name] = None
            faults.append(f"{field.name}: {error}")
    return mark_unreadable(table, sound, faults)


def mark_unreadable(table: str, row: Row, faults: list[str]) -> Row:
    """Return a row with what could not be read; that mark protects its object."""
    if not faults:
        return row
    text = "; ".join(filter(None, [row.get(FAULTS), *faults]))
    marked = {**row, FAULTS: text}
    if (column := _MARKED.get(table)) is not None:
        marks = msgspec.json.decode(row.get(column) or "{}")
        marked[column] = document({**marks, UNREADABLE: text})
    return marked


def list_unknown_resources(amounts: Amounts) -> list[tuple[str, str, str, float]]:
    """Return the doubts of an object's resources that look like accelerators of no known kind."""
    reason = "it looks like an accelerator that Fallow does not know: its devices are not counted"
    return [
        (UNKNOWN_RESOURCE, name, reason, min(float(count), MOST_DEVICES))
        for name, count in amounts.items()
        if count > 0 and is_unknown_accelerator(name)
    ]


def build_each(
    table: str, items: Iterable[T], build: Callable[[T], Iterable[Row]], rejections: list[Rejection]
) -> Iterator[Row]:
    """Yield the rows of each item; an exception costs the rows of its item only."""
    for item in items:
        try:
            rows = list(build(item))
        except Exception as error:
            log.exception("an object cannot be read", extra={"table": table})
            metadata = getattr(item, "metadata", None)
            identity = {n: getattr(metadata, n, "") for n in ("namespace", "name", "uid")}
            rejections.append(
                describe_rejection(table, identity, f"{type(error).__name__}: {error}")
            )
        else:
            yield from rows


def describe_rejection(
    table: str, row: Mapping[str, Any], reason: str, field: str = "", devices: float = 0
) -> Rejection:
    """Return what is known of an object from its row; without a field it is unreadable."""
    name = row.get("pod") or row.get("name") or row.get("node") or ""
    places = ("uid", "node", "workload_kind", "workload")
    uid, node, kind, workload = (str(row.get(place) or "") for place in places)
    namespace = str(row.get("namespace") or "")
    return Rejection(
        table, namespace, str(name), field, reason, uid, node, kind, workload, devices=devices
    )


def document(value: object) -> str | None:
    """Write a value as JSON with sorted keys; None (the source does not know it) is null.

    An empty value is a document: it replaces what was stored, and null does not.
    """
    if value is None:
        return None
    return _encoder.encode(value).decode()


def build_scrape_row(
    collector: str,
    target: str,
    *,
    cluster: str,
    start: datetime,
    end: datetime,
    samples: int | None = None,
    rejected: int = 0,
    clipped: int = 0,
    error: str | None = None,
) -> dict[str, Any]:
    """Return one row of the `scrape` table; an error means that the poll or scrape failed."""
    return {
        "cluster": cluster,
        "ts": start,
        "collector": collector,
        "target": target,
        "until": end,
        "up": error is None,
        "seconds": (end - start).total_seconds(),
        "samples": samples,
        "rejected": rejected,
        "clipped": clipped,
        "error": error,
    }


def derive_pod_uid(cluster: str, namespace: str, pod: str, created: float | None = None) -> str:
    """Return the stable UID of a pod whose source has none.

    `created` (seconds since 1970) distinguishes pods that had the same name one after another.
    Where it is not known, the UID depends on the name only. `warehouse/allocation/lives.sql`
    handles both.
    """
    parts_named = [cluster, namespace, pod, *([] if created is None else [f"{created:.0f}"])]
    return hashlib.sha256("/".join(parts_named).encode()).hexdigest()[:32]
