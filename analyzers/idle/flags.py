"""Compute the signals and vetoes of every stretch at every time, as columns, and the verdicts."""

from collections.abc import Mapping, Sequence

import polars as pl

from analyzers.idle.evidence import IdleSignals, Judgement, judge_signals
from analyzers.idle.findings import PARTLY, decide_kind
from analyzers.idle.signals import HOST_ACTIVITY, MOVING, RECURRENCE, SERVICES, SKEW_US, add_bands
from fallow.settings.idle import IdleSettings
from warehouse.signals.power_band import IdleBand
from warehouse.signals.runs import MICRO

FLAGS = tuple(field for field in IdleSignals.__struct_fields__ if field != "compute")


def add_physics(
    members: pl.DataFrame, bands: Sequence[Mapping[str, IdleBand]], margin_w: float
) -> pl.DataFrame:
    """Add band_w, band and physics per piece's device, by the bands known at that time."""
    band_rows = pl.DataFrame(
        [
            (k, name, b.watts, b.source)
            for k, by_model in enumerate(bands)
            for name, b in by_model.items()
        ],
        schema={"k": pl.Int64, "gpu_model": pl.String, "band_w": pl.Float64, "band": pl.String},
        orient="row",
    )
    return add_bands(members, band_rows, margin_w, on=["k", "gpu_model"])


def add_flags(
    rows: pl.DataFrame, settings: IdleSettings, *, pods: pl.DataFrame, host: pl.DataFrame,
    book: pl.DataFrame, unready: pl.DataFrame,
) -> pl.DataFrame:  # fmt: skip
    """Add a column per signal and veto (`FLAGS` but `recurrent`), and the `kind` of the finding.

    rows: row, start, end, workload_kind, estimated, spread and the columns of `sum_by_stretch`.
    pods: row, pod_count, started_us, pending, unresolved, hard, soft.
    """
    least = round(settings.min_duration.total_seconds() * MICRO)
    grace = round(settings.startup_grace.total_seconds() * MICRO)
    service = round(settings.service_duration.total_seconds() * MICRO)
    end = pl.col("end")
    both = (
        rows.join(pods, on="row", how="left")
        .join(host, on="row", how="left")
        .join(book, on="row", how="left")
        .join(unready.with_columns(unready=True), on="row", how="left")
    )
    pod_count = pl.col("pod_count").fill_null(0)

    def at_work(share: pl.Expr, last: str) -> pl.Expr:
        return (share > HOST_ACTIVITY).fill_null(False) | (end - pl.col(last) < least).fill_null(
            False
        )

    request_pods = pl.col("pods_requests").fill_null(0)
    requested, load_unknown, activity_unknown = (
        (end - pl.col(last) < least).fill_null(False)
        for last in ("held_us", "unknown_load_us", "unknown_activity_us")
    )
    served = at_work(pl.col("served_n") / pl.col("requests_n"), "served_us")
    busy = at_work(pl.col("busy_n") / pl.col("kernel_n"), "busy_us")
    latest = pl.max_horizontal(pl.col("last_kernel_us"), pl.col("last_terminal_us")).fill_null(0)
    has_kernels = (pl.col("kernel_n") > 0).fill_null(False)
    intent = (
        pl.when((request_pods > 0) & served)
        .then(pl.lit(False))
        .when(requested | load_unknown)
        .then(pl.lit(None, dtype=pl.Boolean))
        .when((request_pods > 0) & (request_pods >= pod_count))
        .then(pl.lit(True))
        .when(~has_kernels)
        .then(pl.lit(None, dtype=pl.Boolean))
        .when(busy)
        .then(pl.lit(False))
        .when(activity_unknown)
        .then(pl.lit(None, dtype=pl.Boolean))
        .when((end - latest >= least) & (pl.col("pods") >= pod_count))
        .then(pl.lit(True))
        .otherwise(pl.lit(None, dtype=pl.Boolean))
    )
    rest = ~pl.col("active")
    # What cannot be seen is unknown: a pod on the host's network has no series of its own.
    has_host = (pl.col("cpu_n") > 0) & (
        pl.min_horizontal(pl.col("pods_cpu", "pods_net").fill_null(0)) >= pod_count
    )
    # Hosts and owners of a job that computes are active, even if some of its ranks are idle.
    whole = pl.col("state") == "idle"
    kind = _decide_kinds(request_pods > 0, pl.col("servers_n").fill_null(0) > 0)
    both = both.with_columns(
        served_kind=kind,
        kind=pl.when(whole).then(kind).otherwise(pl.lit(PARTLY)),
        physics=pl.when("agreed").then(True).when("against").then(False),
        host=pl.when(whole & ~rest).then(False).when(whole & has_host).then(True),
        requested=whole & requested,
        on_hold=whole & pl.col("holds").is_not_null(),
        intent=pl.when(whole).then(intent),
    )
    services = pl.col("kind").is_in(sorted(SERVICES))
    return both.with_columns(
        conflict=pl.col("conflict"),
        stale=pl.col("stale"),
        node_not_ready=(end >= pl.col("at") - least) & pl.col("unready").fill_null(False),
        skew=(pl.col("ahead_us") > SKEW_US).fill_null(False),
        opt_out=pl.col("hard").fill_null(False),
        not_running=(pod_count > 0) & pl.col("pending"),
        bursty=pl.col("steady") < settings.coverage,
        unattributed=pl.col("spread") & ~whole,
        missing=pl.col("coverage") < settings.coverage,
        shared_estimated=pl.col("estimated"),
        starting=(end - pl.col("started_us") < least + grace).fill_null(False),
        moving=(pl.col("traffic") > MOVING).fill_null(False),
        unknown_owner=(pod_count == 0) | pl.col("unresolved"),
        protected=pl.col("soft").fill_null(False),
        too_recent=services & (end - pl.col("start") < service),
        no_request_metrics=services & pl.col("intent").is_null() & ~pl.col("requested"),
        unseen=whole & pl.col("gap").is_not_null(),
        waiting_peer=whole & pl.col("waiting_peer"),
        low=whole & pl.col("low"),
    )


