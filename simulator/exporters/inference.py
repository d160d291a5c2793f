"""Request metrics of an inference server: vLLM's or Triton's `/metrics`."""

from collections.abc import Mapping
from typing import Any

from simulator.exporters.dcgm import quoted
from simulator.nouns import HostLook

VLLM, TRITON = "vllm", "triton"
_MODEL = "model"


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
        _triton(running, total) if server == TRITON else _vllm(look, running, total)
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
    ]


def _triton(running: float, total: float) -> list[str]:
    key = quoted({"model": _MODEL, "version": "1"})
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
