"""Estimate the speed-up of smaller number formats: Amdahl and roofline, low and high.

    S = 1 / ((1 - f) + f / k)    f: share of the time that changes, k: how much faster that is
    S <= 0.8 / (d x b)           d: DRAM activity now, b: bytes then over bytes now

(telemetry-and-waste.md#precision.)
The low end uses half of f and 0.65 of the peak ratio. The high end uses all of f and 0.8 of the
ratio, the share of the peak that matrix kernels reach on A100 to B200.
"""

from functools import cache

import msgspec

from analyzers.gpu_peaks import GpuPeaks
from analyzers.queries import load_records
from fallow.models import Effort
from fallow.rows import Row

DRAM_CEILING = 0.8
"""Practical peak of DRAM activity (telemetry-and-waste.md#signals)."""
REACHED = (0.65, 0.8)
"""Share of the peak ratio that is reached: an estimate, and the value of good kernels."""
CHANGED = (0.5, 1.0)
"""Share of the pipe's time that is matrix work and changes."""
WEIGHTS = (0.5, 0.9)
"""Share of a memory-bound server's traffic that is weights: the rest is KV cache and activations.
"""


class NumberFormat(Row, frozen=True):
    """A suitable number format, and its text for owners (a row of `formats.csv`)."""

    kind: str
    format: str
    archs: str
    bytes: float
    verb: str
    effort: Effort
    why: str
    undo: str
    caution: str
    rate: str = ""
    """The rate of `gpu_peaks.csv` that counts; empty where memory is what it waits for."""


class FormatGain(msgspec.Struct, frozen=True):
    """A range of speed-ups by one format."""

    format: NumberFormat
    low: float
    high: float

    @property
    def shares(self) -> tuple[float, float]:
        """Return the shares of the hours that would be saved."""
        return 1 - 1 / self.low, 1 - 1 / self.high


@cache
def list_formats(kind: str, arch: str) -> tuple[NumberFormat, ...]:
    """Return the formats for a kind of finding that an architecture supports."""
    rows = load_records("precision/formats", NumberFormat)
    return tuple(r for r in rows if r.kind == kind and arch in r.archs.split())


def compute_speedup(f: float, k: float) -> float:
    """Return Amdahl's speed-up when a share f of the time gets k times as fast."""
    return 1 / ((1 - f) + f / k)


def compute_roofline(dram: float | None, bytes_ratio: float) -> float:
    """Return the speed-up at the memory limit; infinite where DRAM activity is not measured."""
    return DRAM_CEILING / (dram * bytes_ratio) if dram else float("inf")


def compute_pipe_gain(  # noqa: PLR0917  (one caller)
    pipe: float,
    sm: float,
    dram: float | None,
    now: float,
    peaks: GpuPeaks,
    number_format: NumberFormat,
) -> FormatGain | None:
    """Return the gain of a faster pipe; `now` is the present format's peak rate.

    `pipe`, `sm` and `dram` are activities: of the pipe, of the SMs, of the memory.
    """
    then = getattr(peaks, number_format.rate)
    if not then or not sm or then <= now:
        return None
    share = min(1.0, pipe / sm)
    most = compute_roofline(dram, number_format.bytes)
    ends = [
        min(compute_speedup(share * changed, max(1.0, then / now * reached)), most)
        for changed, reached in zip(CHANGED, REACHED, strict=True)
    ]
    return _build_gain(number_format, *ends)


def compute_weight_gain(number_format: NumberFormat) -> FormatGain | None:
    """Return the gain of smaller weights for a server that waits for memory."""
    return _build_gain(number_format, *(1 / ((1 - w) + w * number_format.bytes) for w in WEIGHTS))


def _build_gain(number_format: NumberFormat, low: float, high: float) -> FormatGain | None:
    return (
        FormatGain(number_format, min(low, high), max(low, high))
        if max(low, high) > 1 and low >= 1
        else None
    )
