"""The peak rates of each GPU model (`gpu_peaks.csv`): dense rates, bandwidth, links."""

from functools import cache

from analyzers.queries import load_records
from fallow.rows import Row


class GpuPeaks(Row, frozen=True, kw_only=True):
    """Dense peaks of one model in TFLOPS (INT8: TOPS) and GB/s; None = not supported.

    Marketing figures with sparsity are twice these. `sure` is False for figures without a
    confirming document. NVLink is the sum of both directions over all links.
    """

    gpu_model: str
    fp32_tflops: float
    tf32_tflops: float | None = None
    fp16_tflops: float
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    int8_tops: float | None = None
    memory_gbs: float
    nvlink_gbs: float | None = None
    sure: bool
    source: str

    @property
    def tensor_tflops(self) -> float:
        """Return the rate of 16-bit matrix work."""
        return self.bf16_tflops or self.fp16_tflops


@cache
def read_gpu_peaks() -> dict[str, GpuPeaks]:
    """Return the peaks of each known canonical model (`fallow/gpu_models.csv`)."""
    return {row.gpu_model: row for row in load_records("gpu_peaks", GpuPeaks)}
