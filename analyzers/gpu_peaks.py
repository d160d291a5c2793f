"""The peak rates of each GPU model (`gpu_peaks.csv`): dense rates, bandwidth, links."""

from functools import cache

import msgspec

from analyzers.queries import load_rows


class GpuPeaks(msgspec.Struct, frozen=True):
    """Dense peaks of one model in TFLOPS (INT8: TOPS) and GB/s; None = not supported.

    Marketing figures with sparsity are twice these. `sure` is False for figures without a
    confirming document. NVLink is the sum of both directions over all links.
    """

    gpu_model: str
    fp32_tflops: float
    tf32_tflops: float | None
    fp16_tflops: float
    bf16_tflops: float | None
    fp8_tflops: float | None
    int8_tops: float | None
    memory_gbs: float
    nvlink_gbs: float | None
    sure: bool
    source: str

    @property
    def tensor_tflops(self) -> float:
        """Return the rate of 16-bit matrix work."""
        return self.bf16_tflops or self.fp16_tflops


@cache
def read_gpu_peaks() -> dict[str, GpuPeaks]:
    """Return the peaks of each known canonical model (`fallow/gpu_models.csv`)."""
    peaks = {}
    for row in load_rows("gpu_peaks"):
        fields = {name: value or None for name, value in row.items()} | {"sure": row["sure"] == "1"}
        peaks[row["gpu_model"]] = msgspec.convert(fields, GpuPeaks, strict=False)
    return peaks
