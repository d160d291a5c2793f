"""Roll device samples up to 5 minutes and hours, and keep the table of devices up to date.

    sample ──► rollup_5m ──► rollup_1h
       └─────► device

A refresh replaces whole buckets (delete and insert in one transaction), of all devices or only of
the few devices with late rows, so that two runs equal one. Ingest marks the buckets to refresh
(`dirty`) in the transaction that stores the rows. A sample can be valid in the next bucket, and an
increase of energy can end there, so the buckets that a sample reaches are refreshed with its own.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fallow import tables
from fallow.errors import UnreadableDaysError, WarehouseError
from fallow.gpu_models import find_gpu_model, get_model_name
from fallow.rejections import Rejection, build_batch
from fallow.settings.idle import LedgerSettings
from fallow.tables import AND, VIA
from fallow.window import Window
from warehouse import dirty, ingest, tiers
from warehouse.eras import store_places
from warehouse.failures import FAULTS
from warehouse.late_devices import MOST_DEVICES
from warehouse.owner_buckets import RolledSamples, reduce_samples
from warehouse.owner_hours import reduce_hours
from warehouse.pricing import ERAS
from warehouse.sample_validity import (
    LONGEST_INTERVAL_S,
    MAX_GAP,
    UNKNOWN_INTERVAL_S,
    VALIDITY,
)
from warehouse.stages.files import NewFiles, WrittenRows
from warehouse.statements import (
    bind_parameters,
    count_threads,
    fetch_row,
    read_many_rows,
    read_rows,
    write_literal,
)
from warehouse.steps import compose_query, load_step
from warehouse.views.tiers import TierState

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.rollup")

BUCKET = timedelta(minutes=5)
HOUR = timedelta(hours=1)
CHUNK = timedelta(hours=2)
"""Shortest part of a long window that one transaction refreshes: 2 h of 10,000 devices need
about 1 GB of memory."""
MOST_SAMPLES = 1_200_000
"""A small fleet's parts are longer, up to so many samples: a transaction costs half a second. A
sample of a longer interval counts once for each of its buckets."""
MOST_ROWS = 240_000
"""At most so many rows of `rollup_5m`: at intervals of five minutes each sample has its own."""
MOST_CHUNKS = 360
"""The longest part, as a multiple of the shortest: 30 days."""

MERGE_GAP = timedelta(minutes=30)
"""Dirty buckets closer together than this are refreshed in one transaction, which is cheaper."""

FEW_SHARE = 0.2
"""If at most `MOST_DEVICES` of a part, and at most this share of them, have late samples, only
these devices are rolled up."""

TOUCHED_SAMPLE = "touched_sample"
"""The temporary table of these devices' samples."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (tables hold naive UTC)


class BucketRange(msgspec.Struct, frozen=True):
    """Buckets of one cluster to refresh, [start, end), naive UTC on bucket edges."""

    cluster: str
    start: datetime
    end: datetime
    marks: tuple[datetime, ...] = ()
    """The marked buckets."""
    devices: int = 0
    """How many devices the cluster had when the marks were read; 0: unknown."""
    interval_s: float | None = None
    """The longest known scrape interval of these devices."""


def roll_up(warehouse: "Warehouse", window: Window | None = None, *, refreshed: int = 0) -> int:
    """Refresh the rollups and devices of a window's buckets, or of all dirty buckets.

    Returns:
        How many 5-minute buckets were refreshed, with the `refreshed` ones of before.

    Dirty buckets of archived days whose store is away stay dirty; the others are refreshed. So it
    is with the hours of a cluster whose samples cannot be rolled up, which are listed.

    Raises:
        FallowError: nothing can be rolled up, or not all of a window.
        UnreadableDaysError: the window needs archived days, and their store is away.
        TemporaryError: a later call may succeed (disk full, catalog not reachable); dirty
            buckets stay dirty.
    """
    buckets, is_first = refreshed, True
    faults: list[tuple[BucketRange, Exception]] = []
    due = list_due(warehouse) if window is None else _list_within(warehouse, window)
    # Latest first: the part that clears a bucket's mark comes after the buckets that it reaches.
    waiting = deque(sorted(_split_chunks(warehouse, due), key=lambda s: s.start, reverse=True))
    while waiting:
        stretch = waiting.popleft()
        if not (is_first and warehouse.place.embedded):
            # Another writer or the part before may have changed the devices.
            stretch = msgspec.structs.replace(stretch, devices=0)
        try:
            is_small = window is None and bool(_list_late(warehouse, stretch))
            with warehouse.transaction(is_small=is_small) as cursor:
                _refresh(warehouse, cursor, stretch, whole=window is not None)
        except UnreadableDaysError as error:
            if window is not None:
                raise
            log.warning(
                "late rows wait: their buckets are archived",
                extra={"cluster": stretch.cluster, "why": error.message},
            )
            continue
        except FAULTS as error:
            if window is not None:
                raise
            is_first = False
            if halves := _split_in_half(stretch):
                waiting.extendleft(halves)
            else:
                faults.append((stretch, error))
            continue
        buckets += round((stretch.end - stretch.start) / BUCKET)
        is_first = False
    if faults and not buckets:
        raise faults[0][1]
    for left_out, fault in faults:
        _leave_out(warehouse, left_out, fault)
    return buckets


