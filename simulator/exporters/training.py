"""Write a training loop's own metrics: throughput of the job, memory of the allocator."""

from simulator.models import HostSample


def is_training(sample: HostSample) -> bool:
    """Return whether a pod's loop reports its throughput."""
    return sample.pace is not None


def render_text(sample: HostSample) -> bytes:
    """Return the gauges of one pod; the first rank reports the job's throughput and steps."""
    if sample.pace is None:
        return b""
    values = {
        "trainer_throughput_tokens_per_sec": sample.pace.tokens_per_s,
        "train_global_step": sample.pace.steps,
        "torch_memory_allocated_bytes": sample.pace.allocated_bytes,
        "torch_memory_reserved_bytes": sample.pace.reserved_bytes,
    }
    lines = [
        f"# HELP {name} {_METRICS[name]}\n# TYPE {name} gauge\n{name} {value:.3f}\n"
        for name, value in values.items()
        if value is not None
    ]
    return "".join(lines).encode()


_METRICS = {
    "trainer_throughput_tokens_per_sec": "Training throughput in tokens/sec",
    "train_global_step": "Steps of the optimizer",
    "torch_memory_allocated_bytes": "Device memory in tensors",
    "torch_memory_reserved_bytes": "Device memory held by the caching allocator",
}
