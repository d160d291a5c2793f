"""Request metrics of an inference server: vLLM's or Triton's `/metrics`."""

from collections.abc import Mapping
from typing import Any

from simulator.exporters.dcgm import quoted
from simulator.nouns import Histogram, HostLook

VLLM, TRITON = "vllm", "triton"
_MODEL = "model"
LATENCIES = {
    "e2e": ("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."),
    "ttft": ("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds."),
    "itl": ("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds."),
}


def serves(look: HostLook) -> bool:
    """Say whether a pod serves requests."""
    return look.requests_running is not None


def flavour(pod: Mapping[str, Any] | None) -> str:
    """Return which server a pod runs: Triton where a container or its image says so."""
    spec = (pod or {}).get("spec", {})
    for container in spec.get("containers") or ():
        if TRITON in f"{container.get('name', '')} {container.get('image', '')}".lower():
            return TRITON
    return VLLM


def text(look: HostLook, server: str) -> bytes:
    """Return what a server of this flavour says of its requests."""
    running, total = look.requests_running or 0.0, look.requests_total or 0.0
    return "".join(
        _triton(look, running, total) if server == TRITON else _vllm(look, running, total)
    ).encode()


def _vllm(look: HostLook, running: float, total: float) -> list[str]:
    key = {"engine": "0", "model_name": look.holder.workload}
    waiting = max(running - _SEATS, 0.0)
    ends = {"stop": total, "length": 0.0, "abort": 0.0}
    return [
        *_head(
            "vllm:num_requests_running", "gauge", "Number of requests in model execution batches."
        ),
        f"vllm:num_requests_running{{{quoted(key)}}} {running - waiting:.1f}\n",
        *_head("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed."),
        f"vllm:num_requests_waiting{{{quoted(key)}}} {waiting:.1f}\n",
        *_head(
            "vllm:request_success_total", "counter", "Count of successfully processed requests."
        ),
        *(
            f"vllm:request_success_total{{{quoted({**key, 'finished_reason': why})}}} {count:.1f}\n"
            for why, count in ends.items()
        ),
        *(line for told in look.latencies for line in _histogram(told, key)),
    ]


def _histogram(told: Histogram, key: Mapping[str, str]) -> list[str]:
    name, said = LATENCIES[told.metric]
    bounds = [*map(repr, map(float, told.bounds)), "+Inf"]
    return [
        *_head(name, "histogram", said),
        *(
            f"{name}_bucket{{{quoted({**key, 'le': bound})}}} {count:.1f}\n"
            for bound, count in zip(bounds, told.counts, strict=True)
        ),
        f"{name}_count{{{quoted(key)}}} {told.counts[-1]:.1f}\n",
        f"{name}_sum{{{quoted(key)}}} {told.total_s:.6f}\n",
    ]


def _triton(look: HostLook, running: float, total: float) -> list[str]:
    key = quoted({"model": _MODEL, "version": "1"})
    spent = sum(told.total_s for told in look.latencies if told.metric == "e2e")
    done = f"{{{key}}} {total:.0f}\n"
    return [
        *_head(
            "nv_inference_request_success",
            "counter",
            "Number of successful inference requests, all batch sizes",
        ),
        f"nv_inference_request_success{done}",
        *_head(
            "nv_inference_request_failure",
            "counter",
            "Number of failed inference requests, all batch sizes",
        ),
        f"nv_inference_request_failure{{{key}}} 0\n",
        *_head(
            "nv_inference_count",
            "counter",
            "Number of inferences performed (does not include cached requests)",
        ),
        f"nv_inference_count{done}",
        *_head(
            "nv_inference_request_duration_us",
            "counter",
            "Cumulative inference request duration in microseconds (includes cached requests)",
        ),
        f"nv_inference_request_duration_us{{{key}}} {spent * 1e6:.0f}\n",
        *_head(
            "nv_inference_pending_request_count",
            "gauge",
            "Instantaneous number of pending requests awaiting execution per-model.",
        ),
        f"nv_inference_pending_request_count{{{key}}} {max(running - 1, 0):.0f}\n",
    ]


_SEATS = 256.0
"""Requests that run at once; the others wait (vLLM's max_num_seqs)."""


def _head(name: str, kind: str, said: str) -> list[str]:
    return [f"# HELP {name} {said}\n", f"# TYPE {name} {kind}\n"]
