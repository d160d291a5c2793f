"""Write the request metrics of an inference server: vLLM's or Triton's `/metrics`."""

from collections.abc import Mapping
from typing import Any

from simulator.exporters.dcgm import quote_labels
from simulator.models import Histogram, HostSample

VLLM, TRITON = "vllm", "triton"
_MODEL = "model"
LATENCIES = {
    "e2e": ("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."),
    "ttft": ("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds."),
    "itl": ("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds."),
}


def is_serving(sample: HostSample) -> bool:
    """Return whether a pod serves requests."""
    return sample.requests_running is not None


def find_flavour(pod: Mapping[str, Any] | None) -> str:
    """Return which server a pod runs: Triton where a container or its image says so."""
    spec = (pod or {}).get("spec", {})
    for container in spec.get("containers") or ():
        if TRITON in f"{container.get('name', '')} {container.get('image', '')}".lower():
            return TRITON
    return VLLM


def render_text(sample: HostSample, server: str) -> bytes:
    """Return the request metrics of a server of this kind."""
    running, total = sample.requests_running or 0.0, sample.requests_total or 0.0
    return "".join(
        _render_triton(sample, running, total)
        if server == TRITON
        else _render_vllm(sample, running, total)
    ).encode()


def _render_vllm(sample: HostSample, running: float, total: float) -> list[str]:
    key = {"engine": "0", "model_name": sample.holder.workload}
    waiting = max(running - _SEATS, 0.0)
    ends = {"stop": total, "length": 0.0, "abort": 0.0}
    return [
        *_render_metric_header(
            "vllm:num_requests_running", "gauge", "Number of requests in model execution batches."
        ),
        f"vllm:num_requests_running{{{quote_labels(key)}}} {running - waiting:.1f}\n",
        *_render_metric_header(
            "vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed."
        ),
        f"vllm:num_requests_waiting{{{quote_labels(key)}}} {waiting:.1f}\n",
        *_render_metric_header(
            "vllm:request_success_total", "counter", "Count of successfully processed requests."
        ),
        *(
            f"vllm:request_success_total{{{quote_labels({**key, 'finished_reason': why})}}} "
            f"{count:.1f}\n"
            for why, count in ends.items()
        ),
        *(line for histogram in sample.latencies for line in _render_histogram(histogram, key)),
    ]


def _render_histogram(histogram: Histogram, key: Mapping[str, str]) -> list[str]:
    name, help_text = LATENCIES[histogram.metric]
    bounds = [*map(repr, map(float, histogram.bounds)), "+Inf"]
    return [
        *_render_metric_header(name, "histogram", help_text),
        *(
            f"{name}_bucket{{{quote_labels({**key, 'le': bound})}}} {count:.1f}\n"
            for bound, count in zip(bounds, histogram.counts, strict=True)
        ),
        f"{name}_count{{{quote_labels(key)}}} {histogram.counts[-1]:.1f}\n",
        f"{name}_sum{{{quote_labels(key)}}} {histogram.total_s:.6f}\n",
    ]


def _render_triton(sample: HostSample, running: float, total: float) -> list[str]:
    key = quote_labels({"model": _MODEL, "version": "1"})
    request_s = sum(
        histogram.total_s for histogram in sample.latencies if histogram.metric == "e2e"
    )
    request_count = f"{{{key}}} {total:.0f}\n"
    return [
        *_render_metric_header(
            "nv_inference_request_success",
            "counter",
            "Number of successful inference requests, all batch sizes",
        ),
        f"nv_inference_request_success{request_count}",
        *_render_metric_header(
            "nv_inference_request_failure",
            "counter",
            "Number of failed inference requests, all batch sizes",
        ),
        f"nv_inference_request_failure{{{key}}} 0\n",
        *_render_metric_header(
            "nv_inference_count",
            "counter",
            "Number of inferences performed (does not include cached requests)",
        ),
        f"nv_inference_count{request_count}",
        *_render_metric_header(
            "nv_inference_request_duration_us",
            "counter",
            "Cumulative inference request duration in microseconds (includes cached requests)",
        ),
        f"nv_inference_request_duration_us{{{key}}} {request_s * 1e6:.0f}\n",
        *_render_metric_header(
            "nv_inference_pending_request_count",
            "gauge",
            "Instantaneous number of pending requests awaiting execution per-model.",
        ),
        f"nv_inference_pending_request_count{{{key}}} {max(running - 1, 0):.0f}\n",
    ]


_SEATS = 256.0
"""Requests that run at once; the others wait (vLLM's max_num_seqs)."""


def _render_metric_header(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}\n", f"# TYPE {name} {kind}\n"]
