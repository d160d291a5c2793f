"""Import device samples from any table: Parquet or CSV, one row per device and time.

The caller names the file's columns: `workload` and `ts` are required, then any numeric column of
the `sample` table, and `device`, `node`, `model`, `namespace`, `pod`, `team`. Without a device
column the pod is used as the device, and without a pod the workload is used as the pod. A row with
a device and neither workload nor pod is of a device that is not allocated.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from collectors.frame import MARGIN, SAMPLE, TOTAL
from collectors.inventory import derive_pod_uid
from collectors.odd_times import DAY_US, find_first_day, may_be_odd, reject
from collectors.series import get_legal_range
from collectors.table_file import explain_unreadable, open_table, read_numbers, read_timestamps
from fallow.errors import UsageError
from fallow.rejections import Rejection
from fallow.tables import Batch, get_schema, list_columns
from fallow.window import EARLIEST

SOURCE = "file"
NAMESPACE = "imported"
WORDS = ("workload", "device", "node", "model", "namespace", "pod", "team")
UNITS = {c.name: c.unit for c in list_columns("sample") if c.name in SAMPLE}
NUMBERS = tuple(name for name in SAMPLE if name != TOTAL)
CHUNK = 100_000
"""Rows of one batch."""


class _Plan(msgspec.Struct, frozen=True):
    path: Path
    mapping: Mapping[str, str]
    interval_s: float
    cluster: str
    frame: Any
    """Lazy: `ts`, words, numbers and, per number, `<name>?` = the file has one."""

    @property
    def numbers(self) -> list[str]:
        return [name for name in NUMBERS if name in self.mapping]


def import_samples(
    path: Path,
    columns: Mapping[str, str],
    interval_s: float,
    cluster: str,
    refused: list[Rejection] | None = None,
) -> Iterator[Batch]:
    """Return `pod`, `sample` and `scrape` batches of a file.

    `columns` maps Fallow's names to the file's. `ts` may be Unix seconds, milliseconds,
    microseconds or nanoseconds (distinguished by size), timestamps, or ISO 8601 text; without a
    zone it is UTC. Negative and impossible values become null and are counted in the `scrape`
    row. The whole file is checked before the first batch, so that a bad file stores nothing.
    `refused` gets the rows whose time is far before the others' (`odd_times`).

    Raises:
        UsageError: the file or the mapping cannot be used; the message names the legal values.
    """
    _check(columns, interval_s)
    source = open_table(path)
    missing = [name for name in columns.values() if name not in source.columns]
    if missing:
        raise UsageError(
            f"{path} has no column {missing[0]!r}", hint=f"it has: {', '.join(source.columns)}"
        )
    frame = source.frame.select(
        read_timestamps(source, columns["ts"]).alias("ts"),
        pl.col(columns["ts"]).alias("ts!"),
        *(pl.col(columns[w]).cast(pl.String).alias(w) for w in WORDS if w in columns),
        *(read_numbers(source, columns[n], n, UNITS[n]).alias(n) for n in NUMBERS if n in columns),
        *(pl.col(columns[n]).alias(f"{n}!") for n in NUMBERS if n in columns),
    )
    plan = _Plan(path, columns, interval_s, cluster, frame)
    try:
        rejected, clipped, first_day, last_day = _inspect(plan)
        odd: list[Rejection] = []
        if may_be_odd(first_day, last_day):
            plan, odd = _leave_odd_times(plan)
        pods = _list_pods(plan)
    except PolarsError as error:
        raise explain_unreadable(path, error) from error
    if refused is not None:
        refused += odd
    return _build_batches(plan, pods, rejected + sum(row.count for row in odd), clipped)


def _leave_odd_times(plan: _Plan) -> tuple[_Plan, list[Rejection]]:
    """Return the plan without the rows of odd times, and those by device."""
    rows = _fill_owners(plan).select("device", day=pl.col("ts").dt.epoch("d").cast(pl.Int64))
    days = rows.group_by("day").len().sort("day").collect(engine="streaming")
    first = find_first_day(days["day"].to_numpy(), days["len"].cast(pl.Int64).to_numpy())
    if days["day"][0] >= first:
        return plan, []
    odd = rows.filter(pl.col("day") < first).group_by("device")
    listed = odd.agg(pl.col("day").min(), pl.len()).sort("device").collect().rows()
    begin = pl.lit(first * DAY_US).cast(pl.Datetime("us"))
    frame = plan.frame.filter(pl.col("ts") >= begin)
    if not int(days.filter(pl.col("day") >= first)["len"].sum()):
        raise UsageError(
            f"{plan.path}: all of {plan.mapping['ts']!r} (ts) is before {EARLIEST:%Y}",
            hint="is it Unix time, or a time since the start of a trace? Add the start to it",
        )
    return msgspec.structs.replace(plan, frame=frame), reject(listed, first)


def _check(mapping: Mapping[str, str], interval_s: float) -> None:
    legal = ("ts", *WORDS, *NUMBERS)
    for name in mapping:
        if name not in legal:
            raise UsageError(
                f"--columns: {name!r} is not a column of Fallow's",
                hint=f"legal: {', '.join(legal)}",
            )
    for name in ("workload", "ts"):
        if name not in mapping:
            raise UsageError(
                f"--columns does not say which column is {name!r}",
                hint="such as --columns workload=pod_name,ts=timestamp,gpu_util_pct=util",
            )
    if not any(name in NUMBERS for name in mapping):
        raise UsageError("--columns names no measurement", hint=f"legal: {', '.join(NUMBERS)}")
    if not interval_s > 0:
        raise UsageError(f"--interval is {interval_s:g} s", hint="the scrape interval, such as 57s")


def _inspect(plan: _Plan) -> tuple[int, int, int, int]:
    """Check every row once; return how many are rejected and clipped, and their days' bounds.

    Raises:
        UsageError: a value does not fit its column, or no row is usable.
    """
    numbers = plan.numbers
    facts = (
        plan.frame.select(
            pl.len().alias("rows"),
            _select_usable(plan).sum().alias("usable"),
            pl.col("ts").count().alias("times"),
            pl.col("ts").min().dt.epoch("d").cast(pl.Int64).alias("first"),
            pl.col("ts").max().dt.epoch("d").cast(pl.Int64).alias("last"),
            *(_find_strange(name).alias(name) for name in ("ts", *numbers)),
            *(_select_impossible(plan, name).sum().alias(f"{name}-") for name in numbers),
            *((_select_usable(plan) & _is_over(n)).sum().alias(f"{n}+") for n in numbers),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    for name in ("ts", *numbers):
        if facts[name] is not None:
            kind = "time" if name == "ts" else "number"
            raise UsageError(
                f"{plan.path}: column {plan.mapping[name]!r} ({name}) holds {facts[name]!r}, "
                f"which is no {kind}",
                hint="a time is Unix time or ISO 8601 text" if name == "ts" else None,
            )
    if not facts["rows"]:
        raise UsageError(f"{plan.path} holds no rows")
    if not facts["times"]:
        raise UsageError(
            f"{plan.path}: column {plan.mapping['ts']!r} (ts) has no time, only nulls",
            hint="name the column with the time of each sample: --columns ts=NAME",
        )
    if not facts["usable"]:
        named = " or a device" if "device" in plan.mapping else ""
        raise UsageError(f"{plan.path}: no row has both a ts and a workload{named}")
    refused = sum(facts[f"{name}-"] for name in numbers)
    clipped = sum(facts[f"{name}+"] for name in numbers)
    rejected = int(facts["rows"] - facts["usable"] + refused)
    return rejected, clipped, facts["first"], facts["last"]


def _select_usable(plan: _Plan) -> pl.Expr:
    names = [pl.col(w).is_not_null() for w in ("workload", "device") if w in plan.mapping]
    return pl.col("ts").is_not_null() & pl.any_horizontal(names)


def _find_strange(name: str) -> pl.Expr:
    """Return the first raw value that is neither a timestamp nor a number, as text."""
    raw = pl.col(f"{name}!")
    lost = raw.is_not_null() & pl.col(name).is_null()
    return raw.filter(lost).first().cast(pl.String)


def _select_impossible(plan: _Plan, name: str) -> pl.Expr:
    low, high = get_legal_range(name)
    value = pl.col(name)
    # NaN is how data frames write a missing value; it is null, not a refusal.
    is_out = value.is_not_nan() & ~value.is_between(low, high) & ~_is_over(name)
    return is_out & _select_usable(plan)


def _is_over(name: str) -> pl.Expr:
    """Return whether a value is a ratio just above the whole (`collectors.frame.bound_values`)."""
    high = get_legal_range(name)[1]
    return pl.col(name).is_between(1, MARGIN, closed="right") & pl.lit(high == 1)


def _fill_owners(plan: _Plan) -> pl.LazyFrame:
    """Return the usable rows with namespace, pod and device filled in."""
    mapped = plan.mapping
    pod = pl.col("pod").fill_null(pl.col("workload")) if "pod" in mapped else pl.col("workload")
    device = _name_device(mapped).fill_null(pod) if "device" in mapped else pod
    namespace = pl.lit(NAMESPACE)
    if "namespace" in mapped:
        namespace = pl.col("namespace").fill_null(NAMESPACE)
    frame: pl.LazyFrame = plan.frame
    owned = frame.filter(_select_usable(plan)).with_columns(
        pod.alias("pod"), device.alias("device"), namespace.alias("namespace")
    )
    # A namespace without a pod names no holder.
    holder = pl.when(pl.col("pod").is_not_null()).then(pl.col("namespace"))
    return owned.with_columns(holder.alias("namespace"))


def _name_device(mapped: Mapping[str, str]) -> pl.Expr:
    """Return the device: an index is one of each node."""
    device = pl.col("device")
    if "node" not in mapped:
        return device
    of_node = pl.col("node") + "/gpu" + device
    is_index = device.str.contains(r"^\d{1,4}$") & pl.col("node").is_not_null()
    return pl.when(is_index).then(of_node).otherwise(device)


def _list_pods(plan: _Plan) -> pl.DataFrame:
    """Return the pods; what is not allocated is one row without a pod.

    A file shows when a pod was seen; when it started is unknown.
    """
    extra = [pl.col(w).drop_nulls().last() for w in ("team", "node") if w in plan.mapping]
    return (
        _fill_owners(plan)
        .group_by("namespace", "pod")
        .agg(
            pl.coalesce(pl.col("workload").drop_nulls().last(), pl.col("pod").last()),
            pl.col("ts").min().alias("first_seen"),
            pl.col("ts").max().alias("last_look"),
            *extra,
        )
        .sort("namespace", "pod")
        .collect(engine="streaming")
    )


def _build_batches(plan: _Plan, pods: pl.DataFrame, rejected: int, clipped: int) -> Iterator[Batch]:
    end = timedelta(seconds=plan.interval_s)
    rows = pods.filter(pl.col("pod").is_not_null()).select(
        pl.lit(plan.cluster).alias("cluster"),
        pl.struct("namespace", "pod")
        .map_elements(
            lambda p: derive_pod_uid(plan.cluster, p["namespace"], p["pod"]), return_dtype=pl.String
        )
        .alias("uid"),
        pl.exclude("last_look"),
        pl.lit("Workload").alias("workload_kind"),
        (pl.col("last_look") + end).alias("last_seen"),
    )
    if rows.height:
        yield _batch("pod", rows)
    read = 0
    numbers = plan.numbers
    clean = _fill_owners(plan).select(
        pl.lit(plan.cluster).alias("cluster"),
        pl.lit(SOURCE).alias("source"),
        pl.lit(plan.interval_s).alias("interval_s"),
        pl.col("ts"),
        *(
            pl.col(w)
            for w in ("device", "node", "model", "namespace", "pod")
            if w in _list_present(plan)
        ),
        *(_clean_number(name) for name in numbers),
    )
    for part in clean.collect_batches(chunk_size=CHUNK, maintain_order=True):
        read += sum(part[name].count() for name in numbers)
        yield _batch("sample", part)
    first, last = pods["first_seen"].min(), pods["last_look"].max()
    yield Batch.of(
        "scrape",
        {
            "cluster": [plan.cluster],
            "ts": [first],
            "collector": [SOURCE],
            "target": [str(plan.path)],
            "until": [last + end],  # type: ignore[operator]  # a column of timestamps has a max
            "up": [True],
            "samples": [read],
            "rejected": [rejected],
            "clipped": [clipped],
        },
    )


def _list_present(plan: _Plan) -> set[str]:
    return {"device", "namespace", "pod", *plan.mapping}


def _clean_number(name: str) -> pl.Expr:
    low, high = get_legal_range(name)
    bounded = pl.when(_is_over(name)).then(1.0).otherwise(pl.col(name))
    value = pl.when(bounded.is_between(low, high)).then(bounded)
    whole = get_schema("sample").field(name).type
    return (value.round() if str(whole).startswith("int") else value).alias(name)


def _batch(table: str, rows: pl.DataFrame) -> Batch:
    arrow = rows.to_arrow()
    return Batch.of(table, {name: arrow[name] for name in arrow.column_names})
