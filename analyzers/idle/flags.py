"""The signals and vetoes of every stretch at every time, as columns, and the verdicts on them."""

from collections.abc import Mapping, Sequence

import polars as pl

from analyzers.idle.evidence import IdleSignals, Judgement, judge_signals
from analyzers.idle.findings import PARTLY, decide_kind
from analyzers.idle.signals import HOST_ACTIVITY, MOVING, RECURRENCE, SERVICES, SKEW_US, add_bands
from fallow.settings import IdleSettings
from warehouse.signals.power_band import IdleBand
from warehouse.signals.runs import MICRO

FLAGS = tuple(field for field in IdleSignals.__struct_fields__ if field != "compute")


def add_physics(
    members: pl.DataFrame, bands: Sequence[Mapping[str, IdleBand]], margin_w: float
) -> pl.DataFrame:
    """Add band_w, band and physics per piece's device, by the band that the moment knew."""
    known = pl.DataFrame(
        [(k, name, b.watts, b.source) for k, told in enumerate(bands) for name, b in told.items()],
        schema={"k": pl.Int64, "gpu_model": pl.String, "band_w": pl.Float64, "band": pl.String},
        orient="row",
    )
    return add_bands(members, known, margin_w, on=["k", "gpu_model"])


def add_flags(
    rows: pl.DataFrame, settings: IdleSettings, *, pods: pl.DataFrame, host: pl.DataFrame,
    book: pl.DataFrame, unready: pl.DataFrame,
) -> pl.DataFrame:  # fmt: skip
    """Add a column per witness and veto (`FLAGS`), and the `kind` of the finding.

    rows: row, start, end, workload_kind, estimated, spread and the columns of `by_stretch`. pods:
    row, known (pods), started_us, pending, unresolved, hard, soft.
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
    n = pl.col("known").fill_null(0)

    def at_work(share: pl.Expr, last: str) -> pl.Expr:
        return (share > HOST_ACTIVITY).fill_null(False) | (end - pl.col(last) < least).fill_null(
            False
        )

    asked = pl.col("pods_requests").fill_null(0)
    served = at_work(pl.col("served_n") / pl.col("requests_n"), "served_us")
    busy = at_work(pl.col("busy_n") / pl.col("kernel_n"), "busy_us")
    latest = pl.max_horizontal(pl.col("last_kernel_us"), pl.col("last_terminal_us")).fill_null(0)
    heard = pl.col("kernel_n").fill_null(0) > 0
    intent = (
        pl.when((asked > 0) & served)
        .then(pl.lit(False))
        .when((asked > 0) & (asked >= n))
        .then(pl.lit(True))
        .when(~heard)
        .then(pl.lit(None, dtype=pl.Boolean))
        .when(busy)
        .then(pl.lit(False))
        .when((end - latest >= least) & (pl.col("pods") >= n))
        .then(pl.lit(True))
        .otherwise(pl.lit(None, dtype=pl.Boolean))
    )
    rest = ~pl.col("active")
    spoke = (pl.col("cpu_n").fill_null(0) > 0) & (pl.col("pods_cpu").fill_null(0) >= n)
    # Hosts and owners of a job that computes are active, whatever some of its ranks do.
    whole = pl.col("state") == "idle"
    kind = _decide_kinds(asked > 0, pl.col("said_n").fill_null(0) > 0)
    both = both.with_columns(
        served_kind=kind,
        kind=pl.when(whole).then(kind).otherwise(pl.lit(PARTLY)),
        physics=pl.when("agreed").then(True).when("against").then(False),
        host=pl.when(whole & spoke).then(rest),
        intent=pl.when(whole).then(intent),
    )
    services = pl.col("kind").is_in(sorted(SERVICES))
    return both.with_columns(
        conflict=pl.col("conflict"),
        stale=pl.col("stale"),
        node_not_ready=(end >= pl.col("at") - least) & pl.col("unready").fill_null(False),
        skew=(pl.col("ahead_us") > SKEW_US).fill_null(False),
        opt_out=pl.col("hard").fill_null(False),
        not_running=(n > 0) & pl.col("pending").fill_null(False),
        bursty=pl.col("steady") < settings.coverage,
        unplaced=pl.col("spread") & ~whole,
        missing=pl.col("coverage") < settings.coverage,
        shared_estimated=pl.col("estimated"),
        starting=(end - pl.col("started_us") < least + grace).fill_null(False),
        moving=(pl.col("traffic") > MOVING).fill_null(False),
        unknown_owner=(n == 0) | pl.col("unresolved").fill_null(False),
        protected=pl.col("soft").fill_null(False),
        resting=services & (end - pl.col("start") < service),
        unheard=services & pl.col("intent").is_null(),
        unseen=whole & pl.col("gap").is_not_null(),
        waiting_peer=whole & pl.col("waiting_peer"),
        recurrent=whole
        & (end - pl.col("start") < RECURRENCE * pl.col("longest_rest_us")).fill_null(False),
        low=whole & pl.col("low").fill_null(False),
    )


def _decide_kinds(served: pl.Expr, notebook: pl.Expr) -> pl.Expr:
    """Return the kind of the finding: by the owner's kind, else by what was heard of it."""
    either = pl.struct("workload_kind", s=served, n=notebook)
    return either.map_batches(lambda told: _map_kinds(told.struct.unnest()), return_dtype=pl.String)


def _map_kinds(told: pl.DataFrame) -> pl.Series:
    unique = told.unique()
    kinds = [decide_kind(kind, s, n) for kind, s, n in unique.iter_rows()]
    return told.join(
        unique.with_columns(kind=pl.Series(kinds, dtype=pl.String)),
        on=told.columns,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["kind"]


def add_judgements(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[IdleSignals, Judgement]]]:
    """Add the number of each row's `judgement`; return these too: few differ among many rows."""
    unique = rows.select(FLAGS).unique(maintain_order=True).with_row_index("judgement")
    told = []
    for row in unique.iter_rows(named=True):
        said = IdleSignals(**{name: row[name] for name in FLAGS})
        told.append((said, judge_signals(said)))
    found = rows.join(unique, on=FLAGS, how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(pl.col("judgement").cast(pl.Int64)), told