def _split_in_half(stretch: BucketRange) -> list[BucketRange]:
    """Return the halves of a stretch, the earlier first; none of an hour."""
    if stretch.end - stretch.start <= HOUR:
        return []
    middle = floor_time(stretch.start + (stretch.end - stretch.start) / 2, BUCKET)
    replace = msgspec.structs.replace
    return [replace(stretch, end=middle), replace(stretch, start=middle)]


def _leave_out(warehouse: "Warehouse", stretch: BucketRange, error: Exception) -> None:
    """List a stretch that cannot be rolled up, which stays dirty."""
    log.error(
        "samples cannot be rolled up",
        extra={"cluster": stretch.cluster, "start": stretch.start},
        exc_info=error,
    )
    name = f"{floor_time(stretch.start, HOUR):%Y-%m-%d %H:%M}"
    row = Rejection("rollup_5m", stretch.cluster, name, "hour", str(error))
    at = warehouse.clock()
    warehouse.ingest([build_batch([row], cluster=stretch.cluster, source="warehouse", at=at)])


def list_due(warehouse: "Warehouse") -> list[BucketRange]:
    """Return the buckets that are marked, and those that their samples reach, joined if close."""
    with warehouse.snapshot() as cursor:
        marks = cursor.execute(load_step("rollup/marks")).fetchall()
    ranges: list[BucketRange] = []
    for cluster, bucket, interval_s, devices in marks:
        start = floor_time(bucket, BUCKET)
        end = start + BUCKET + _compute_reach(interval_s)
        last = ranges[-1] if ranges else None
        if last is not None and last.cluster == cluster and start <= last.end + MERGE_GAP:
            ranges[-1] = msgspec.structs.replace(
                last, end=max(end, last.end), marks=(*last.marks, bucket)
            )
        else:
            ranges.append(BucketRange(cluster, start, end, (bucket,), devices, interval_s))
    return ranges


def _read_reaches(warehouse: "Warehouse") -> dict[str, timedelta]:
    """Return for how long after its bucket a sample matters, by cluster."""
    rows = warehouse.query('SELECT "cluster", max(interval_s) AS i FROM device GROUP BY ALL')
    return {row["cluster"]: _compute_reach(row["i"]) for row in rows.to_pylist()}


def _compute_reach(interval_s: float | None) -> timedelta:
    seconds = min(interval_s or UNKNOWN_INTERVAL_S, LONGEST_INTERVAL_S)
    return _ceil_length(timedelta(seconds=seconds * max(MAX_GAP, VALIDITY)), BUCKET)


def _list_within(warehouse: "Warehouse", window: Window) -> list[BucketRange]:
    start = floor_time(window.start.astimezone(UTC).replace(tzinfo=None), BUCKET)
    end = floor_time(window.end.astimezone(UTC).replace(tzinfo=None) - BUCKET.resolution, BUCKET)
    rows = warehouse.query(
        'SELECT "cluster", min(ts) AS first, max(ts) AS last FROM sample'
        " WHERE ts >= $start AND ts < $end GROUP BY ALL",
        {"start": start, "end": end + BUCKET},
    )
    reach = _read_reaches(warehouse)
    return [
        BucketRange(
            row["cluster"],
            floor_time(row["first"], BUCKET),
            min(floor_time(row["last"], BUCKET) + reach.get(row["cluster"], BUCKET), end) + BUCKET,
        )
        for row in rows.to_pylist()
    ]


