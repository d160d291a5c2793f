"""Import Prometheus text from a file: one scrape, or many with timestamps (OpenMetrics too)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from collectors.assemble import assemble
from collectors.exposition import read
from collectors.inventory import derive_pod_uid
from collectors.odd_times import DAY_US, find_first_day, may_be_odd, reject
from collectors.reader import find_meanings
from collectors.series_codes import DEVICE, CodedSeries, Floats, Ints, SeriesCatalog
from fallow.errors import UsageError
from fallow.rejections import Rejection
from fallow.system.input_files import open_text_input
from fallow.tables import Batch

SOURCE = "exposition"
BLOCK = 8 * 1024 * 1024
MOST_BYTES = 8 << 20
"""Bytes of a line."""
SLICE = 1_000_000
"""Values of one batch, or all values of one timestamp."""


class _Values(msgspec.Struct, frozen=True):
    catalog: SeriesCatalog
    coded: CodedSeries
    stamps: Ints
    values: Floats
    rejected: int


def import_exposition(
    path: Path,
    cluster: str,
    now: datetime,
    interval_s: float,
    refused: list[Rejection] | None = None,
) -> Iterator[Batch]:
    """Return `sample`, `holding`, `pod` and `scrape` batches of a text file.

    `now` is the timestamp of lines without one. The file is read to its end first: OpenMetrics
    lists all timestamps of one metric before the next metric, so no row is complete earlier.
    `refused` gets the rows whose time is far before the others' (`odd_times`).

    Raises:
        UsageError: no such file, or nothing in it is a GPU metric that Fallow knows.
    """
    if not interval_s > 0:
        raise UsageError(f"--interval is {interval_s:g} s", hint="the scrape interval, such as 30s")
    timestamp = now.astimezone(UTC).replace(tzinfo=None)
    values = _read(path, np.datetime64(timestamp, "us").astype(np.int64))
    values, odd = _leave_odd_times(values)
    if refused is not None:
        refused += odd
    return _build_batches(path, values, cluster, interval_s)


def _leave_odd_times(values: _Values) -> tuple[_Values, list[Rejection]]:
    """Return the values without those of odd times, and these as rows by device."""
    stamps = values.stamps
    if not len(stamps) or not may_be_odd(stamps.min() // DAY_US, stamps.max() // DAY_US):
        return values, []
    day = stamps // DAY_US
    days, counts = np.unique(day, return_counts=True)
    first = find_first_day(days, counts)
    odd = np.flatnonzero(day < first)
    inside = np.flatnonzero(day >= first)
    if not len(odd) or not len(inside):
        return values, []
    catalog = values.catalog
    rows = pl.DataFrame(
        {
            "device": catalog.build_table()[values.coded.identity[odd], DEVICE],
            "ts": values.stamps[odd],
            "day": day[odd],
        }
    ).group_by("device", "ts")
    devices = rows.agg(pl.col("day").first()).group_by("device").agg(pl.col("day").min(), pl.len())
    listed = [
        (catalog.devices[code], at, count) for code, at, count in devices.sort("device").rows()
    ]
    remaining = msgspec.structs.replace(
        values,
        coded=values.coded.take(inside),
        stamps=values.stamps[inside],
        values=values.values[inside],
        rejected=values.rejected + len(odd),
    )
    return remaining, reject(listed, first)


def _read(path: Path, now: np.int64) -> _Values:
    catalog = SeriesCatalog()
    coded: list[CodedSeries] = []
    stamps: list[Ints] = []
    values: list[Floats] = []
    rejected = unknown = 0
    for block in _read_blocks(path):
        text = read(block, whole=True)
        line_numbers, series = find_meanings(text.lines, {})
        lines = [text.lines[place] for place in line_numbers]
        coded.append(catalog.code(series))
        stamps.append(
            np.array([now if n.timestamp_us is None else n.timestamp_us for n in lines], np.int64)
        )
        values.append(np.array([line.value for line in lines], np.float64))
        rejected += text.rejected
        unknown += len(text.lines) - len(lines)
    if not sum(map(len, values)):
        complaint = f"its {unknown} series are others" if unknown else "it is no Prometheus text"
        raise UsageError(
            f"{path} holds no GPU metric that Fallow knows: {complaint}",
            hint="DCGM_FI_*, hami_*, gpu_* (AMD) and npu_chip_info_* are known",
        )
    return _Values(
        catalog, CodedSeries.joined(coded), np.concatenate(stamps), np.concatenate(values), rejected
    )


def _read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the file in blocks that end where a line ends."""
    with open_text_input(path) as file:
        rest = b""
        while block := file.read(BLOCK):
            head, newline, rest = (rest + block).rpartition(b"\n")
            if len(rest) > MOST_BYTES:
                raise UsageError(
                    f"{path} is no Prometheus text: a line over {MOST_BYTES >> 20} MiB"
                )
            yield head + newline
        yield rest


def _build_batches(path: Path, values: _Values, cluster: str, interval_s: float) -> Iterator[Batch]:
    order = np.argsort(values.stamps, kind="stable")
    stamps = values.stamps[order]
    refused = clipped = start = 0
    while start < len(order):
        last = stamps[min(start + SLICE, len(order)) - 1]
        end = int(np.searchsorted(stamps, last, side="right"))
        part = order[start:end]
        assembled = assemble(
            values.catalog,
            values.coded.take(part),
            values.stamps[part].astype("datetime64[us]"),
            values.values[part],
            cluster=cluster,
            interval_s=interval_s,
            source=SOURCE,
        )
        refused += assembled.rejected
        clipped += int(assembled.clipped.sum())
        yield from assembled.batches
        for batch in assembled.batches:
            yield from _list_pods(batch, cluster, interval_s)
        start = end
    first, final = (stamps[i].astype("datetime64[us]").astype(datetime) for i in (0, -1))
    yield Batch.of(
        "scrape",
        {
            "cluster": [cluster],
            "ts": [first],
            "collector": [SOURCE],
            "target": [str(path)],
            "until": [final + timedelta(seconds=interval_s)],
            "up": [True],
            "samples": [len(values.values) - refused],
            "rejected": [values.rejected + refused],
            "clipped": [clipped],
        },
    )


def _list_pods(batch: Batch, cluster: str, interval_s: float) -> Iterator[Batch]:
    """Yield the pods that a batch names: a text file has no other information about them."""
    rows = pl.DataFrame(pl.from_arrow(batch.rows)).filter(pl.col("pod").is_not_null())
    if rows.is_empty():
        return
    node = pl.col("node").drop_nulls().last() if batch.table == "sample" else pl.lit(None)
    seen = rows.group_by("namespace", "pod", maintain_order=True).agg(
        pl.col("ts").min().alias("first"), pl.col("ts").max().alias("last"), node.alias("node")
    )
    pods = seen["pod"].to_list()
    namespaces = seen["namespace"].fill_null("").to_list()
    yield Batch.of(
        "pod",
        {
            "cluster": [cluster] * len(pods),
            "uid": [derive_pod_uid(cluster, n, p) for n, p in zip(namespaces, pods, strict=True)],
            "namespace": namespaces,
            "pod": pods,
            "node": seen["node"].to_list(),
            "workload_kind": ["Pod"] * len(pods),
            "workload": pods,
            "first_seen": seen["first"].to_list(),
            "last_seen": [t + timedelta(seconds=interval_s) for t in seen["last"].to_list()],
        },
    )
