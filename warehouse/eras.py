"""Keep what each node was from when to when: prices and attribution of an hour follow the era.

An era is a stretch of observations of one node with the same values, stored with the times of its
first and its last one; the newest era is as long as `node.last_seen`. A column that a row does not
know (null) takes part in any era. Rows lead to the same eras in every order of arrival. So it is
with a device's node and with what a pod's protections and owners depend on: their eras are stored
where there are several.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from itertools import pairwise
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow.tables import get_schema, list_columns
from warehouse.dirty import FAR, mark_ledger_hours
from warehouse.statements import read_rows
from warehouse.steps import compose_query, load_step

_STORED = ("inventory/every_era", "inventory/stored_eras")
_Span = tuple[datetime, datetime]
_Key = tuple[str, str]
"""A cluster, and a node, pod or device in it."""
_TIMES = ("valid_from", "valid_to", "born_at", "first_seen", "last_seen")
VALUES = tuple(c.name for c in list_columns("era") if not c.key and c.name not in {*_TIMES, "uid"})
"""The columns by whose change a new era begins: what prices or attributes an hour."""
_DATED = {"labels_from": ("labels", "team", "queue"), "annotations_from": ("annotations",)}
"""Columns of a pod with the first observation of others."""


class Era(msgspec.Struct, frozen=True, order=True):
    """A node's values over a stretch of observations; `born_at` is its creation as sources say."""

    first_seen: datetime
    last_seen: datetime
    born_at: datetime
    uid: str | None
    values: tuple[Any, ...]


def add_observation(eras: Sequence[Era], seen: Era) -> list[Era]:
    """Return a node's eras with one more observation; of two at one time the stored one stays."""
    pieces = [seen]
    for era in eras:
        if not era.first_seen <= seen.last_seen <= era.last_seen or _is_same(era, seen):
            pieces.append(era)
        elif seen.last_seen in {era.first_seen, era.last_seen}:
            return [*eras]
        else:  # what is between the ends of an era is not stored
            pieces += [
                msgspec.structs.replace(era, last_seen=era.first_seen),
                msgspec.structs.replace(era, first_seen=era.last_seen),
            ]
    joined: list[Era] = []
    for piece in sorted(pieces, key=lambda era: (era.first_seen, era.last_seen)):
        if joined and _is_same(joined[-1], piece):
            joined[-1] = _join(joined[-1], piece)
        else:
            joined.append(piece)
    return joined


def _is_same(era: Era, later: Era) -> bool:
    pairs = zip(era.values, later.values, strict=True)
    return not _is_reborn(era, later) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _is_reborn(era: Era, later: Era) -> bool:
    """Return whether a name is used again. Two sources may give one node a uid each."""
    return (
        None not in {era.uid, later.uid}
        and era.uid != later.uid
        and (later.born_at > era.last_seen)
    )


def _join(era: Era, later: Era) -> Era:
    newer, older = (later, era) if later.last_seen >= era.last_seen else (era, later)
    return Era(
        min(era.first_seen, later.first_seen),
        newer.last_seen,
        min(era.born_at, later.born_at),
        newer.uid or older.uid,
        tuple(
            old if new is None else new for new, old in zip(newer.values, older.values, strict=True)
        ),
    )


def list_spans(eras: Sequence[Era]) -> list[tuple[datetime, datetime | None]]:
    """Return from when to when each era holds; None: it is the newest one.

    The first one, and a node whose name is used again, begin with the node's creation, any other
    change with the observation of it. Between two nodes of a name there is none.
    """
    reborn = [True, *(_is_reborn(era, later) for era, later in pairwise(eras))]
    starts = [e.born_at if new else e.first_seen for e, new in zip(eras, reborn, strict=True)]
    ends = [
        era.last_seen if new else start
        for era, start, new in zip(eras, starts[1:], reborn[1:], strict=False)
    ]
    return list(zip(starts, [*ends, None], strict=True))


def store_eras(cursor: duckdb.DuckDBPyConnection, nodes: pa.Table) -> None:
    """Store the eras of incoming nodes in this transaction, before their rows are.

    Hours of the ledger in which a known node turns out to have been another one are marked to be
    written again.
    """
    cursor.register("incoming", nodes.select(["cluster", "node", *_TIMES[3:], "uid", *VALUES]))
    observed = _group(read_rows(cursor, load_step("inventory/observed_nodes"), {}))
    cursor.unregister("incoming")
    if not observed:
        return
    cursor.register("observed", _name(observed, "node"))
    changed = _mark_changes(cursor, observed, _group(read_rows(cursor, compose_query(_STORED), {})))
    if changed:
        cursor.register("observed", _name(changed, "node"))
        cursor.execute('DELETE FROM era WHERE ("cluster", node) IN (FROM observed)')
        rows = [row for (c, n), of in changed.items() for row in _build_rows(c, n, of)]
        _write_rows(cursor, "era", rows)
    cursor.unregister("observed")


def add_times(pods: pa.Table) -> pa.Table:
    """Return incoming pods with when their labels and annotations were observed, if they were."""
    for name, columns in _DATED.items():
        none = reduce(pc.and_, (pc.is_null(pods[column]) for column in columns))
        place = pods.schema.get_field_index(name)
        times = pc.if_else(none, pa.scalar(None, pa.timestamp("us")), pods["last_seen"])
        pods = pods.set_column(place, pods.schema.field(place), times)
    return pods