def _split_chunks(warehouse: "Warehouse", stretches: list[BucketRange]) -> Iterator[BucketRange]:
    for stretch in stretches:
        start, length = stretch.start, _compute_length(warehouse, stretch)
        while start < stretch.end:
            end = min(floor_time(start, length) + length, stretch.end)
            yield msgspec.structs.replace(stretch, start=start, end=end)
            start = end


def _compute_length(warehouse: "Warehouse", stretch: BucketRange) -> timedelta:
    if stretch.end - stretch.start <= CHUNK:
        return CHUNK
    (counts,) = warehouse.query(
        "SELECT coalesce(sum(greatest(interval_s / $bucket_s, 1)), 0) AS samples,"
        " coalesce(sum(interval_s / $bucket_s), 0) AS buckets FROM sample"
        ' WHERE "cluster" = $cluster AND ts >= $start AND ts < $end',
        {
            "cluster": stretch.cluster,
            "start": stretch.start,
            "end": stretch.end,
            "bucket_s": BUCKET.total_seconds(),
        },
    ).to_pylist()
    share = CHUNK / (stretch.end - stretch.start)
    samples, rows = (max(counts[name] * share, 1) for name in ("samples", "buckets"))
    most = min(int(MOST_SAMPLES / samples), int(MOST_ROWS / rows))
    return CHUNK * max(1, min(MOST_CHUNKS, most))


def _refresh(
    warehouse: "Warehouse",
    cursor: "duckdb.DuckDBPyConnection",
    stretch: BucketRange,
    *,
    whole: bool,
) -> None:
    state = tiers.read_state(warehouse, cursor)
    files = state.overlap("sample", stretch.start - LONGEST_REACH, stretch.end)
    hours = floor_time(stretch.start, HOUR), ceil_time(stretch.end, HOUR)
    for table in tiers.ROLLED:
        files += state.overlap(table, *hours)
    seen = msgspec.structs.replace(state, cold=tuple(f for f in state.cold if f[1] in files))
    with warehouse.reading_files(files), NewFiles(cursor, warehouse.place) as new:
        _refresh_buckets(warehouse, cursor, stretch, seen, new, whole=whole)


def _refresh_buckets(
    warehouse: "Warehouse",
    cursor: "duckdb.DuckDBPyConnection",
    stretch: BucketRange,
    seen: TierState,
    files: NewFiles,
    *,
    whole: bool,
) -> None:
    cluster, start, end = stretch.cluster, stretch.start, stretch.end
    where = bind_parameters({"cluster": cluster, "first": start, "last": end})
    hours = {**where, "first": floor_time(start, HOUR), "last": ceil_time(end, HOUR)}
    tiers.restore_days(cursor, seen, "rollup_5m", hours["first"], hours["last"])
    tiers.restore_days(cursor, seen, "rollup_1h", hours["first"], hours["last"])
    touched = None if whole else _find_late(warehouse, cursor, stretch, seen)
    warehouse.late.forget(cluster, start, end)
    only = "" if touched is None else f" WHERE device IN ({', '.join(map(write_literal, touched))})"
    samples = f"FROM ({select_samples(seen)}){only}"
    longest_s = stretch.interval_s if stretch.devices else read_interval(cursor, cluster)
    roll = partial(
        roll_stretch,
        samples=samples,
        where=where,
        ledger=warehouse.settings.ledger,
        longest_s=longest_s,
        keep=touched is not None,
    )
    if touched is None:
        rolled = roll(cursor)
        rest = _read_rest_of_hours(cursor, where, hours, only)
    else:
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(_roll_beside, cursor.cursor(), roll)
            rest = _read_rest_of_hours(cursor, where, hours, only)
            _delete_old_rows(cursor, where, hours, only)
            rolled = late.result()
    rows = pa.concat_tables([rolled.rows, rest]) if rest.num_rows else rolled.rows
    with _write_rollup_files(cursor, files, rolled.rows, rows) as written:
        devices = rolled.devices
        if touched is None:
            _delete_old_rows(cursor, where, hours, only)
            devices = describe_devices(cursor, devices)
            cursor.unregister("model")
        changed = hours["first"] - HOUR, hours["last"]
        places = list_places(rolled.rows)
        if devices.num_rows or places.num_rows > pc.count_distinct(places["device"]).as_py():
            store_places(cursor, warehouse.hosts.resolve(cursor, places))
        if devices.num_rows:
            changed = widen_to_lifetimes(cursor, devices, *changed)
            # Telemetry may arrive before the inventory that has the node of an address.
            ingest.upsert_rows(cursor, "device", warehouse.hosts.resolve(cursor, devices))
        if rolled.rejections is not None:
            ingest.upsert_rows(cursor, "rejection", rolled.rejections)
        dirty.clear_buckets(cursor, **where)
        # Whether the end of an hour is idle is known only when the next hour's stretch is known.
        dirty.mark_hours(cursor, *changed)
        for each in written:
            files.insert(each.result())


