"""Precision: FP32 with unused tensor cores, 16 bits where 8 would suffice, waits for weights.

Profiling counters are one signal, and no other kind shows the precision of the work: nothing here
is ever confirmed. The low end of each range is counted.
"""

from collections.abc import Mapping
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any, cast

import polars as pl

from analyzers.gpu_peaks import GpuPeaks, read_gpu_peaks
from analyzers.precision.allocator import find_fragmented
from analyzers.precision.gains import (
    FormatGain,
    compute_pipe_gain,
    compute_weight_gain,
    list_formats,
)
from analyzers.queries import compose_steps
from analyzers.work import (
    WORKED,
    Owner,
    StateCost,
    WorkloadCosts,
    build_subject,
    compute_per_day,
    compute_share,
    list_counters,
    read_costs,
)
from analyzers.workload_kinds import is_gang, is_interactive
from fallow.gpu_models import gpu_models
from fallow.models import Effort, Finding, Recommendation, Subject, Unjudged, finding_id
from fallow.protocols import Views
from fallow.settings import PrecisionSettings
from fallow.window import Window

ANALYZER = "precision"
PIPES = ("hours/owners", "precision/worked", "hours/hours", "precision/pipes")
HOUR = timedelta(hours=1)
CONFIDENCE = 0.45
"""Half of the confidence of a confirmed finding: there is one signal."""
Row = Mapping[str, Any]
ASSUMED = {
    "fp32_asleep": [
        "half to all of the FP32 pipe's time is matrix work that tensor cores can do",
        "0.65 to 0.8 of the ratio of the peak rates is reached",
    ],
    "fp8": [
        "it computes in 16 bits now: the counters do not tell FP8 from BF16",
        "half to all of the tensor pipe's time can be FP8",
        "0.65 to 0.8 of the ratio of the peak rates is reached",
    ],
    "low_bit_weights": [
        "its weights have 16 bits now",
        "0.5 to 0.9 of the memory traffic is weights, the rest KV cache and activations",
    ],
}
NO_COUNTERS = (
    "profiling counters are off, so nobody can tell which pipes it uses: dcgm-exporter's counters "
    "ConfigMap needs the lines "
)
NO_FP32 = (
    "tensor cores sleep while it computes, but the FP32 pipe is not measured: dcgm-exporter's "
    "counters ConfigMap needs the line "
)


class PrecisionAnalyzer:
    """Find work that a smaller number format speeds up (telemetry-and-waste.md#precision)."""

    def __init__(self, settings: PrecisionSettings | None = None) -> None:
        self.settings = settings or PrecisionSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return workloads with the savings of other formats, the most GPU-hours first.

        Also return those whose framework reserves much memory outside of tensors.
        """
        findings = [*self._formats(views, window), *find_fragmented(views, window, self.settings)]
        return sorted(findings, key=lambda f: (-f.gpu_hours, f.id))

    def _formats(self, views: Views, window: Window) -> list[Finding]:
        rows = self._rows(views, window)
        candidates = [(row, *kind) for row in rows if (kind := self._kind(row)) is not None]
        if not candidates:
            return []
        costs = read_costs(views, window)
        shares = _compute_shares(rows)
        return [
            _build_finding(row, kind, gains, _compute_cost(row, costs, shares), window, costs)
            for row, kind, gains in candidates
        ]

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return workloads with unmeasured pipes, and the lines that turn the counters on."""
        unjudged = []
        for row in self._rows(views, window):
            arch = _read_archs().get(row["model"] or "")
            if arch is None or not list_formats("fp32_asleep", arch):
                continue
            if row["tensor"] is None or row["sm"] is None:
                lines = list_counters("sm", "tensor", "fp32", "dram")
                unjudged.append(Unjudged(build_subject(row), row["work_h"], (NO_COUNTERS + lines,)))
            elif row["fp32"] is None and self._asleep(row):
                why = NO_FP32 + list_counters("fp32")
                unjudged.append(Unjudged(build_subject(row), row["work_h"], (why,)))
        return unjudged

    def _rows(self, views: Views, window: Window) -> list[dict[str, Any]]:
        parameters = {
            "since": window.start,
            "until": window.end,
            "least_gpu_hours": self.settings.least_gpu_hours,
        }
        rows: list[dict[str, Any]] = views.query(
            compose_steps(*PIPES, once="worked"), parameters
        ).to_pylist()
        return rows

    def _asleep(self, row: Row) -> bool:
        return bool(row["tensor"] < self.settings.tensor_asleep and row["sm"] >= self.settings.sm)

    def _kind(self, row: Row) -> tuple[str, list[FormatGain]] | None:
        """Return a workload's gain from smaller formats, the most cautious format first."""
        peaks, arch = (
            read_gpu_peaks().get(row["model"] or ""),
            _read_archs().get(row["model"] or ""),
        )
        if peaks is None or arch is None or row["tensor"] is None or row["sm"] is None:
            return None
        kind = self._classify_bottleneck(row)
        if kind is None:
            return None
        gains = _compute_gains(row, kind, peaks, arch)
        real = [gain for gain in gains if gain is not None and gain.shares[0] > 0]
        return (kind, real) if real else None

    def _classify_bottleneck(self, row: Row) -> str | None:
        """Return which kind of finding the counters of a workload point to; None = no kind."""
        fp32 = row["fp32"]
        if fp32 is not None and fp32 >= self.settings.fp32_active and self._asleep(row):
            return "fp32_asleep"
        if _is_server(row["workload_kind"]) and self._waits_for_memory(row):
            return "low_bit_weights"
        return "fp8" if row["tensor"] > self.settings.tensor_busy else None

    def _waits_for_memory(self, row: Row) -> bool:
        return bool(
            (row["dram"] or 0) >= self.settings.memory_bound
            and row["tensor"] < self.settings.waiting_tensor
        )


