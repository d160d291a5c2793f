"""Resolve extended resources that represent GPUs (`gpu_resources.csv`)."""

import re
from functools import cache

import msgspec

from fallow.resources import read_table

MIG_SLICES = 7
"""Compute slices of a whole GPU (A30 has 4: telemetry-and-waste.md#fragmentation-and-mig)."""

COUNTED = {"whole", "shared", "mig"}
"""Forms whose amount is a number of devices; the amount of the others is a part of each device."""

MOST_DEVICES = 65_536
"""Devices of one pod or node that are believed: the largest nodes have 16 GPUs, and time slicing
and HAMi offer each at most some hundred times."""


class GpuResource(msgspec.Struct, frozen=True):
    """An extended resource that represents GPUs; `slices` is a MIG profile's compute slices."""

    name: str
    vendor: str
    form: str
    slices: int | None = None


@cache
def _read_patterns() -> list[tuple[re.Pattern[str], str, str]]:
    rows = read_table("fallow.kube", "gpu_resources.csv")
    return [(re.compile(r["pattern"]), r["vendor"], r["form"]) for r in rows]


@cache
def find_gpu_resource(name: str) -> GpuResource | None:
    """Return what the extended resource represents, or None where it is no GPU."""
    for pattern, vendor, form in _read_patterns():
        if match := pattern.match(name):
            slices = match.groupdict().get("slices")
            return GpuResource(name, vendor, form, int(slices) if slices else None)
    return None
