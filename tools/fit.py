"""Fit the tables of `simulator/work` to public data: `python -m tools.fit DATA [OUT]`.

DATA is a folder with `acme/acme_util_power_cdfs.csv` (Shanghai AI Lab Acme, NSDI'24, CC-BY-4.0)
and `gentd26/gpu_dev_pods_0-7.parquet` (Alibaba GenAI serving pods 2026, research and study only).
Only parameters of distributions are stored, no rows of either.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[np.float64]
Rows = list[dict[str, float | str]]

LEVELS = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
"""The quantiles in a table; values between them are interpolated linearly."""

ACTIVE_PCT = 5.0
"""Above this a GPU counts as working: Acme's CDFs are conditioned on it."""

ACME = {
    "sm_active": ("sm_active_pct", 100.0),
    "tensor_active": ("tensor_active_pct", 100.0),
    "gpu_util": ("gpu_util_pct", 100.0),
    "memory": ("gpu_mem_pct", 100.0),
}
CLUSTERS = ("seren", "kalos")

ON_PCT = 1.0
"""Duty cycle above which a serving pod is ON (the data's own note calls <= 1 % idle)."""
GAP_S = 171.0
"""Samples farther apart than this belong to different runs (three ticks of the trace)."""
TICK_S = 57.0
BUSY_SHARE = 0.5
"""Hours in which this share of pods is ON are the busy ones."""
LEAST_SAMPLES = 100
"""Samples that an hour of the day needs before its share is used."""
LEAST_ON = 50
"""ON samples that a pod needs before its own level is used."""
UTC_OFFSET_H = 8
"""The trace's clock is UTC, its users' is not: with this offset the lunch dip is at 13 h."""


def fit_acme(path: Path) -> Rows:
    """Return quantiles of working A100s: law, p, value (ratio); both clusters weigh the same."""
    frame = pl.read_csv(path)
    out: Rows = []
    for law, (metric, unit) in ACME.items():
        pooled = []
        for cluster in CLUSTERS:
            rows = frame.filter((pl.col("cluster") == cluster) & (pl.col("metric") == metric))
            x, cdf = rows["x"].to_numpy(), rows["cdf_pct"].to_numpy() / 100
            begin = float(np.interp(ACTIVE_PCT, x, cdf))
            pooled.append(np.interp(np.linspace(begin, 1, 2001), cdf, x))
        out += _compute_quantiles(law, np.concatenate(pooled) / unit)
    return out


def fit_gentd26(path: Path) -> tuple[Rows, Rows]:
    """Return quantiles of ON and OFF runs (s) and of activity while ON, and ON share by hour."""
    frame = (
        pl.read_parquet(path)
        .drop_nulls("gpu_duty_cycle_pct")
        .sort("container_ip", "ts")
        .with_columns(
            on=pl.col("gpu_duty_cycle_pct") > ON_PCT,
            hour=((pl.col("ts") // 3600 + UTC_OFFSET_H) % 24).cast(pl.Int64),
        )
    )
    # The first hour of the trace has only a few samples; it gets its neighbours' share.
    by_hour = frame.group_by("hour").agg(pl.col("on").mean(), n=pl.len()).sort("hour")
    frequent = by_hour.filter(pl.col("n") > LEAST_SAMPLES)
    shares = np.interp(range(24), frequent["hour"], frequent["on"], period=24)
    busy = set(np.flatnonzero(shares > BUSY_SHARE).tolist())
    lengths: dict[bool, list[float]] = {True: [], False: []}
    levels: list[float] = []
    ratios: list[Array] = []
    for pod in frame.partition_by("container_ip", maintain_order=True):
        _add_runs(pod, busy, lengths)
        duty = pod.filter("on")["gpu_duty_cycle_pct"].to_numpy() / 100
        if len(duty) >= LEAST_ON:
            levels.append(float(duty.mean()))
            ratios.append(duty / duty.mean())
    runs = [
        *_compute_quantiles("on_s", np.array(lengths[True])),
        *_compute_quantiles("off_s", np.array(lengths[False])),
        *_compute_quantiles("on_level", np.array(levels)),
        *_compute_quantiles("on_ratio", np.concatenate(ratios)),
    ]
    return runs, [{"hour": h, "on_share": round(float(s), 4)} for h, s in enumerate(shares)]


def _add_runs(pod: pl.DataFrame, busy: set[int], lengths: dict[bool, list[float]]) -> None:
    """Add the lengths of one pod's runs that begin in a busy hour."""
    ts, on, hour = (pod[name].to_numpy() for name in ("ts", "on", "hour"))
    cuts = np.flatnonzero((on[1:] != on[:-1]) | (np.diff(ts) > GAP_S))
    first, last = np.append(0, cuts + 1), np.append(cuts, len(ts) - 1)
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        if int(hour[begin]) in busy:
            lengths[bool(on[begin])].append(float(ts[end] - ts[begin] + TICK_S))


def _compute_quantiles(law: str, values: Array) -> Rows:
    return [
        {"law": law, "p": p, "value": float(f"{v:.5g}")}
        for p, v in zip(LEVELS, np.quantile(values, LEVELS), strict=True)
    ]


def fit(data: Path) -> dict[str, Rows]:
    """Return the rows of every fitted table by file name."""
    runs, hours = fit_gentd26(data / "gentd26" / "gpu_dev_pods_0-7.parquet")
    return {
        "acme.csv": fit_acme(data / "acme" / "acme_util_power_cdfs.csv"),
        "gentd26.csv": runs,
        "gentd26_hours.csv": hours,
    }


def main(data: str, out: str = str(Path(__file__).parents[1] / "simulator" / "work")) -> None:
    """Write the fitted tables into a folder; this one unless another is named."""
    for name, rows in fit(Path(data)).items():
        with (Path(out) / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
