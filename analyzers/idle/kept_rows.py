"""Rows of idleness as the accounting step keeps them: five minutes that are alike, joined.

A row is what `samples.read_parts` reads of the five minutes one after another in an hour, as long
as they are of one kind and one holder (`DeviceSamples.wide`). So what is judged from rows that were
kept and from rollups is the same: sums over rows are sums over their five minutes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from analyzers.idle.spans import MEASURES, TRAFFIC_BPS, compute_spoken
from fallow.settings.idle import IdleSettings
from fallow.tables import get_schema
from warehouse.signals.frozen import find_moves
from warehouse.signals.runs import BUCKET_US, BUSY, MICRO, DeviceSamples, Ints, WideRows

FORMAT = 2
"""Raise it where the same settings give other rows."""

HOUR_US = 3600 * MICRO

KEPT_MEASURES = (
    "power_w", "still_w", "energy_mj", "traffic_bps", "procs", "kernel_age_s", "context",
)  # fmt: skip

Range = tuple[int, int]
"""From when to before when, in microseconds."""


def name_shape(settings: IdleSettings) -> str:
    """Return what shapes the rows: those of another shape are not read."""
    shaping = ("threshold", "exit_threshold", "exit_samples", "max_gap", "startup_grace")
    return f"{FORMAT} " + " ".join(str(getattr(settings, name)) for name in shaping)


def join_buckets(samples: DeviceSamples, edges: pl.DataFrame) -> DeviceSamples:
    """Join the five-minute rows of each device and hour that are alike.

    `edges` has number and at_us: five minutes that begin a row, as another holder's do.
    """
    if not len(samples):
        return samples
    joined = _find_joined(samples, edges)
    begins = np.flatnonzero(np.append(True, ~joined))
    ends = np.append(begins[1:], len(samples)) - 1
    buckets = ends - begins + 1
    m = samples.measures
    spoken = np.broadcast_to(compute_spoken(samples), len(samples))
    inside = np.append(joined, False)

    def total(values: Any) -> Any:
        return np.add.reduceat(values, begins)

    peak = None
    if samples.peak is not None:
        place = np.arange(len(samples)) - np.repeat(begins, buckets)
        peak = total(samples.peak.astype(np.int64) << place)
    return DeviceSamples(
        device=samples.device[begins],
        at=samples.at[begins],
        validity=buckets * BUCKET_US,
        gap=samples.gap[begins],
        kind=samples.kind[begins],
        sample_count=total(samples.sample_count),
        interval_s=samples.interval_s[begins],
        measures={
            "power_w": total(m["power_w"].astype(np.float64)) / buckets,
            "still_w": m["still_w"][ends],
            "energy_mj": total(m["energy_mj"].astype(np.float64)),
            "traffic_bps": np.minimum.reduceat(m["traffic_bps"], begins),
            "procs": m["procs"][begins],
            "kernel_age_s": m["kernel_age_s"][ends],
            "context": m["context"][begins],
            **{name: np.full(len(begins), np.nan) for name in ("activity", "idle_clock")},
        },
        still=None if samples.still is None else samples.still[begins],
        peak=peak,
        bucketed=True,
        wide=WideRows(
            buckets=buckets,
            moved=total((find_moves(samples) | _find_changed(samples, inside)).astype(np.int64)),
            silent_us=total(np.where(inside, np.maximum(BUCKET_US - spoken, 0.0), 0.0)),
            spoken_us=spoken[ends],
        ),
    )


def _find_joined(samples: DeviceSamples, edges: pl.DataFrame) -> Any:
    """Return which rows but the first belong to the row before."""
    device, at, m = samples.device, samples.at, samples.measures
    same = device[1:] == device[:-1]
    joined = same & (at[1:] - at[:-1] == BUCKET_US) & (at[1:] // HOUR_US == at[:-1] // HOUR_US)
    # Pods that share a device have a row each in the same five minutes.
    again = same & (at[1:] == at[:-1])
    alone = ~(np.append(again, False) | np.append(False, again))
    # Whether traffic is more than monitoring moves is known only where the device's floor is.
    alone &= ~(m["traffic_bps"] > TRAFFIC_BPS) & (samples.kind != BUSY)
    if not edges.is_empty():
        origin = int(min(at.min(), edges["at_us"].min()))
        wide = int(max(at.max(), edges["at_us"].max())) - origin + 1
        begun = edges["number"].to_numpy() * wide + (edges["at_us"].to_numpy() - origin)
        joined &= ~np.isin(device[1:] * wide + (at[1:] - origin), begun)
    joined &= alone[1:] & alone[:-1]
    facts = [samples.kind, samples.interval_s, m["procs"] > 0, m["context"] == 0]
    # A row of one power, or of a new one in each five minutes: `frozen.extend_repeats` follows it.
    facts.append(np.nan_to_num(m["still_w"], nan=-1.0))
    facts += [np.isnan(m[name]) for name in KEPT_MEASURES if name != "still_w"]
    if samples.still is not None:
        facts.append(samples.still)
    for values in facts:
        joined &= values[1:] == values[:-1]
    return joined


def _find_changed(samples: DeviceSamples, inside: Any) -> Any:
    """Return the rows that are followed, in the same joined row, by another value of a sign."""
    changed = np.zeros(len(samples), dtype=bool)
    for name in ("still_w", "traffic_bps", "kernel_age_s"):
        step = np.diff(np.broadcast_to(samples.measures[name], len(samples)))
        changed[:-1] |= ~np.isnan(step) & (step != 0)
    return changed & inside


def build_table(samples: DeviceSamples, devices: pl.DataFrame) -> pa.Table:
    """Return joined rows as rows of `idle_row`; `devices` has number, cluster and device."""
    schema = get_schema("idle_row")
    if samples.wide is None:
        return schema.empty_table()
    names = devices.select("number", "cluster", "device")
    count, again = len(samples), np.zeros(len(samples), dtype=np.int64)
    if count > 1:
        again[1:] = (samples.device[1:] == samples.device[:-1]) & (
            samples.at[1:] == samples.at[:-1]
        )
    index = np.arange(count)
    columns: dict[str, Any] = {
        "number": samples.device,
        "bucket": samples.at,
        "line": index - np.maximum.accumulate(np.where(again == 0, index, 0)),
        "buckets": samples.wide.buckets,
        "kind": samples.kind,
        "still": samples.still if samples.still is not None else np.zeros(count, dtype=bool),
        "interval_s": np.broadcast_to(samples.interval_s, count),
        "samples": samples.sample_count,
        **{name: samples.measures[name] for name in KEPT_MEASURES},
        "moved": samples.wide.moved,
        "silent_us": samples.wide.silent_us,
        "spoken_us": samples.wide.spoken_us,
        "peaks": samples.peak if samples.peak is not None else np.zeros(count, dtype=np.int64),
    }
    rows = pl.DataFrame(columns).with_columns(
        pl.col("bucket").cast(pl.Datetime("us")), pl.col(KEPT_MEASURES).fill_nan(None)
    )
    named = rows.join(names, on="number", how="left", maintain_order="left")
    return named.select(schema.names).to_arrow().cast(schema)


def build_samples(table: pa.Table, settings: IdleSettings) -> DeviceSamples:
    """Return the rows of `kept_rows.sql`, sorted by device and time."""
    rows = pl.DataFrame(table).sort("device", "at", "line")
    buckets = rows["buckets"].cast(pl.Int64).to_numpy()
    interval = rows["interval_s"].cast(pl.Float64).to_numpy()
    missing = np.broadcast_to(np.float32(np.nan), rows.height)
    measures = dict.fromkeys(MEASURES, missing)
    for name in KEPT_MEASURES:
        if rows[name].null_count() < rows.height:
            measures[name] = rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    peaks = rows["peaks"].cast(pl.Int64).to_numpy()
    return DeviceSamples(
        device=rows["device"].cast(pl.Int64).to_numpy(),
        at=rows["at"].to_numpy(),
        validity=buckets * BUCKET_US,
        gap=compute_gap(interval, settings),
        kind=rows["kind"].cast(pl.Int8).to_numpy(),
        sample_count=rows["samples"].cast(pl.Int64).to_numpy(),
        interval_s=interval,
        measures=measures,
        still=rows["still"].to_numpy(),
        peak=peaks if peaks.any() else None,
        bucketed=True,
        wide=WideRows(
            buckets=buckets,
            moved=rows["moved"].cast(pl.Int64).to_numpy(),
            silent_us=rows["silent_us"].to_numpy(),
            spoken_us=rows["spoken_us"].to_numpy(),
        ),
    )


def compute_gap(interval_s: Any, settings: IdleSettings) -> Any:
    """Return the longest time between five minutes that ends no run (us)."""
    gap = interval_s * 3 if settings.max_gap is None else settings.max_gap.total_seconds()
    gap = np.maximum(gap, BUCKET_US / MICRO)
    return np.broadcast_to(np.rint(gap * MICRO).astype(np.int64), len(interval_s))


def widen(samples: DeviceSamples) -> DeviceSamples:
    """Return five-minute rows as rows of one each."""
    count = len(samples)
    return msgspec.structs.replace(
        samples,
        peak=None if samples.peak is None else samples.peak.astype(np.int64),
        wide=WideRows(
            buckets=np.ones(count, dtype=np.int64),
            moved=find_moves(samples).astype(np.int64),
            silent_us=np.zeros(count),
            spoken_us=np.broadcast_to(compute_spoken(samples), count),
        ),
    )


def select(samples: DeviceSamples, rows: Any) -> DeviceSamples:
    """Return some rows of samples, by a mask or by their order."""

    def take(values: Any) -> Any:
        return None if values is None else np.broadcast_to(values, len(samples))[rows]

    wide = samples.wide
    return DeviceSamples(
        device=take(samples.device),
        at=take(samples.at),
        validity=take(samples.validity),
        gap=take(samples.gap),
        kind=take(samples.kind),
        sample_count=take(samples.sample_count),
        interval_s=take(samples.interval_s),
        measures={name: take(values) for name, values in samples.measures.items()},
        still=take(samples.still),
        peak=take(samples.peak),
        bucketed=samples.bucketed,
        wide=wide and WideRows(*(take(getattr(wide, n)) for n in WideRows.__struct_fields__)),
    )


def merge(parts: Sequence[DeviceSamples]) -> DeviceSamples:
    """Return the rows of all parts, which are wide, by device and time."""

    def put(name: str, missing: Any) -> Any:
        values = [getattr(part, name) for part in parts]
        if all(value is None for value in values):
            return None
        return np.concatenate(
            [
                np.full(len(part), missing) if value is None else value
                for part, value in zip(parts, values, strict=True)
            ]
        )

    named = ("device", "at", "validity", "gap", "kind", "sample_count", "interval_s")
    wide = [part.wide for part in parts if part.wide is not None]
    rows = DeviceSamples(
        **{name: put(name, None) for name in named},
        measures={
            name: np.concatenate([part.measures[name] for part in parts]) for name in MEASURES
        },
        still=put("still", missing=False),
        peak=put("peak", missing=0),
        bucketed=True,
        wide=WideRows(
            *(np.concatenate([getattr(w, n) for w in wide]) for n in WideRows.__struct_fields__)
        ),
    )
    return select(rows, np.lexsort((rows.at, rows.device)))


def list_edges(holds: pl.DataFrame) -> pl.DataFrame:
    """Return the first five minutes after each start and end of a hold: number, at_us."""
    edges = pl.concat([holds.select("number", at_us=pl.col(name)) for name in ("start", "end")])
    later = -(-pl.col("at_us") // BUCKET_US) * BUCKET_US
    return edges.with_columns(at_us=later).unique()


def list_doubtful(samples: DeviceSamples, holds: pl.DataFrame) -> Ints:
    """Return the devices of which another holder begins or ends within a row.

    Their allocations have changed since the rows were kept.
    """
    edges = list_edges(holds).sort("at_us")
    rows = pl.DataFrame(
        {"number": samples.device, "at_us": samples.at, "last_us": samples.last_at}
    ).filter(pl.col("last_us") > pl.col("at_us"))
    if edges.is_empty() or rows.is_empty():
        return np.empty(0, dtype=np.int64)
    # The newest row that begins before an edge is the only one that may have it.
    before = edges.join_asof(
        rows.sort("at_us").rename({"at_us": "begin_us"}),
        left_on="at_us",
        right_on="begin_us",
        by="number",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    within = before.filter(pl.col("at_us") <= pl.col("last_us"))
    return within["number"].unique().to_numpy()


def list_ranges(hours: Sequence[int]) -> list[Range]:
    """Return the whole hours (their first microsecond, in order) as ranges."""
    starts = np.asarray(hours, dtype=np.int64)
    if not len(starts):
        return []
    cuts = np.flatnonzero(np.diff(starts) != HOUR_US)
    firsts, lasts = np.append(starts[0], starts[cuts + 1]), np.append(starts[cuts], starts[-1])
    return [(int(a), int(b) + HOUR_US) for a, b in zip(firsts, lasts, strict=True)]


def list_rest(whole: Range, ranges: Sequence[Range]) -> list[Range]:
    """Return what of a time is in no range."""
    edges = [whole[0], *(edge for item in ranges for edge in item), whole[1]]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(since, until) for since, until in pairs if since < until]
