"""Idle workloads: devices held by a workload that leaves all of them (or some) unused.

    allocation ─┐
    sample ─────┼─► idle runs per device ─► stretches per workload ─► witnesses ─► findings
    rollup_5m ──┘   (runs.py)               (spans.py)                (evidence.py)

Windows of up to `looks.MOST_LOOKS` raw looks are judged look by look, longer ones from
five-minute rollups: the same answers but for up to a bucket at either end.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl

from analyzers import looks as source
from analyzers import power_band, spans
from analyzers.cases import PARTLY, Case, finding, kind_of, made, subject
from analyzers.evidence import judge
from analyzers.power_band import Band
from analyzers.queries import sql
from analyzers.runs import MICRO, idle_runs
from analyzers.witnesses import at_work, by_device, by_stretch, gather, physics, witnesses
from fallow.errors import UsageError
from fallow.nouns import Finding, Subject
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window, format_duration

if TYPE_CHECKING:
    from analyzers.replay.past import IdlePast

PARTLY_S = 1800
"""Ranks idle this long while others compute are a finding (domain.md 2.2, multi-GPU)."""

BUSY_SHARE = 0.2
"""Share of looks from the exit threshold on that makes another rank a busy one."""

SPREAD = "request"
"""Rule of an allocation that spreads a pod over devices of its node that nobody named."""

LEAST_LOOKS = 3
"""A duration shorter than so many intervals is judged from noise (dstack issue 2384)."""


class Unjudged(msgspec.Struct, frozen=True):
    """A workload that seemed idle, or could not be seen, and why there is no verdict."""

    subject: Subject
    gpu_hours: float
    reasons: tuple[str, ...]
    window: Window | None = None


class IdleAnalyzer:
    """Find workloads that hold GPUs and do not use them (domain.md section 2.2)."""

    def __init__(self, settings: IdleSettings | None = None) -> None:
        self.settings = settings or IdleSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return idle and partly idle workloads, the most GPU-hours first.

        Raises:
            UsageError: the window or the least duration is shorter than three looks.
        """
        found = [
            finding(case, self.settings)
            for case in self._cases(views, window)
            if case.judgement.evidence is not None
        ]
        return sorted(found, key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return what seemed idle but was vetoed, and what telemetry could not tell, and why."""
        vetoed = [
            Unjudged(case.subject, case.gpu_hours, case.judgement.reasons, case.window)
            for case in self._cases(views, window)
            if case.judgement.verdict == "unknown"
        ]
        unseen = [
            Unjudged(
                Subject(row["cluster"], row["namespace"], row["workload_kind"], row["workload"]),
                row["gpu_hours"],
                ("telemetry is missing or contradicts itself",),
            )
            for row in views.query(sql("idle_unknown"), source.bounds(window)).to_pylist()
        ]
        return [*vetoed, *unseen]

    def past(self, views: Views, window: Window, moments: Sequence[datetime]) -> "IdlePast":
        """Return what `find` would have returned at each moment: see `analyzers.replay.past`."""
        from analyzers.replay.past import past  # noqa: PLC0415  (it stands on this module)

        return past(views, window, moments, self.settings)

    def _cases(self, views: Views, window: Window) -> list[Case]:
        chosen = source.plan(views, window, self.settings)
        self._check(chosen, window)
        holds = holders(views, window, chosen)
        if holds.is_empty():
            return []
        merged = spans.merged_holds(holds)
        cut, bands = self._scan(views, chosen, merged)
        found = self._stretches(cut, merged)
        found = self._with_busy_others(views, chosen, found, cut, merged)
        found = self._parted(views, window, found, holds)
        if found.is_empty():
            return []
        return self._judged(views, window, chosen, found, cut, holds, bands)

    def _check(self, chosen: source.Plan, window: Window) -> None:
        interval = chosen.devices["interval_s"].median()
        if not isinstance(interval, float):
            return
        for what, seconds in (
            ("min_duration", self.settings.min_duration.total_seconds()),
            ("window", window.seconds),
        ):
            if seconds < LEAST_LOOKS * interval:
                raise UsageError(
                    f"idle {what} {format_duration(seconds)} is shorter than {LEAST_LOOKS} looks "
                    f"of {format_duration(interval)}",
                    hint=f"at least {format_duration(LEAST_LOOKS * interval)}",
                )

    def _scan(
        self, views: Views, chosen: source.Plan, merged: pl.DataFrame
    ) -> tuple[pl.DataFrame, Mapping[str, Band]]:
        """Read the looks once: pieces of idle runs by holder, and the idle power they teach."""
        models = sorted(set(chosen.devices["gpu_model"].drop_nulls()))
        number = {name: n for n, name in enumerate(models)}
        model_of = np.array(
            [number.get(m, -1) for m in chosen.devices["gpu_model"]], dtype=np.int64
        )
        model_of[chosen.devices["parent"].is_not_null().to_numpy()] = -1
        histogram = power_band.empty(models)
        shortest = min(self.settings.min_duration.total_seconds(), PARTLY_S)
        cuts = []
        for looks in source.parts(views, chosen, self.settings):
            power_band.count(histogram, looks, model_of)
            runs = idle_runs(looks, exit_samples=self.settings.exit_samples, shortest_s=shortest)
            if len(runs):
                cuts.append(spans.pieces(looks, runs, merged))
        cut = pl.concat(cuts) if cuts else pl.DataFrame()
        if not cut.is_empty():
            cut = weighed(cut, chosen)
        return cut, power_band.learn(models, histogram)

    def _stretches(self, cut: pl.DataFrame, merged: pl.DataFrame) -> pl.DataFrame:
        if cut.is_empty():
            return cut
        found = spans.stretches(cut, merged)
        least = {"idle": self.settings.min_duration.total_seconds(), "partly idle": PARTLY_S}
        wanted = pl.col("state").replace_strict(least, return_dtype=pl.Float64)
        kept = found.filter((pl.col("end") - pl.col("start")) >= (wanted * MICRO).round())
        return _numbered(kept)

    def _parted(
        self, views: Views, window: Window, found: pl.DataFrame, holds: pl.DataFrame
    ) -> pl.DataFrame:
        """Part idle stretches where the pods began or ceased to be at work on their hosts.

        Each part is judged by its own witnesses; what is left shorter than a finding is dropped.
        """
        if found.is_empty():
            return found
        idle = found.filter(pl.col("state") == "idle")
        least_us = round(self.settings.min_duration.total_seconds() * MICRO)
        held = overlapping(idle.select("span", "owner", "start", "end"), holds)
        works = at_work(views, window, held, apart_us=least_us)
        parts = spans.parted(idle.select("span", "start", "end"), works)
        parts = parts.filter(pl.col("end") - pl.col("start") >= least_us)
        idle = idle.drop("start", "end").join(parts, on="span").select(found.columns)
        partly = found.filter(pl.col("state") != "idle")
        return _numbered(pl.concat([idle, partly]).drop("span").sort("owner", "start"))

    def _with_busy_others(
        self,
        views: Views,
        chosen: source.Plan,
        found: pl.DataFrame,
        cut: pl.DataFrame,
        merged: pl.DataFrame,
    ) -> pl.DataFrame:
        """Drop partly idle stretches in which no other device was seen to compute."""
        if found.is_empty() or not (found["state"] == "partly idle").any():
            return found
        partly = found.filter(pl.col("state") == "partly idle").select(
            "span", "owner", "start", "end"
        )
        idle = overlapping(partly, cut).select("span", "number").unique()
        others = overlapping(partly, merged).join(idle, on=["span", "number"], how="anti")
        others = others.join(chosen.devices.select("number", "cluster", "device"), on="number")
        name = "idle_others_looks" if chosen.source == "sample" else "idle_others"
        shares = views.query(
            sql(name),
            {
                "since": chosen.parameters["since"],
                "until": chosen.parameters["until"],
                "exit_threshold": chosen.parameters["exit_threshold"],
                "spans": others["span"].to_list(),
                "clusters": others["cluster"].to_list(),
                "devices": others["device"].to_list(),
                "starts": others["start"].to_list(),
                "ends": others["end"].to_list(),
            },
        )
        busy = {
            row["span"]
            for row in shares.to_pylist()
            if row["looks"] and (row["busy"] or 0) / row["looks"] >= BUSY_SHARE
        }
        return found.filter((pl.col("state") == "idle") | pl.col("span").is_in(list(busy)))

    def _judged(  # noqa: PLR0917  (the one place where everything meets)
        self,
        views: Views,
        window: Window,
        chosen: source.Plan,
        found: pl.DataFrame,
        cut: pl.DataFrame,
        holds: pl.DataFrame,
        bands: Mapping[str, Band],
    ) -> list[Case]:
        times = found.select("span", "owner", "start", "end")
        members = overlapping(times, cut, keep=True)
        devices = physics(by_device(members), bands, self.settings.power_margin_w)
        rows = found.drop("gpu_us").join(by_stretch(devices), on="span")
        held = overlapping(times, holds)
        guessed = held.filter(
            # What was uncertain for a moment is certain enough for a night.
            (pl.col("overlap") * (pl.col("attribution") == "estimated")).sum().over("span")
            > (1 - self.settings.coverage) * pl.col("overlap").sum().over("span")
        )
        spread = held.filter(pl.col("rule") == SPREAD)["span"].unique()
        rows = rows.with_columns(
            estimated=pl.col("span").is_in(guessed["span"].unique().to_list()),
            spread=pl.col("span").is_in(spread.to_list()),
        )
        pods = gather(views, window, held)
        usd = prices(views, window, chosen, members)
        owners = {row["owner"]: row for row in holds.unique("owner").iter_rows(named=True)}
        facts = chosen.devices.to_dicts()
        cases = []
        for row in rows.sort("span").iter_rows(named=True):
            about = subject(owners[row["owner"]], [facts[n] for n in row["numbers"]])
            kind = kind_of(
                about.workload_kind,
                row["span"] in pods.hosts and bool(pods.hosts[row["span"]]["pods_requests"]),
                row["span"] in pods.notebooks,
            )
            if row["state"] == "partly idle":
                kind = PARTLY
            seen = witnesses(row, pods, self.settings, window, kind=kind)
            if kind == PARTLY:
                # Hosts and owners of a job that computes are at work, whatever some ranks do.
                seen = msgspec.structs.replace(seen, host=None, intent=None)
            cases.append(
                made(
                    row,
                    about,
                    seen,
                    judge(seen),
                    kind=kind,
                    devices=[facts[n]["device"] for n in row["numbers"]],
                    usd=usd.get(row["span"]),
                    source=chosen.source,
                )
            )
        return cases


def weighed(cut: pl.DataFrame, chosen: source.Plan) -> pl.DataFrame:
    """Add what is known of each piece's device: weight, gpu_model, instance, and `gpus` held."""
    facts = chosen.devices.select(
        "number", "weight", "gpu_model", instance=pl.col("parent").is_not_null()
    )
    joined = cut.join(facts, on="number", maintain_order="left")
    return joined.with_columns(gpus=pl.col("share") * pl.col("weight"))


def _numbered(stretches: pl.DataFrame) -> pl.DataFrame:
    return stretches.with_row_index("span").with_columns(pl.col("span").cast(pl.Int64))


def overlapping(times: pl.DataFrame, parts: pl.DataFrame, *, keep: bool = False) -> pl.DataFrame:
    """Join stretches to the parts of the same owner that overlap them.

    `start` and `end` become those of the overlap, `overlap` its microseconds; with `keep` the
    part's own stay as `piece_start`, `piece_end`.
    """
    named = parts.rename({"start": "piece_start", "end": "piece_end"})
    both = times.join(named, on="owner").with_columns(
        pl.max_horizontal("start", "piece_start").alias("start"),
        pl.min_horizontal("end", "piece_end").alias("end"),
    )
    both = both.filter(pl.col("end") > pl.col("start")).with_columns(
        overlap=pl.col("end") - pl.col("start")
    )
    return both if keep else both.drop("piece_start", "piece_end")


def holders(views: Views, window: Window, chosen: source.Plan) -> pl.DataFrame:
    """Return who held what when inside the window, workloads (`owner`) and devices numbered."""
    found = pl.DataFrame(views.query(sql("idle_holds"), source.bounds(window)))
    found = found.rename({"start_us": "start", "end_us": "end"}).filter(
        pl.col("end") > pl.col("start")
    )
    numbered = found.join(
        chosen.devices.select("number", "cluster", "device"), on=["cluster", "device"]
    )
    return numbered.with_columns(owner=pl.struct(spans.WORKLOAD).rank("dense").cast(pl.Int64) - 1)


def prices(
    views: Views, window: Window, chosen: source.Plan, members: pl.DataFrame
) -> dict[int, float]:
    """Return the dollars of each stretch; a stretch with an unpriced part has none."""
    from warehouse.pricing import device_rates  # noqa: PLC0415  (the engine loads in 0.3 s)

    rates = pl.DataFrame(device_rates(views, window))
    if rates.is_empty():
        return {}
    numbers = chosen.devices.select("number", "cluster", "device")
    rates = rates.join(numbers, on=["cluster", "device"]).select(
        "number",
        pl.col("from_at").dt.epoch("us"),
        pl.col("to_at").dt.epoch("us"),
        pl.col("loaded_usd_h").cast(pl.Float64),
    )
    parts = members.select("span", "number", "start", "end", "overlap", "share")
    priced = parts.join(rates.drop_nulls("loaded_usd_h"), on="number").with_columns(
        within=pl.min_horizontal("end", "to_at") - pl.max_horizontal("start", "from_at")
    )
    priced = priced.filter(pl.col("within") > 0)
    sums = priced.group_by("span").agg(
        usd=(pl.col("within") * pl.col("share") * pl.col("loaded_usd_h")).sum() / (3600 * MICRO),
        priced=pl.col("within").sum(),
    )
    whole = parts.group_by("span").agg(pl.col("overlap").sum())
    # A microsecond may be lost where two rates meet.
    sums = sums.join(whole, on="span").filter(pl.col("priced") >= pl.col("overlap") - 1000)
    return dict(sums.select("span", "usd").iter_rows())
