"""What a training loop's own exporter says: throughput of the job, memory of the allocator."""

from simulator.nouns import HostLook


def trains(look: HostLook) -> bool:
    """Say whether a pod's loop tells its pace."""
    return look.pace is not None


def text(look: HostLook) -> bytes:
    """Return the gauges of one pod; the job's throughput is told by its first rank alone."""
    if look.pace is None:
        return b""
    values = {
        "trainer_throughput_tokens_per_sec": look.pace.tokens_per_s,
        "torch_memory_allocated_bytes": look.pace.allocated_bytes,
        "torch_memory_reserved_bytes": look.pace.reserved_bytes,
    }
    lines = [
        f"# HELP {name} {_SAID[name]}\n# TYPE {name} gauge\n{name} {value:.3f}\n"
        for name, value in values.items()
        if value is not None
    ]
    return "".join(lines).encode()


_SAID = {
    "trainer_throughput_tokens_per_sec": "Training throughput in tokens/sec",
    "torch_memory_allocated_bytes": "Device memory in tensors",
    "torch_memory_reserved_bytes": "Device memory held by the caching allocator",
}