def store_values(cursor: duckdb.DuckDBPyConnection, pods: pa.Table) -> None:
    """Store in this transaction from when on incoming pods have other values in a column."""
    cursor.register("incoming", pods)
    observed = read_rows(cursor, load_step("inventory/observed_values"), {})
    cursor.unregister("incoming")
    for kind in pc.unique(observed["kind"]).to_pylist():
        _store_values(cursor, kind, observed.filter(pc.equal(observed["kind"], kind)))


def store_places(cursor: duckdb.DuckDBPyConnection, places: pa.Table) -> None:
    """Store in this transaction from when on devices are on another node.

    `places`: cluster, device, node, first_seen, last_seen; before the devices are stored.
    """
    cursor.register("incoming", places)
    observed = read_rows(cursor, load_step("inventory/observed_places"), {})
    cursor.unregister("incoming")
    _store_values(cursor, "device.node", observed)


def _store_values(cursor: duckdb.DuckDBPyConnection, kind: str, rows: pa.Table) -> None:
    if not rows.num_rows:
        return
    observed = _group_values(rows)
    cursor.register("observed", _name(observed, "id"))
    stored = read_rows(cursor, load_step("inventory/stored_values"), {"kind": kind})
    changed = _mark_changes(
        cursor, observed, _group_values(stored), is_paid_by=kind in {"pod.team", "device.node"}
    )
    if changed:
        cursor.register("observed", _name(changed, "id"))
        cursor.execute(
            'DELETE FROM attribute_era WHERE kind = $kind AND ("cluster", id) IN (FROM observed)',
            {"kind": kind},
        )
        _write_rows(
            cursor,
            "attribute_era",
            [
                {
                    "cluster": cluster,
                    "kind": kind,
                    "id": name,
                    "value": era.values[0],
                    "valid_from": start,
                    "valid_to": end,
                    "first_seen": era.first_seen,
                    "last_seen": era.last_seen,
                }
                for (cluster, name), eras in changed.items()
                if len(eras) > 1
                for era, (start, end) in zip(eras, list_spans(eras), strict=True)
            ],
        )
    cursor.unregister("observed")


def _mark_changes(
    cursor: duckdb.DuckDBPyConnection,
    observed: dict[_Key, list[Era]],
    stored: dict[_Key, list[Era]],
    *,
    is_paid_by: bool = True,
) -> dict[_Key, list[Era]]:
    """Return the eras that differ from the stored ones, and mark the hours that they pay for."""
    eras = {
        key: reduce(add_observation, seen, stored.get(key, [])) for key, seen in observed.items()
    }
    changed = {key: of for key, of in eras.items() if of != stored.get(key)}
    for start, end in _merge(
        span
        for key, of in changed.items()
        if is_paid_by
        for span in list_differences(stored.get(key, []), of)
    ):
        mark_ledger_hours(cursor, start, end)
    return changed


def _name(keys: Iterable[_Key], column: str) -> pa.Table:
    return pa.Table.from_pylist([{"cluster": cluster, column: name} for cluster, name in keys])


def _write_rows(cursor: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, Any]]) -> None:
    cursor.register("eras", pa.Table.from_pylist(rows, schema=get_schema(table)))
    cursor.execute(f"INSERT INTO {table} BY NAME FROM eras")
    cursor.unregister("eras")


def list_differences(before: Sequence[Era], after: Sequence[Era]) -> list[_Span]:
    """Return the stretches in which a node was another one before; none where it was unknown."""
    if not before:
        return []
    old, new = _list_states(before), _list_states(after)
    times = sorted({end for start, last, _ in (*old, *new) for end in (start, last)})
    return [span for span in pairwise(times) if _find_state(old, *span) != _find_state(new, *span)]


def _list_states(eras: Sequence[Era]) -> list[tuple[datetime, datetime, tuple[Any, ...]]]:
    spans = zip(eras, list_spans(eras), strict=True)
    return [(start, end or FAR, _drop_empty(era.values)) for era, (start, end) in spans]


def _drop_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if value in {"", -1} else value for value in values)


def _find_state(
    states: Sequence[tuple[datetime, datetime, tuple[Any, ...]]], start: datetime, end: datetime
) -> tuple[Any, ...] | None:
    return next((values for first, last, values in states if first <= start and end <= last), None)


def _merge(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _group(rows: pa.Table) -> dict[_Key, list[Era]]:
    grouped: dict[_Key, list[Era]] = {}
    for row in rows.to_pylist():
        values = tuple(row[name] for name in VALUES)
        era = Era(row["first_seen"], row["last_seen"], row["born_at"], row["uid"], values)
        grouped.setdefault((row["cluster"], row["node"]), []).append(era)
    return grouped


def _group_values(rows: pa.Table) -> dict[_Key, list[Era]]:
    grouped: dict[_Key, list[Era]] = {}
    for row in rows.to_pylist():
        first = row["first_seen"]
        era = Era(first, row["last_seen"], first, None, (row["value"],))
        grouped.setdefault((row["cluster"], row["id"]), []).append(era)
    return grouped


def _build_rows(cluster: str, node: str, eras: Sequence[Era]) -> Iterator[dict[str, Any]]:
    for era, (start, end) in zip(eras, list_spans(eras), strict=True):
        yield {
            "cluster": cluster,
            "node": node,
            "valid_from": start,
            "valid_to": end,
            "uid": era.uid,
            "born_at": era.born_at,
            "first_seen": era.first_seen,
            "last_seen": era.last_seen,
            **dict(zip(VALUES, era.values, strict=True)),
        }