def list_places(rows: pa.Table) -> pa.Table:
    """Return which devices of `rollup_5m` rows were on which node from when to when.

    Of a device with several nodes, which it may come back to, bucket by bucket.
    """
    keys = ["cluster", "device"]
    spans = rows.group_by([*keys, "node"]).aggregate([("bucket", "min"), ("bucket", "max")])
    spans = spans.rename_columns({"bucket_min": "first_seen", "bucket_max": "last_seen"})
    nodes = spans.group_by(keys).aggregate([([], "count_all")])
    moved = nodes.filter(pc.greater(nodes["count_all"], 1)).select(keys)
    if not moved.num_rows:
        return spans
    each = rows.select([*keys, "node", "bucket"]).rename_columns([*keys, "node", "first_seen"])
    each = each.append_column("last_seen", each["first_seen"])
    each = each.join(moved, keys, join_type="left semi").select(spans.column_names)
    return pa.concat_tables([spans.join(moved, keys, join_type="left anti"), each])


def _roll_beside(
    beside: "duckdb.DuckDBPyConnection",
    roll: Callable[["duckdb.DuckDBPyConnection"], RolledSamples],
) -> RolledSamples:
    """Roll few devices up while the transaction deletes their rows; its devices are described.

    A cursor of its own sees what the transaction saw when it began: writers take turns, and the
    transaction changes neither samples nor devices meanwhile. Two cores share the work of a late
    bucket, whose statements are small.
    """
    with closing(beside):
        beside.execute("BEGIN TRANSACTION READ ONLY")
        beside.execute("USE lake")
        rolled = roll(beside)
        return msgspec.structs.replace(rolled, devices=describe_devices(beside, rolled.devices))


@contextmanager
def _write_rollup_files(
    cursor: "duckdb.DuckDBPyConnection", files: NewFiles, rows: pa.Table, rows_of_hours: pa.Table
) -> Iterator[list[Future[WrittenRows]]]:
    """Write the files of `rollup_5m` rows, and those of `rollup_1h` of whole hours, meanwhile."""
    threads = count_threads(cursor)
    with closing(cursor.cursor()) as of_buckets, closing(cursor.cursor()) as of_hours:

        def write_hours() -> WrittenRows:
            return files.write(of_hours, "rollup_1h", reduce_hours(rows_of_hours, threads))

        with ThreadPoolExecutor(2) as pool:
            yield [
                pool.submit(files.write, of_buckets, "rollup_5m", rows),
                pool.submit(write_hours),
            ]


def _read_rest_of_hours(
    cursor: "duckdb.DuckDBPyConnection", where: dict[str, Any], hours: dict[str, Any], only: str
) -> pa.Table:
    """Return the stored `rollup_5m` rows of whole hours but those of the stretch."""
    schema = tables.get_schema("rollup_5m")
    if (where["first"], where["last"]) == (hours["first"], hours["last"]):
        return schema.empty_table()
    rows = cursor.execute(
        f"FROM rollup_5m WHERE {_write_owners(only)} AND bucket >= $since AND bucket < $until"
        " AND NOT (bucket >= $first AND bucket < $last)",
        {**where, "since": hours["first"], "until": hours["last"]},
    ).to_arrow_table()
    return rows.select(schema.names).cast(schema)


def widen_to_lifetimes(
    cursor: "duckdb.DuckDBPyConnection", devices: pa.Table, start: datetime, end: datetime
) -> tuple[datetime, datetime]:
    """Widen hours by those that were before or after the lifetime of a device and now are in it.

    A device that comes back existed meanwhile: its seconds of that time are unknown and paid.
    """
    cursor.register("incoming", devices)
    row = fetch_row(cursor, load_step("rollup/earlier_ends"))
    cursor.unregister("incoming")
    last_seen, first_seen = row or (None, None)
    return (
        start if last_seen is None else min(start, floor_time(last_seen, HOUR)),
        end if first_seen is None else max(end, ceil_time(first_seen, HOUR)),
    )