def add_recurrence(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the veto `recurrent`, from the columns of `history.add_longest_rest`."""
    short = (pl.col("rested_us") < RECURRENCE * pl.col("longest_rest_us")).fill_null(False)
    return rows.with_columns(recurrent=(pl.col("state") == "idle") & short)


def _decide_kinds(served: pl.Expr, notebook: pl.Expr) -> pl.Expr:
    """Return the kind of the finding: by the owner's kind, else by its servers."""
    either = pl.struct("workload_kind", s=served, n=notebook)
    return either.map_batches(lambda rows: _map_kinds(rows.struct.unnest()), return_dtype=pl.String)


def _map_kinds(rows: pl.DataFrame) -> pl.Series:
    unique = rows.unique()
    kinds = [decide_kind(kind, s, n) for kind, s, n in unique.iter_rows()]
    return rows.join(
        unique.with_columns(kind=pl.Series(kinds, dtype=pl.String)),
        on=rows.columns,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["kind"]


def add_judgements(rows: pl.DataFrame, judgements: dict[IdleSignals, Judgement]) -> pl.DataFrame:
    """Add the number of each row's `judgement`: its place in `judgements`, which gets new ones."""
    unique = rows.select(FLAGS).unique(maintain_order=True)
    place = {signals: n for n, signals in enumerate(judgements)}
    numbers = []
    for flags in unique.iter_rows(named=True):
        signals = IdleSignals(**flags)
        if signals not in place:
            place[signals] = len(place)
            judgements[signals] = judge_signals(signals)
        numbers.append(place[signals])
    unique = unique.with_columns(judgement=pl.Series(numbers, dtype=pl.Int64))
    return rows.join(unique, on=FLAGS, how="left", nulls_equal=True, maintain_order="left")