def _compute_gains(row: Row, kind: str, peaks: GpuPeaks, arch: str) -> list[FormatGain | None]:
    """Return the gain of each format of a kind on this architecture; None = no gain."""
    formats = list_formats(kind, arch)
    if kind == "low_bit_weights":
        return [compute_weight_gain(number_format) for number_format in formats]
    active, now = (
        (row["fp32"], peaks.fp32_tflops)
        if kind == "fp32_asleep"
        else (row["tensor"], peaks.tensor_tflops)
    )
    return [compute_pipe_gain(row, active, now, peaks, number_format) for number_format in formats]


def _build_finding(  # noqa: PLR0917  (one call)
    row: Row,
    kind: str,
    gains: list[FormatGain],
    cost: StateCost,
    window: Window,
    costs: WorkloadCosts,
) -> Finding:
    subject = build_subject(row)
    start = max(window.start, row["first_hour"].replace(tzinfo=UTC))
    end = min(window.end, row["last_hour"].replace(tzinfo=UTC) + HOUR)
    low = gains[0].shares[0]
    figures = {n: round(row[n], 4) for n in ("sm", "tensor", "fp32", "dram") if row[n] is not None}
    peaks = read_gpu_peaks()[row["model"]]
    assumed = list(ASSUMED[kind])
    if row["dram"] is None:
        assumed.append("memory bandwidth is not measured, and taken not to be the limit")
    if not peaks.sure:
        assumed.append(f"peak rates of {row['model']} are from memory: {peaks.source}")
    if cost.usd is None:
        assumed.append("some of its hours have no price: no dollars")
    return Finding(
        id=finding_id(ANALYZER, kind, subject, start),
        analyzer=ANALYZER,
        kind=kind,
        subject=subject,
        window=Window(start, end),
        verdict="wasteful",
        evidence="suspected",
        confidence=CONFIDENCE,
        gpu_hours=round(cost.gpu_hours * low, 6),
        usd=None if cost.usd is None else compute_share(cost.usd, low),
        details={
            "why": f"{kind.replace('_', ' ')}: {gains[0].format.format} could be "
            f"{gains[0].low:.2f} to {gains[0].high:.2f} times as fast",
            "witnesses": {"compute": ", ".join(f"{n} {v:.2f}" for n, v in figures.items())},
            "figures": figures,
            "hours_at_work": round(cost.gpu_hours, 6),
            "ranges": [_describe_range(gain, cost) for gain in gains],
            "counted": "the low end of the first range",
            "assumptions": assumed,
        },
        recommendations=tuple(
            _recommend(row, gain, cost, subject, window, costs) for gain in gains
        ),
    )


def _describe_range(gain: FormatGain, cost: StateCost) -> dict[str, Any]:
    low, high = gain.shares
    usd = (
        None if cost.usd is None else [compute_share(cost.usd, low), compute_share(cost.usd, high)]
    )
    return {
        "format": gain.format.format,
        "times_as_fast": [round(gain.low, 3), round(gain.high, 3)],
        "gpu_hours": [round(cost.gpu_hours * low, 3), round(cost.gpu_hours * high, 3)],
        "usd": usd,
        "bytes": gain.format.bytes,
    }


def _recommend(  # noqa: PLR0917  (one call)
    row: Row,
    gain: FormatGain,
    cost: StateCost,
    subject: Subject,
    window: Window,
    costs: WorkloadCosts,
) -> Recommendation:
    share, number_format = gain.shares[0], gain.format
    worked = costs.total(_get_owner(row), WORKED)
    of_model = cost.gpu_hours / worked.gpu_hours if worked and worked.gpu_hours else 1.0
    usd: Decimal | None = None if cost.usd is None else compute_share(cost.usd, share)
    words = {n: row[n] or 0.0 for n in ("fp32", "tensor", "dram")}
    return Recommendation(
        verb=number_format.verb,
        target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
        why=number_format.why.format(**words),
        reversible=True,
        undo=number_format.undo,
        gpu_hours_per_day=round(cost.gpu_hours * share * 86_400 / window.seconds, 4),
        usd_per_day=compute_per_day(usd, window),
        caution=number_format.caution,
        effort=cast("Effort", number_format.effort),
        claims=costs.claims(_get_owner(row), share * min(1.0, of_model), WORKED),
    )


def _get_owner(row: Row) -> Owner:
    return row["cluster"], row["namespace"], row["workload_kind"], row["workload"]


def _compute_shares(rows: list[dict[str, Any]]) -> Mapping[Owner, float]:
    """Return the hours at work of each workload over all of its GPU models."""
    frame = pl.DataFrame([(*_get_owner(r), r["work_h"]) for r in rows], orient="row")
    sums = frame.group_by(frame.columns[:4]).agg(pl.col(frame.columns[4]).sum())
    return {row[:4]: row[4] for row in sums.iter_rows()}


def _compute_cost(row: Row, costs: WorkloadCosts, shares: Mapping[Owner, float]) -> StateCost:
    """Return the ledger's hours of a workload on this model; telemetry's if there are none."""
    total = costs.total(_get_owner(row), WORKED)
    if total is None:
        return StateCost(row["work_h"], None)
    share = row["work_h"] / shares[_get_owner(row)]
    return StateCost(
        total.gpu_hours * share, None if total.usd is None else compute_share(total.usd, share)
    )


def _is_server(workload_kind: str) -> bool:
    return not is_gang(workload_kind) and not is_interactive(workload_kind)


def _read_archs() -> dict[str, str]:
    return {m.gpu_model: m.arch for m in gpu_models() if m.vendor == "nvidia"}
