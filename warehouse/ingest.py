"""Store batches once: repeated, late or unordered batches lead to the same tables.

A call is one transaction. Append tables keep the first row of a key; upsert tables keep the
newest row, column by column, and a null never overwrites a value. Rows from the future, and samples
older than their source can have, are left out and counted; so are texts that no collector or import
has checked (`fallow.clean_texts`). New samples mark their 5-minute buckets dirty for the rollup.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from fallow import tables
from fallow.clean_texts import check_batches
from fallow.errors import WarehouseError
from fallow.gpu_models import get_model_name
from fallow.protections import UNREADABLE
from fallow.redaction import redact
from fallow.rejections import Rejection, build_batch
from fallow.resources import read_table
from fallow.tables import Batch
from fallow.window import EARLIEST
from warehouse.dirty import mark_buckets, mark_reassigned_hours
from warehouse.eras import add_times, store_eras, store_values
from warehouse.failures import CatalogBusyError
from warehouse.late_devices import SampleMarks
from warehouse.opened import OpenWarehouse
from warehouse.partial_rows import complete_rows
from warehouse.stages.files import NewFiles
from warehouse.statements import run_change
from warehouse.storage import get_storage
from warehouse.tiers import RAW, drop_archived

_EARLIEST = {"first_seen", "created_at", "labels_from", "annotations_from"}
_LATEST = {"last_seen", "done_until"}
LABEL_COLUMNS = {"pod": ("team", "queue"), "node": ("region", "zone", "instance_type", "pool")}
"""Columns of text that a label may have named. Where labels are known and the value that they had
is none of theirs, a null says that it is gone."""
_SUMMED = {"rejection": "count"}
"""Counts that a newer row adds to; the same row again adds nothing."""
_MODELLED = {"node", "rate"}
"""Tables whose `gpu_model` comes from labels and settings, which spell it differently."""


SCRAPE_ROWS = 5_000
"""From so many rows on Arrow writes the file: with fewer the engine takes as long. A long chunk
comes slice of time after slice of time, so that a query of a stretch reads few of its row groups;
one of a device reads all of them until the rows are compacted, which sorts them."""

SMALL_ROWS = 100_000
"""Up to so many rows a call is a small transaction: the scrape of a fleet, not a backfill."""

_MOST_NUMBERS = 2**63 - 1

REJECTION_DAYS = timedelta(days=6)
"""How long before the last day a rejected object was seen for the last time to be dropped."""
MOST_REJECTIONS = 5_000
"""Rejected objects that stay listed, the newest: five passes that list as many as they may."""
_DROP_REJECTIONS = (
    "DELETE FROM rejection WHERE last_seen < $oldest OR last_seen < "
    "(SELECT last_seen FROM rejection ORDER BY last_seen DESC LIMIT 1 OFFSET $most)"
)

_REPORTED = {
    "scrape": ("target", "error"),
    "plugin_run": ("reason",),
    "cursor": ("source",),
    "rejection": ("source", "name", "reason"),
}
"""Columns with the names and the errors of sources."""

_OBSERVED = {"last_seen", "until"}
"""Columns with the end of what a source has seen."""

LONGEST_S = 4e9
"""Interval of a sample: over the longest duration that an option takes. Its end is a time."""

LATE = timedelta(days=1)
"""How much older than the time that was asked for a source's samples may be: an exporter may show
its last values with their own time."""


class IngestResult(msgspec.Struct, frozen=True):
    """How many rows of one call were added, were duplicates, from the future, or too old.

    rows = added + duplicates + future + old. `added` counts new rows, and rows that changed
    something in an upsert table, and `samples` those of them that are device samples.
    """

    rows: int = 0
    added: int = 0
    duplicates: int = 0
    future: int = 0
    old: int = 0
    samples: int = 0

    def __add__(self, other: "IngestResult") -> "IngestResult":
        """Return the sums of two calls."""
        names = self.__struct_fields__
        return IngestResult(*(getattr(self, name) + getattr(other, name) for name in names))


def ingest_batches(warehouse: OpenWarehouse, batches: Iterable[Batch]) -> IngestResult:
    """Store batches in one transaction; see `Warehouse.ingest`."""
    gathered: dict[str, list[pa.Table]] = {}
    limit = _find_limit(warehouse)
    rows = future = old = 0
    settings, now = warehouse.settings, warehouse.clock()
    stored = _refuse_derived(batches)
    for sent in check_batches(stored, cluster=settings.cluster, source="warehouse", at=now):
        batch, endless = _drop_endless(sent, limit)
        present = _drop_future(batch, limit).rows
        recent, rejected = _drop_old(batch.table, present, EARLIEST, limit)
        rows += 0 if batch.table == "rejection" else batch.rows.num_rows
        future += batch.rows.num_rows - present.num_rows
        old += present.num_rows - recent.num_rows
        for part in (Batch(batch.table, recent), *rejected, *endless):
            gathered.setdefault(part.table, []).append(part.rows)
    work: list[tuple[str, pa.Table]] = []
    for table, parts in gathered.items():
        whole = _redact_texts(table, _name_models(table, pa.concat_tables(parts)))
        if table == "pod":
            whole = add_times(whole)
        if whole.num_rows:
            work.append((table, whole))
    added, samples = _busy_again(_write, warehouse, work) if work else (0, 0)
    return IngestResult(rows, added, rows - added - future - old, future, old, samples)


def _refuse_derived(batches: Iterable[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if get_storage(batch.table).mode == "derived":
            raise WarehouseError(f"table {batch.table!r} is derived; nothing is ingested into it")
        yield batch


_busy_again = Retrying(
    retry=retry_if_exception_type(CatalogBusyError),
    stop=stop_after_attempt(4),
    wait=wait_random_exponential(multiplier=0.1, max=2),
    reraise=True,
)
"""Attempts at a commit. The rows are still in memory, so a commit that failed because the catalog
was busy can be repeated."""


def _write(warehouse: OpenWarehouse, work: list[tuple[str, pa.Table]]) -> tuple[int, int]:
    """Write tables; return the rows that were added, and those of them that are samples."""
    added, samples, count = 0, 0, sum(rows.num_rows for _, rows in work)
    # No day younger than this can be in the cold tier, whatever value raw_days has or had.
    recent = (warehouse.clock() - timedelta(days=1)).astimezone(UTC).replace(tzinfo=None)
    with warehouse.turn:
        marks = SampleMarks(warehouse.dirty)
        with (
            warehouse.late.clear_on_error(),
            warehouse.transaction(is_small=count < SMALL_ROWS) as cursor,
            NewFiles(cursor, warehouse.place) as files,
        ):
            # Read which node an address belongs to before the rows with the address are written.
            for table, sent in sorted(work, key=lambda part: part[0] != "address"):
                if table == "sample":
                    sent = warehouse.hosts.resolve(cursor, sent)  # noqa: PLW2901  (the same rows)
                    learned = warehouse.hosts.take_learned()
                    _put_rows(cursor, files, "address", learned)
                rows = drop_archived(warehouse, cursor, table, sent, recent)
                if table == "address":
                    warehouse.hosts.forget()
                rows = complete_rows(cursor, table, rows)
                if table == "pod" and rows.num_rows:
                    mark_reassigned_hours(cursor, rows)
                    store_values(cursor, rows)
                if table == "node" and rows.num_rows:
                    store_eras(cursor, rows)
                new = _put_rows(cursor, files, table, rows)
                cursor.unregister("incoming")
                if table == "rejection":
                    oldest = recent - REJECTION_DAYS
                    limits = {"oldest": oldest, "most": MOST_REJECTIONS}
                    run_change(cursor, _DROP_REJECTIONS, limits)
                samples += new if table == "sample" else 0
                if table == "sample" and new:
                    marks = mark_buckets(cursor, rows, marks.stored)
                added += 0 if table == "rejection" else new
        warehouse.keep_dirty(marks)
    return added, samples


def _name_models(table: str, rows: pa.Table) -> pa.Table:
    """Return the rows with one name per GPU model, whatever the spelling of their source."""
    if table not in _MODELLED:
        return rows
    place = rows.schema.get_field_index("gpu_model")
    coded = rows.column(place).combine_chunks().dictionary_encode()
    # A key is never null: a rate that applies to any model has an empty text.
    names = pa.array([get_model_name(m) or m for m in coded.dictionary.to_pylist()], pa.string())
    return rows.set_column(place, rows.schema.field(place), names.take(coded.indices))


def _redact_texts(table: str, rows: pa.Table) -> pa.Table:
    """Return the rows without passwords: sources are named by their URLs, errors quote them."""
    for name in _REPORTED.get(table, ()):
        place = rows.schema.get_field_index(name)
        coded = rows.column(place).combine_chunks().dictionary_encode()
        texts = [text if text is None else redact(text) for text in coded.dictionary.to_pylist()]
        column = pa.array(texts, pa.string()).take(coded.indices)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


def check_times(
    warehouse: OpenWarehouse, batches: Iterable[Batch], since: datetime | None = None
) -> list[Batch]:
    """Return batches without rows in the future by the clock of now, or older than `since`.

    To be called when rows were read: rows that wait for the store are then stored whatever the
    clock says at that time. A clock that was set back would refuse them. Samples older than `since`
    (aware, from when the source was read) less `LATE` are listed as rejections.
    """
    limit, checked = _find_limit(warehouse), []
    oldest = EARLIEST if since is None else (since - LATE).astimezone(UTC).replace(tzinfo=None)
    for batch in batches:
        present = _drop_future(batch, limit)
        if not batch.times_checked:
            rows, rejected = _drop_old(batch.table, present.rows, oldest, limit)
            present = msgspec.structs.replace(present, rows=rows)
            checked += rejected
        checked.append(present)
    return checked


def _find_limit(warehouse: OpenWarehouse) -> datetime:
    limit = warehouse.clock() + warehouse.settings.warehouse.future_tolerance
    return limit.astimezone(UTC).replace(tzinfo=None)


def _drop_future(batch: Batch, limit: datetime) -> Batch:
    column = get_storage(batch.table).time_column
    if batch.times_checked:
        return batch
    rows, latest = batch.rows, pa.scalar(limit, pa.timestamp("us"))
    for place, field in enumerate(rows.schema):
        if field.name in _OBSERVED:  # nothing was observed in the future
            rows = rows.set_column(
                place, field, pc.min_element_wise(rows.column(place), latest, skip_nulls=False)
            )
    if column is not None:
        ahead = pc.greater(rows.column(column), latest)
        if pc.any(ahead).as_py():
            rows = rows.filter(pc.invert(pc.fill_null(ahead, fill_value=False)))
    return msgspec.structs.replace(batch, rows=rows, times_checked=True)


def _drop_old(
    table: str, rows: pa.Table, oldest: datetime, at: datetime
) -> tuple[pa.Table, list[Batch]]:
    """Return the rows that are not too old, and a batch that lists what the others are of."""
    column = get_storage(table).time_column
    if table not in RAW or column is None or not rows.num_rows:
        return rows, []
    old = pc.fill_null(pc.less(rows.column(column), pa.scalar(oldest, pa.timestamp("us"))), False)
    if not pc.any(old).as_py():
        return rows, []
    reason = f"older than {oldest:%Y-%m-%d %H:%M}, from when its source was read"
    return rows.filter(pc.invert(old)), _list_refused(table, rows.filter(old), column, reason, at)


def _drop_endless(batch: Batch, at: datetime) -> tuple[Batch, list[Batch]]:
    """Return the samples whose interval is a length of time, and a batch that lists the others."""
    if batch.table != "sample":
        return batch, []
    seconds = batch.rows.column("interval_s")
    legal = pc.and_(pc.greater_equal(seconds, 0.0), pc.less_equal(seconds, LONGEST_S))
    legal = pc.fill_null(legal, True)  # NaN is not legal, null is unknown
    if pc.all(legal, min_count=0).as_py():
        return batch, []
    reason = f"an interval of 0 to {LONGEST_S:,.0f} s is wanted"
    refused = batch.rows.filter(pc.invert(legal))
    listed = _list_refused(batch.table, refused, "interval_s", reason, at)
    return msgspec.structs.replace(batch, rows=batch.rows.filter(legal)), listed


def _list_refused(table: str, rows: pa.Table, field: str, reason: str, at: datetime) -> list[Batch]:
    owner = next(name for name in ("device", "target", "pod") if name in rows.column_names)
    columns = [c for c in ("cluster", "source", "namespace", owner) if c in rows.column_names]
    parts: dict[tuple[str, str], list[Rejection]] = {}
    for row in rows.select(columns).to_pylist():
        rejection = Rejection(table, row.get("namespace") or "", row[owner], field, reason)
        parts.setdefault((row["cluster"], row.get("source") or ""), []).append(rejection)
    return [
        build_batch(several, cluster=cluster, source=source, at=at)
        for (cluster, source), several in parts.items()
    ]


def _put_rows(
    cursor: duckdb.DuckDBPyConnection,
    files: NewFiles,
    table: str,
    rows: pa.Table,
) -> int:
    if not rows.num_rows:
        return 0
    if get_storage(table).mode == "append":
        return _append_rows(cursor, files, table, rows)
    return upsert_rows(cursor, table, rows)


def _append_rows(
    cursor: duckdb.DuckDBPyConnection,
    files: NewFiles,
    table: str,
    rows: pa.Table,
) -> int:
    keys = tables.get_key(table)
    span = _bound_range(table, rows)
    there = " AND ".join(span)
    distinct = _is_distinct(rows, keys)
    source = "incoming" if distinct else f"({_select_first(table)})"
    if span and not run_change(cursor, f'SELECT count(*) FROM "{table}" t WHERE {there}'):
        # No row of that time is stored yet: no join is needed.
        if distinct:
            return files.store(table, rows, SCRAPE_ROWS)
        cursor.register("incoming", rows.to_reader())
        return run_change(cursor, f'INSERT INTO "{table}" BY NAME SELECT * FROM {source}')
    on = " AND ".join([*span, *(f't."{k}" = b."{k}"' for k in keys)])
    cursor.register("incoming", rows)
    return run_change(
        cursor,
        f'MERGE INTO "{table}" t USING {source} b ON {on} WHEN NOT MATCHED THEN INSERT BY NAME',
    )


def _bound_range(table: str, rows: pa.Table) -> list[str]:
    """Return literal bounds on the timestamp, so that the engine opens only files in that range."""
    time_column = get_storage(table).time_column
    if (
        time_column is None
        or rows.column(time_column).null_count
        or time_column not in tables.get_key(table)
    ):
        return []
    ends = pc.min_max(rows.column(time_column)).as_py()
    low, high = (f"TIMESTAMP '{ends[end].isoformat(sep=' ')}'" for end in ("min", "max"))
    if low == high:
        return [f't."{time_column}" = {low}']
    return [f't."{time_column}" >= {low}', f't."{time_column}" <= {high}']


def _is_distinct(rows: pa.Table, keys: tuple[str, ...]) -> bool:
    if rows.num_rows >= SMALL_ROWS:
        numbers = _number_keys(rows, keys)
        if numbers is not None:
            numbers.sort()
            return not bool((numbers[1:] == numbers[:-1]).any())
    if any(pc.count_distinct(rows.column(k)).as_py() == rows.num_rows for k in keys):
        return True
    groups = rows.select(keys).group_by(list(keys), use_threads=False).aggregate([])
    return bool(groups.num_rows == rows.num_rows)


def _number_keys(rows: pa.Table, keys: tuple[str, ...]) -> npt.NDArray[np.int64] | None:
    """Return a number per row, the same only for rows with the same key; None: they do not fit.

    Sorting numbers takes half of the time in which Arrow groups rows by texts and times.
    """
    numbers, size = np.zeros(rows.num_rows, np.int64), 1
    for name in keys:
        column = rows.column(name)
        if column.null_count or pa.types.is_dictionary(column.type):
            return None
        if pa.types.is_timestamp(column.type):
            codes = column.cast(pa.int64()).to_numpy()
            codes = codes - codes.min()
            count = int(codes.max()) + 1
        else:
            coded = column.combine_chunks().dictionary_encode()
            codes, count = coded.indices.to_numpy(), len(coded.dictionary)
        size *= count
        if size > _MOST_NUMBERS:
            return None
        numbers = numbers * count + codes
    return numbers


def _select_first(table: str) -> str:
    """Return SQL for one row per key of `incoming`: the same row in every order of arrival."""
    keys = ", ".join(f'"{k}"' for k in tables.get_key(table))
    rest = ", ".join(f'"{c.name}" NULLS LAST' for c in tables.list_columns(table) if not c.key)
    place = f"row_number() OVER (PARTITION BY {keys} ORDER BY {rest})"
    return f"SELECT * FROM incoming QUALIFY {place} = 1"


def upsert_rows(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> int:
    """Update rows in this transaction by the table's rule; return how many changed."""
    keys = tables.get_key(table)
    if table in tables.CLEARABLE and not _is_distinct(rows, keys):
        # An object that changes in several turns is counted once.
        return max(upsert_rows(cursor, table, part) for part in _list_turns(table, rows))
    cursor.register("incoming", rows)
    newest = get_storage(table).newest
    others = [c.name for c in tables.list_columns(table) if not c.key]
    source = "incoming"
    if not _is_distinct(rows, keys):
        source = f"({_collapse_rows(table, others, newest)})"
    newer = "true" if newest is None else f'coalesce(b."{newest}" >= t."{newest}", true)'
    values = {name: _merge_column(name, newer) for name in others}
    values |= {
        name: f"CASE WHEN {newer} AND {_is_unlabelled(name)} THEN NULL ELSE {values[name]} END"
        for name in LABEL_COLUMNS.get(table, ())
    }
    if table == "node":
        values["capacity_type"] = (
            f"CASE WHEN {newer} AND {_has_lost_key('capacity_type')} THEN NULL"
            f" ELSE {values['capacity_type']} END"
        )
    nothing = {n: repr(tables.get_cleared(table, n)) for n in tables.CLEARABLE.get(table, ())}
    values |= {name: f"nullif({values[name]}, {none})" for name, none in nothing.items()}
    if summed := _SUMMED.get(table):
        sum_sql = (
            f't."{summed}" + CASE WHEN b."{newest}" > t."{newest}" THEN b."{summed}" ELSE 0 END'
        )
        values[summed] = sum_sql
    changed = " OR ".join(f'({value}) IS DISTINCT FROM t."{n}"' for n, value in values.items())
    updates = ", ".join(f'"{name}" = {value}' for name, value in values.items())
    on = " AND ".join([*_bound_range(table, rows), *(f't."{k}" = b."{k}"' for k in keys)])
    new = ", ".join(
        f'nullif(b."{n}", {nothing[n]})' if n in nothing else f'b."{n}"' for n in (*keys, *others)
    )
    named = ", ".join(f'"{name}"' for name in (*keys, *others))
    return run_change(
        cursor,
        f'MERGE INTO "{table}" t USING {source} b ON {on}'
        f" WHEN MATCHED AND ({changed}) THEN UPDATE SET {updates}"
        f" WHEN NOT MATCHED THEN INSERT ({named}) VALUES ({new})",
    )