def _find_late(
    warehouse: "Warehouse",
    cursor: "duckdb.DuckDBPyConnection",
    stretch: BucketRange,
    seen: TierState,
) -> list[str] | None:
    """Return the devices to roll up again where few have late samples; None for all devices."""
    late = _list_late(warehouse, stretch)
    if late is None:
        where = {"cluster": stretch.cluster, "first": stretch.start, "last": stretch.end}
        return _find_touched(cursor, seen, where)
    return late or None


def _list_late(warehouse: "Warehouse", stretch: BucketRange) -> list[str] | None:
    """Return the devices with late samples where they are few; none for all, None if unknown."""
    if not stretch.devices:
        return None
    late = warehouse.late.find(stretch.cluster, stretch.marks, stretch.start, stretch.end)
    if late is None:
        return None
    return sorted(late) if len(late) <= FEW_SHARE * stretch.devices else []


def _find_touched(
    cursor: "duckdb.DuckDBPyConnection", seen: TierState, where: dict[str, Any]
) -> list[str] | None:
    """Return the devices whose samples differ from what was rolled up; None for all devices."""
    if where["last"] - where["first"] > MERGE_GAP:
        # Comparing the samples of a long stretch takes time: not where nothing was rolled up yet.
        stored = fetch_row(
            cursor,
            'SELECT count(*) FROM rollup_5m WHERE "cluster" = $cluster'
            " AND bucket >= $first AND bucket < $last",
            where,
        )
        if not stored or not stored[0]:
            return None
    sample = tiers.build_source("sample", seen)
    touched_sql = f"WITH {sample} FROM ({load_step('rollup/touched')})"
    devices = cursor.execute(touched_sql, where).to_arrow_table()
    touched: list[str] = devices.filter(devices["touched"])["device"].to_pylist()
    # Literals in the statement let the engine skip the files of other devices.
    most = min(MOST_DEVICES, FEW_SHARE * devices.num_rows)
    return touched if 0 < len(touched) <= most else None


def read_interval(cursor: "duckdb.DuckDBPyConnection", cluster: str) -> float | None:
    """Return the longest known scrape interval of a cluster's devices, in seconds."""
    row = fetch_row(cursor, load_step("rollup/interval"), {"cluster": cluster})
    return row[0] if row else None


class SampleLabels(msgspec.Struct, frozen=True):
    """The distinct labels of samples (`rollup/labels.sql`), and which numbers they have."""

    rows: pa.Table
    is_strong: bool
    lookback: timedelta = timedelta(0)
    """How far before a stretch samples still count."""

    def list_models(self) -> list[str]:
        """Return the model strings."""
        models: list[str] = self.rows["model"].unique().drop_null().to_pylist()
        return models


def read_labels(
    cursor: "duckdb.DuckDBPyConnection",
    samples: str,
    where: dict[str, Any],
    *,
    longest_s: float | None = None,
    keep: bool = False,
) -> SampleLabels:
    """Return the labels of the samples that a stretch reads, which its own intervals decide.

    `samples`: the SELECT of the device samples. `longest_s`: the longest known scrape interval of
    the cluster's devices. `keep`: the samples are few, and become a temporary table, because each
    scan of the lake's table asks the catalog and opens the files again.
    """
    lookback = _compute_reach(longest_s)
    read = f"FROM {TOUCHED_SAMPLE}" if keep else samples
    with_samples = f"WITH device_sample AS NOT MATERIALIZED ({read})"
    while True:
        span = {
            "cluster": where["cluster"],
            "since": where["first"] - lookback,
            "until": where["last"],
        }
        if keep:
            cursor.execute(f"CREATE OR REPLACE TEMP TABLE {TOUCHED_SAMPLE} AS {samples}", span)
        labels = list_labels(cursor, with_samples, {} if keep else span)
        reach = _compute_reach(pc.max(labels.rows["interval_s"]).as_py())
        if reach <= lookback:
            return msgspec.structs.replace(labels, lookback=lookback)
        lookback = reach


