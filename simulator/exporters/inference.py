"""Write the request metrics of an inference server: vLLM's or Triton's (`inference.csv`)."""

from collections.abc import Mapping
from typing import Any

from fallow.resources import read_table
from simulator.exporters.dcgm import quote_labels
from simulator.models import Histogram, HostSample

VLLM, TRITON = "vllm", "triton"
_MODEL = "model"
METRICS = read_table("simulator.exporters", "inference.csv")
LATENCIES = {row["latency"]: row["name"] for row in METRICS if row["latency"]}
_SEATS = 256.0
"""Requests that run at once; the others wait (vLLM's max_num_seqs)."""


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
    values = _list_triton(sample) if server == TRITON else _list_vllm(sample)
    lines = []
    for row in METRICS:
        name = row["name"]
        if name in values:
            lines += [f"# HELP {name} {row['help']}\n", f"# TYPE {name} {row['kind']}\n"]
            lines += [f"{name}{value}\n" for value in values[name]]
    return "".join(lines).encode()


def _list_vllm(sample: HostSample) -> dict[str, list[str]]:
    """Return what stands behind the name of each metric: labels and value."""
    names = {"engine": "0", "model_name": sample.holder.workload}
    running, total = sample.requests_running or 0.0, sample.requests_total or 0.0
    key, waiting = quote_labels(names), max(running - _SEATS, 0.0)
    ends = {"stop": total, "length": 0.0, "abort": 0.0}
    return {
        "vllm:num_requests_running": [f"{{{key}}} {running - waiting:.1f}"],
        "vllm:num_requests_waiting": [f"{{{key}}} {waiting:.1f}"],
        "vllm:request_success_total": [
            f"{{{quote_labels({**names, 'finished_reason': why})}}} {count:.1f}"
            for why, count in ends.items()
        ],
        **{LATENCIES[h.metric]: _list_histogram(h, names) for h in sample.latencies},
    }


def _list_histogram(histogram: Histogram, names: Mapping[str, str]) -> list[str]:
    bounds = [*map(repr, map(float, histogram.bounds)), "+Inf"]
    return [
        *(
            f"_bucket{{{quote_labels({**names, 'le': bound})}}} {count:.1f}"
            for bound, count in zip(bounds, histogram.counts, strict=True)
        ),
        f"_count{{{quote_labels(names)}}} {histogram.counts[-1]:.1f}",
        f"_sum{{{quote_labels(names)}}} {histogram.total_s:.6f}",
    ]


def _list_triton(sample: HostSample) -> dict[str, list[str]]:
    key = quote_labels({"model": _MODEL, "version": "1"})
    running, total = sample.requests_running or 0.0, sample.requests_total or 0.0
    request_s = sum(h.total_s for h in sample.latencies if h.metric == "e2e")
    figures = {
        "nv_inference_request_success": total,
        "nv_inference_request_failure": 0.0,
        "nv_inference_count": total,
        "nv_inference_request_duration_us": request_s * 1e6,
        "nv_inference_pending_request_count": max(running - 1, 0.0),
    }
    return {name: [f"{{{key}}} {figure:.0f}"] for name, figure in figures.items()}