def _list_turns(table: str, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows of one table in turns, the oldest of each object first.

    So what the newest row says that an object does not have, no row of the same call brings back.
    """
    newest = get_storage(table).newest
    names = [newest, *(c.name for c in tables.list_columns(table) if c.name != newest)]
    rows = rows.sort_by([(name, "ascending") for name in names])
    coded = rows.select(tables.get_key(table)).append_column("at", pa.array(range(rows.num_rows)))
    groups = coded.group_by(list(tables.get_key(table))).aggregate([("at", "list")])
    turns = np.zeros(rows.num_rows, np.int64)
    for places in groups["at_list"].to_pylist():
        turns[sorted(places)] = range(len(places))
    for turn in range(int(turns.max()) + 1):
        yield rows.filter(pa.array(turns == turn))


def _is_unlabelled(name: str) -> str:
    """Return SQL for: the value was a label's, and that label is gone from an object that was read.

    An object that could not be read has a mark in place of its labels.
    """
    return (
        f'b."{name}" IS NULL AND list_contains(t.labels ->> \'$.*\', t."{name}")'
        f" AND NOT list_contains(b.labels ->> '$.*', t.\"{name}\")"
        f" AND NOT contains(b.labels, '\"{UNREADABLE}\"')"
    )


def _has_lost_key(name: str) -> str:
    """Return SQL for: the labels that may name a value were there, and they are gone."""
    labels = read_table("fallow.kube", "node_labels.csv")
    keys = sorted({row["label"] for row in labels if row["field"] == name})
    return (
        f'b."{name}" IS NULL AND list_has_any(json_keys(t.labels), {keys})'
        f" AND NOT list_has_any(json_keys(b.labels), {keys})"
        f" AND NOT contains(b.labels, '\"{UNREADABLE}\"')"
    )


def _merge_column(name: str, newer: str) -> str:
    if name in _EARLIEST:
        return f'least(t."{name}", b."{name}")'
    if name in _LATEST:
        return f'greatest(t."{name}", b."{name}")'
    return (
        f'CASE WHEN {newer} THEN coalesce(b."{name}", t."{name}")'
        f' ELSE coalesce(t."{name}", b."{name}") END'
    )


def _collapse_rows(table: str, others: list[str], newest: str | None) -> str:
    keys = ", ".join(f'"{k}"' for k in tables.get_key(table))
    # Among equally new rows the greatest value wins, so that their order does not matter.
    recency = f'"{newest}" DESC NULLS LAST, ' if newest else ""
    picked = []
    for name in others:
        if name in _EARLIEST:
            value = f'min("{name}")'
        elif name in _LATEST:
            value = f'max("{name}")'
        elif name == _SUMMED.get(table):
            value = f'sum("{name}")'
        else:
            order = f'{recency}"{name}" DESC'
            value = f'first("{name}" ORDER BY {order}) FILTER ("{name}" IS NOT NULL)'
        picked.append(f'{value} AS "{name}"')
    return f"SELECT {keys}, {', '.join(picked)} FROM incoming GROUP BY {keys}"