def select_samples(seen: TierState) -> str:
    """Return the SELECT of the device samples that a rollup reads, over all tiers."""
    return f"WITH {tiers.build_source('sample', seen)} {load_step('rollup/device_samples')}"


def roll_stretch(
    cursor: "duckdb.DuckDBPyConnection",
    samples: str,
    where: dict[str, Any],
    ledger: LedgerSettings,
    *,
    longest_s: float | None,
    keep: bool = False,
) -> RolledSamples:
    """Return the `rollup_5m` rows and the devices of a stretch; it registers `model`.

    `samples`, `longest_s` and `keep`: as `read_labels` has them. `where`: `cluster`, `first` and
    `last`.
    """
    labels = read_labels(cursor, samples, where, longest_s=longest_s, keep=keep)
    cursor.register("model", read_model_facts(labels.list_models()))
    since = where["first"] - labels.lookback
    span = {"cluster": where["cluster"], "since": since, "until": where["last"]}
    if keep:
        samples, span = f"FROM {TOUCHED_SAMPLE}", {}
    with_samples = f"WITH device_sample AS NOT MATERIALIZED ({samples})"
    stretch = {"since": since, "until": where["last"]}
    doubted = _find_doubted(cursor, with_samples, labels, {**stretch, **where})
    if doubted is None:
        return roll_samples(cursor, with_samples, labels, {**span, **where}, ledger)
    cursor.register("doubted", doubted)
    with_samples = (
        f"WITH every_sample AS NOT MATERIALIZED ({samples}), "
        f"device_sample AS NOT MATERIALIZED ({load_step('rollup/judged')})"
    )
    judged = list_labels(cursor, with_samples, span)
    rolled = roll_samples(cursor, with_samples, judged, {**span, **where}, ledger)
    cursor.unregister("doubted")
    return msgspec.structs.replace(rolled, rejections=_describe_doubted(doubted, where))


def _find_doubted(
    cursor: "duckdb.DuckDBPyConnection",
    with_samples: str,
    labels: SampleLabels,
    values: dict[str, Any],
) -> pa.Table | None:
    """Return the samples that contradict others (`rollup/doubted.sql`); None = all are as named."""
    rows = labels.rows.filter(pc.is_valid(labels.rows["node"]))
    places = rows.group_by(["device", "node"]).aggregate([])
    is_named = pc.any(pc.match_substring_regex(places["node"], f"{VIA}|{AND}")).as_py()
    if places.num_rows == pc.count_distinct(places["device"]).as_py() and not is_named:
        return None
    cursor.register("label", rows)
    sql = f"{with_samples} FROM ({compose_query((*ERAS, 'rollup/doubted'))})"
    named = {n: v for n, v in values.items() if f"${n}" in sql}
    doubted = cursor.execute(sql, named).to_arrow_table()
    cursor.unregister("label")
    return doubted if doubted.num_rows or is_named else None


def _describe_doubted(doubted: pa.Table, where: dict[str, Any]) -> pa.Table:
    """Return rows of `rejection`: which nodes' exporters are not believed, of each device."""
    rows = doubted.group_by(["device", "node", "dropped", "home"]).aggregate([([], "count_all")])
    rejections = [
        Rejection(
            "sample",
            "",
            row["device"],
            "node",
            f"contradicted: exporters of {row['home']} and {row['node']} report it"
            + (", the first is believed" if row["dropped"] else ": unknown"),
            node=row["home"],
            count=row["count_all"],
        )
        for row in rows.to_pylist()
    ]
    at = where["last"].replace(tzinfo=UTC)
    return build_batch(rejections, cluster=where["cluster"], source="warehouse", at=at).rows


def roll_samples(
    cursor: "duckdb.DuckDBPyConnection",
    with_samples: str,
    labels: SampleLabels,
    values: dict[str, Any],
    ledger: LedgerSettings,
) -> RolledSamples:
    """Return the `rollup_5m` rows and the devices of the buckets in [first, last) of one cluster.

    `with_samples` is the WITH of `device_sample`, `labels` are its labels; `values` has its
    parameters, `cluster`, `first` and `last`. The facts about models are registered as `model`.
    """
    named = {n: v for n, v in values.items() if f"${n}" in with_samples}
    threads = count_threads(cursor)
    sql = _write_labelled(with_samples, "rollup/classified")
    parameters = {**named, "is_strong": labels.is_strong, **list_thresholds(ledger)}
    if named:
        samples = read_many_rows(cursor, sql, parameters)
    else:  # few, in a temporary table
        samples = read_rows(cursor, sql, parameters)
    where = (values[name] for name in ("cluster", "first", "last"))
    texts = labels.rows.drop_columns(["interval_s"])
    return reduce_samples(samples.to_batches(), texts, *where, threads=threads)


