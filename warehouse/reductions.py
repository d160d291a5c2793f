"""The rollups as Ibis expressions: the few queries that read every row.

    device samples ──► gathered_5m ──► rolled_5m ──► rolled_1h

Expressions use nothing that only one engine has: time is an integer (`at_us`, microseconds since
1970; `bucket`, the number of the bucket), so that the same reduction runs on DuckDB now and on
Spark over the same Parquet later. The SQL in `rollup/` turns timestamps into these integers.

A device sample at `at` with interval i is valid in [at, at + 1.25 i). Seconds of it that lie in
later buckets are counted in those buckets. Where the samples of one device and bucket are valid for
more seconds than the bucket has, the rows of all owners are scaled down in proportion.
"""

from typing import Any

import msgspec

from fallow import tables

VALIDITY = 1.25
"""A sample is valid for so many of its intervals: a scrape may be a quarter late without a hole."""

MAX_GAP = 3.0
"""Between samples at most so many intervals apart the energy counter's increase is counted."""

UNKNOWN_INTERVAL_S = 60.0
"""Interval of a source that does not report its own: the usual scrape interval."""

LONGEST_INTERVAL_S = 3600.0
"""Longer intervals count as this one: it bounds how far before a stretch samples are read."""

BINS = 21
"""Zero, then 20 steps of 0.05."""

FIVE_MINUTES, HOUR = 300, 3600
MICRO = 1_000_000