def list_labels(
    cursor: "duckdb.DuckDBPyConnection", with_samples: str, values: dict[str, Any]
) -> SampleLabels:
    """Return the labels of the samples; no two have the same number.

    Raises:
        WarehouseError: two labels have the same SHA-256 hash.
    """
    sql = _write_labelled(with_samples, "rollup/labels")
    for is_strong in (False, True):
        rows = read_rows(cursor, sql, {**values, "is_strong": is_strong})
        if len(rows["label"].unique()) == rows.num_rows:
            return SampleLabels(rows, is_strong)
    raise WarehouseError(
        "the labels of two devices or pods have the same SHA-256 hash; nothing is rolled up",
        hint="rename one of the pods",
    )


def _write_labelled(with_samples: str, step: str) -> str:
    labelled = f"labelled_sample AS NOT MATERIALIZED ({load_step('rollup/labelled')})"
    return f"{with_samples} FROM (WITH {labelled} FROM ({load_step(step)}))"


def describe_devices(cursor: "duckdb.DuckDBPyConnection", sampled: pa.Table) -> pa.Table:
    """Return the rows of `device` that are new or have changed; `model` is registered."""
    cursor.register("sampled_device", sampled)
    rows = cursor.execute(load_step("rollup/device")).to_arrow_table()
    cursor.unregister("sampled_device")
    return rows


def _delete_old_rows(
    cursor: "duckdb.DuckDBPyConnection", where: dict[str, Any], hours: dict[str, Any], only: str
) -> None:
    _delete_rows(cursor, "rollup_5m", where, only)
    _delete_rows(cursor, "rollup_1h", hours, only)


def _delete_rows(
    cursor: "duckdb.DuckDBPyConnection", table: str, where: dict[str, Any], only: str
) -> None:
    cursor.execute(
        f"DELETE FROM {table} WHERE {_write_owners(only)} AND bucket >= $first AND bucket < $last",
        where,
    )


def _write_owners(only: str) -> str:
    """Return the SQL condition of the rows of a cluster, or of few of its devices."""
    if not only:
        return '"cluster" = $cluster'
    # The devices select the files well. A second column would cost the lake a third more.
    return f'concat("cluster") = $cluster{only.replace("WHERE", "AND")}'


def read_model_facts(models: list[str]) -> pa.Table:
    """Return the facts of `fallow/gpu_models.csv` about each model string."""
    facts = [find_gpu_model(m) for m in models]
    return pa.table(
        {
            "model": pa.array(models, pa.string()),
            "gpu_model": pa.array([get_model_name(m) for m in models], pa.string()),
            "tdp_w": pa.array([k and k.tdp_w for k in facts], pa.float32()),
            "idle_context_w": pa.array([k and k.idle_context_w for k in facts], pa.float32()),
            "mig_slices": pa.array([k and k.mig_slices for k in facts], pa.int32()),
        }
    )


def list_thresholds(ledger: LedgerSettings) -> dict[str, float]:
    """Return the parameters of `classified.sql` that a site or another module may change."""
    return {
        "idle_threshold": ledger.idle_threshold,
        "low_threshold": ledger.low_threshold,
        "validity": VALIDITY,
        "max_gap": MAX_GAP,
        "unknown_interval_s": UNKNOWN_INTERVAL_S,
        "longest_interval_s": LONGEST_INTERVAL_S,
    }


def floor_time(timestamp: datetime, step: timedelta) -> datetime:
    """Return the timestamp rounded down to whole steps since 1970."""
    return timestamp - (timestamp - _EPOCH) % step


def ceil_time(timestamp: datetime, step: timedelta) -> datetime:
    """Return the timestamp rounded up to whole steps since 1970."""
    return timestamp + -(timestamp - _EPOCH) % step


def _ceil_length(length: timedelta, step: timedelta) -> timedelta:
    return length + -length % step


LONGEST_REACH = _compute_reach(LONGEST_INTERVAL_S)
"""How long before a bucket a sample may still count in it, for any interval."""