BITS, PER_SUM = 12, 4
SUMS = -(-BINS // PER_SUM)
"""The histogram travels as 6 sums of 4 counts of 12 bits, each exact in a double: 21 conditional
counts would take three times as long. 4,095 samples per bin are 13 samples a second."""

MEASURES = (
    "gpu_util_pct",
    "gr_engine_active",
    "sm_active",
    "tensor_active",
    "dram_active",
    "fp32_active",
    "power_w",
    "mem_used_bytes",
)
RATIOS = (
    "gr_engine_active",
    "sm_active",
    "tensor_active",
    "fp64_active",
    "fp32_active",
    "fp16_active",
    "dram_active",
)
COUNTERS = (
    "energy_mj",
    "temp_c",
    "sm_clock_mhz",
    "throttle_mask",
    "xid",
    "proc_count",
    "last_kernel_age_s",
)
PERCENTS = ("gpu_util_pct", "enc_util_pct", "dec_util_pct", "mem_copy_util_pct")
KEYS = ("cluster", "bucket", "device", "namespace", "pod")
OWNER = ("device", "namespace", "pod")
CLASSES = ("blind", "idle", "low", "busy", "conflict")
DIMENSIONS = ("node", "parent", "vendor", "model", "profile")
DESCRIBED = (*DIMENSIONS, "sharers", "interval_s")
PARTS = ("n", "min", "mean", "max")
REST = (
    "temp_c_max",
    "sm_clock_mhz_mean",
    "pcie_bps_max",
    "nvlink_bps_max",
    "throttle_mask",
    "xid_max",
    "proc_count_max",
    "last_kernel_age_s_min",
)
_SECONDS = tuple(f"{c}_s" for c in CLASSES)

EPSILON = 1e-6
"""A stored (single precision) 0.05 is 0.0500000007; it is still at a threshold of 0.05."""


class ActivityThresholds(msgspec.Struct, frozen=True):
    """Where idle ends and low ends, as ratios of activity (`settings.ledger`)."""

    idle_threshold: float = 0.05
    low_threshold: float = 0.30


IBIS_TYPES = {
    "string": "string",
    "timestamp": "timestamp(6)",
    "bool": "boolean",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f32": "float32",
    "f64": "float64",
    "decimal": "decimal(18, 8)",
    "hist": "array<int32>",
    "floats": "array<float64>",
}


def unbound(table: str, name: str, *, number: dict[str, str]) -> Any:
    """Return an Ibis table of this shape whose timestamps are numbers called as `number` says."""
    import ibis

    columns = {
        number.get(c.name, c.name): "int64" if c.name in number else IBIS_TYPES[c.type]
        for c in tables.columns(table)
    }
    return ibis.table(columns, name=name)


def like(expression: Any, name: str) -> Any:
    """Return a table of an expression's shape: where its rows were kept on the way."""
    import ibis

    return ibis.table(expression.schema(), name=name)


def sql(expression: Any, dialect: str = "duckdb") -> str:
    """Compile a reduction to one engine's SQL."""
    import ibis

    return str(ibis.to_sql(expression, dialect=dialect))


def device_samples() -> Any:
    """Return the device samples: `sample` with `at_us` (microseconds since 1970) for `ts`."""
    return unbound("sample", "device_sample", number={"ts": "at_us"})


def roll(table: str, name: str) -> Any:
    """Return a rollup whose bucket is a number."""
    return unbound(table, name, number={"bucket": "bucket"})


def model() -> Any:
    """Return the facts by model string: `model`, `tdp_w`, `idle_context_w` (watts)."""
    import ibis

    return ibis.table(
        {"model": "string", "tdp_w": "float32", "idle_context_w": "float32"}, name="model"
    )


def piece() -> Any:
    """Return the numbers 1, 2, ...: in how many later buckets a sample may be valid."""
    import ibis

    return ibis.table({"k": "int64"}, name="piece")


def classified(samples: Any, models: Any, rules: ActivityThresholds) -> Any:
    """Give each sample its `activity` (0-1), `kind` (index into CLASSES), `start` and `until`.

    `start` is the start of the sample's bucket, `until` the end of its validity (both in
    microseconds). Conflict is what collected bug reports describe
    (telemetry-and-waste.md#telemetry-faults): profiling shows no activity while the driver counts
    kernels; activity is idle while the GPU draws over half its TDP (whole GPUs only: an instance
    reports the power of its GPU); or the driver shows 90 % while no memory is used and the power
    lies in the idle band.
    """
    import ibis

    joined = samples.left_join(models, "model", rname="known_{name}")
    interval = _interval(joined)
    rows = joined.select(
        *[joined[c] for c in (*DIMENSIONS, "device", "sharers")],
        *MEASURES,
        *COUNTERS,
        *[joined[c].fill_null("").name(c) for c in ("namespace", "pod")],
        "tdp_w",
        "idle_context_w",
        at=joined.at_us,
        pcie_bps=_sum_of(joined.pcie_tx_bps, joined.pcie_rx_bps),
        nvlink_bps=_sum_of(joined.nvlink_tx_bps, joined.nvlink_rx_bps),
        # The greatest of an array passes over nulls in every engine, and on DuckDB it takes half
        # the time of GREATEST.
        activity=ibis.array(
            [
                *[joined[c] for c in RATIOS],
                (ibis.array([joined[c] for c in PERCENTS]).maxs() / 100).cast("float32"),
            ]
        ).maxs(),
        start=joined.at_us - joined.at_us % (FIVE_MINUTES * MICRO),
        interval_s=interval,
        until=joined.at_us + (interval * (VALIDITY * MICRO)).cast("int64"),
    )
    idle = rows.activity <= rules.idle_threshold + EPSILON
    whole_gpu = rows.parent.isnull()
    hidden = (rows.gr_engine_active <= 0.01 + EPSILON) & (rows.gpu_util_pct >= 10)  # noqa: PLR2004
    hot = whole_gpu & idle & (rows.power_w > rows.tdp_w / 2)
    full = whole_gpu & (rows.gpu_util_pct >= 90)  # noqa: PLR2004
    false_busy = full & (rows.mem_used_bytes == 0) & (rows.power_w <= rows.idle_context_w)
    kind = ibis.cases(
        (rows.activity.isnull(), 0),
        (hidden | hot | false_busy, 4),
        (idle, 1),
        (rows.activity < rules.low_threshold - EPSILON, 2),
        else_=3,
    )
    return rows.mutate(kind=kind)


def gathered_5m(samples: Any, models: Any, pieces: Any, rules: ActivityThresholds) -> Any:
    """Gather one cluster's samples by owner and 5 minutes: all of `rollup_5m` but the scale.

    The samples must begin before the first bucket wanted, by the longest validity and the longest
    gap of an energy increase; the caller drops the buckets outside the wanted window.
    """
    rows = classified(samples, models, rules)
    own = rows.mutate(
        seconds=(_earlier(rows.until, rows.start + FIVE_MINUTES * MICRO) - rows.at) / MICRO,
        bin=_bin(rows.activity),
    )
    within = own.group_by(*OWNER, "start").aggregate(
        **_described(own),
        **_class_seconds(own),
        **_measured(own),
        interval_s=own.interval_s.mean(),
        n=own.count(),
        act_n=own.activity.count(),
        act_min=own.activity.min(),
        act_mean=own.activity.mean(),
        act_max=own.activity.max(),
        **_packed(own.bin),
        temp_c_max=own.temp_c.max(),
        sm_clock_mhz_mean=own.sm_clock_mhz.mean(),
        pcie_bps_max=own.pcie_bps.max(),
        nvlink_bps_max=own.nvlink_bps.max(),
        throttle_mask=own.throttle_mask.bit_or(),
        xid_max=own.xid.max(),
        proc_count_max=own.proc_count.max(),
        last_kernel_age_s_min=own.last_kernel_age_s.min(),
    )
    both = [*OWNER, "start"]
    linked = within.left_join(_energy(samples), both, rname="e_{name}")
    linked = linked.drop(*(f"e_{c}" for c in both))
    joined = linked.outer_join(_reaching(samples, models, pieces, rules), both, rname="{name}_r")
    shared = (*both, *DIMENSIONS, "sharers", "interval_s")
    named = {*shared, *_SECONDS}
    return joined.select(
        **{c: joined[c].coalesce(joined[f"{c}_r"]) for c in shared},
        **{c: joined[c].fill_null(0.0) + joined[f"{c}_r"].fill_null(0.0) for c in _SECONDS},
        **{c: joined[c] for c in linked.columns if c not in named},
    )


def _reaching(samples: Any, models: Any, pieces: Any, rules: ActivityThresholds) -> Any:
    """Aggregate the seconds that samples are valid for in buckets after their own."""
    size = FIVE_MINUTES * MICRO
    validity = (_interval(samples) * (VALIDITY * MICRO)).cast("int64")
    late = classified(samples.filter(samples.at_us % size + validity > size), models, rules)
    reach = late.cross_join(pieces)
    reach = reach.mutate(start=reach.start + reach.k * size)
    reach = reach.filter(reach.start < reach.until)
    seconds = (_earlier(reach.until, reach.start + size) - reach.start) / MICRO
    reach = reach.mutate(seconds=seconds)
    return reach.group_by(*OWNER, "start").aggregate(
        **_described(reach), **_class_seconds(reach), interval_s=reach.interval_s.mean()
    )


def _described(rows: Any) -> dict[str, Any]:
    """Return the labels of a device: where they change within a bucket, the greatest."""
    return {c: rows[c].max() for c in (*DIMENSIONS, "sharers")}


def _class_seconds(rows: Any) -> dict[str, Any]:
    return {
        f"{c}_s": rows.seconds.sum(where=rows.kind == k).fill_null(0.0)
        for k, c in enumerate(CLASSES)
    }


def _measured(rows: Any) -> dict[str, Any]:
    aggregates: dict[str, Any] = {}
    for c in MEASURES:
        aggregates |= {
            f"{c}_n": rows[c].count(),
            f"{c}_min": rows[c].min(),
            f"{c}_mean": rows[c].mean(),
            f"{c}_max": rows[c].max(),
        }
    return aggregates


def _energy(samples: Any) -> Any:
    """Aggregate increases of the energy counter; a drop counts from zero (a driver reload).

    An increase counts in the bucket of the later sample. Over a longer gap nothing is counted: how
    the energy was spread over it is unknown.
    """
    import ibis

    read = samples.filter(samples.energy_mj.notnull())
    before = ibis.window(group_by=read.device, order_by=read.at_us)
    rows = read.select(
        "device",
        *[read[c].fill_null("").name(c) for c in ("namespace", "pod")],
        "energy_mj",
        at=read.at_us,
        longest=(_interval(read) * (MAX_GAP * MICRO)).cast("int64"),
        before=read.energy_mj.lag().over(before),
        before_at=read.at_us.lag().over(before),
    )
    linked = rows.filter(rows.before.notnull(), rows.at - rows.before_at <= rows.longest)
    linked = linked.mutate(
        start=linked.at - linked.at % (FIVE_MINUTES * MICRO),
        increase=ibis.ifelse(
            linked.energy_mj >= linked.before, linked.energy_mj - linked.before, linked.energy_mj
        ),
    )
    return linked.group_by(*OWNER, "start").aggregate(energy_mj=linked.increase.sum().cast("int64"))


def rolled_5m(gathered: Any) -> Any:
    """Scale what was gathered: a cluster's part of `rollup_5m`, its `bucket` a number.

    A device's bucket has at most 300 seconds: where its samples are valid for more, the rows of
    all its owners are scaled down in proportion.
    """
    import ibis

    size = FIVE_MINUTES
    device = ["device", "start"]
    spoken = gathered.group_by(*device).aggregate(
        total=_total(gathered, _SECONDS).sum().nullif(0.0)
    )
    part = gathered.join(spoken, device, rname="spoken_{name}")
    part = part.mutate(
        part=ibis.ifelse(part.total > size, size / part.total, 1.0),
        covered_s=_total(part, _SECONDS),
    )
    return part.select(
        *OWNER,
        _floor_divide(part.start, size * MICRO).name("bucket"),
        *DIMENSIONS,
        "sharers",
        interval_s=part.interval_s,
        n=part.n.fill_null(0),
        expected=size / part.interval_s.nullif(0.0),
        **{c: part[c] * part.part for c in ("covered_s", *_SECONDS)},
        act_n=part.act_n.fill_null(0),
        **{c: part[c] for c in ("act_min", "act_mean", "act_max")},
        act_hist=ibis.array([_unpacked(part, k) for k in range(BINS)]),
        **_counted(part),
        energy_mj=part.energy_mj,
        **{c: part[c] for c in REST},
    )


def _packed(bins: Any) -> dict[str, Any]:
    """Count samples by bin, `PER_SUM` counts to a sum: a 1 in the place of the sample's bin."""
    sums = {}
    for k in range(SUMS):
        bins_of_sum = range(k * PER_SUM, min((k + 1) * PER_SUM, BINS))
        places = [(b, 2.0 ** (BITS * (b % PER_SUM))) for b in bins_of_sum]
        sums[f"bins_{k}"] = bins.cases(*places, else_=0.0).sum()
    return sums


def _unpacked(rows: Any, k: int) -> Any:
    packed = rows[f"bins_{k // PER_SUM}"].fill_null(0.0).cast("int64")
    return ((packed >> (BITS * (k % PER_SUM))) & (2**BITS - 1)).cast("int32")


def _counted(rows: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for c in MEASURES:
        columns[f"{c}_n"] = rows[f"{c}_n"].fill_null(0)
        columns |= {f"{c}_{part}": rows[f"{c}_{part}"] for part in ("min", "mean", "max")}
    return columns


def rolled_1h(rolls: Any) -> Any:
    """Merge rows of `rollup_5m` into hours: `rollup_1h`, its `bucket` a number.

    Counts, sums, minima and maxima of 5 minutes give exactly those of the hour's samples; means are
    weighted by their number of samples.
    """
    import ibis

    rows = rolls.mutate(bucket=_floor_divide(rolls.bucket, HOUR // FIVE_MINUTES))
    merged = rows.group_by(*KEYS).aggregate(
        **{c: rows[c].max() for c in (*DIMENSIONS, "sharers")},
        interval_s=_weighted(rows, "interval_s", rows.n).coalesce(rows.interval_s.mean()),
        n=rows.n.sum(),
        **{c: rows[c].sum() for c in ("covered_s", *_SECONDS)},
        act_n=rows.act_n.sum(),
        act_min=rows.act_min.min(),
        act_mean=_mean(rows, "act"),
        act_max=rows.act_max.max(),
        **{f"bin_{k}": rows.act_hist[k].sum() for k in range(BINS)},
        **_remeasured(rows),
        energy_mj=rows.energy_mj.sum().cast("int64"),
        sm_clock_mhz_mean=_weighted(rows, "sm_clock_mhz_mean", rows.n),
        throttle_mask=rows.throttle_mask.bit_or(),
        last_kernel_age_s_min=rows.last_kernel_age_s_min.min(),
        **{c: rows[c].max() for c in REST if c.endswith("_max")},
    )
    return merged.select(
        *KEYS,
        *DESCRIBED,
        "n",
        (HOUR / merged.interval_s).name("expected"),
        "covered_s",
        *_SECONDS,
        *[f"act_{part}" for part in PARTS],
        ibis.array([merged[f"bin_{k}"].cast("int32") for k in range(BINS)]).name("act_hist"),
        *[f"{c}_{part}" for c in MEASURES for part in PARTS],
        "energy_mj",
        *REST,
    )


def _remeasured(rows: Any) -> dict[str, Any]:
    aggregates: dict[str, Any] = {}
    for c in MEASURES:
        aggregates |= {
            f"{c}_n": rows[f"{c}_n"].sum(),
            f"{c}_min": rows[f"{c}_min"].min(),
            f"{c}_mean": _mean(rows, c),
            f"{c}_max": rows[f"{c}_max"].max(),
        }
    return aggregates


def _mean(rows: Any, measure: str) -> Any:
    """Return the mean of all samples from the means of parts; null where no part has one."""
    count = rows[f"{measure}_n"]
    return (rows[f"{measure}_mean"].cast("float64") * count).sum() / count.sum().nullif(0)


def _weighted(rows: Any, column: str, weight: Any) -> Any:
    """Return a mean weighted by another column's counts; where it is null, they do not count."""
    value = rows[column].cast("float64")
    return (value * weight).sum() / weight.sum(where=value.notnull()).nullif(0)


def _interval(rows: Any) -> Any:
    import ibis

    interval_s = rows.interval_s.fill_null(UNKNOWN_INTERVAL_S)
    return ibis.cases(
        (interval_s > LONGEST_INTERVAL_S, LONGEST_INTERVAL_S),
        (interval_s < 0, 0.0),
        else_=interval_s,
    )


def _earlier(first: Any, second: Any) -> Any:
    import ibis

    return ibis.ifelse(first < second, first, second)


def _bin(activity: Any) -> Any:
    """Return the histogram's bin: 0 for zero, else 1 to 20, each step's upper end included."""
    import ibis

    step = (activity * (BINS - 1) - EPSILON).ceil().cast("int32")
    return ibis.cases((step < 0, 0), (step > BINS - 1, BINS - 1), else_=step)


def _sum_of(first: Any, second: Any) -> Any:
    """Add two columns where null means missing: null only when both are."""
    return (first + second).coalesce(first, second)


def _total(rows: Any, names: tuple[str, ...]) -> Any:
    total = rows[names[0]]
    for name in names[1:]:
        total = total + rows[name]
    return total


def _floor_divide(column: Any, divisor: int) -> Any:
    return (column // divisor).cast("int64")
