"""Resolve extended resources that represent GPUs (`gpu_resources.csv`)."""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import msgspec

from fallow.kube.gpu_shares import WHOLE, find_share
from fallow.resources import read_table

COUNTED = {"whole", "shared", "mig", "part"}
"""Forms whose amount is a number of devices; the amount of the others is a part of each device."""

SHARED_SUFFIX = ".shared"
"""What the device plugin adds to the name of a resource whose devices it shares."""

MOST_DEVICES = 65_536
"""Devices of one pod or node that are believed: the largest nodes have 16 GPUs, and time slicing
and HAMi offer each at most some hundred times."""


class GpuResource(msgspec.Struct, frozen=True):
    """An extended resource that represents GPUs; `share` of a physical GPU is one device of it."""

    name: str
    vendor: str
    form: str
    share: Fraction = WHOLE

    @property
    def is_divided(self) -> bool:
        """Whether the plugin offers each device several times, as the name says."""
        return self.form == "shared" or self.name.endswith(SHARED_SUFFIX)

    @property
    def may_be_divided(self) -> bool:
        """Whether a node's replicas hold for it: for an instance only where its name says so."""
        return self.is_divided or self.share == 1


_ACCELERATOR = re.compile(
    r"[/_](?:.*[^a-z])?(?:p?v?gpus?|[tnx]pu|neuron\w*|gaudi\w*|mlu|dcu|mig|accelerators?)(?![a-z])",
    re.IGNORECASE,
)
_MONITORING = re.compile(r"_monitoring$|^gpu[./_]intel[./_]com|(?<!alpha[._])kubernetes[./_]io")


@cache
def is_unknown_accelerator(name: str) -> bool:
    """Return whether no row knows a resource whose name says that it is an accelerator.

    kube-state-metrics writes the slash as `_`.
    """
    is_listed = find_gpu_resource(name) is not None or _MONITORING.search(name) is not None
    return not is_listed and _ACCELERATOR.search(name) is not None


@cache
def _read_patterns() -> list[tuple[re.Pattern[str], str, str]]:
    rows = read_table("fallow.kube", "gpu_resources.csv")
    return [(re.compile(r["pattern"]), r["vendor"], r["form"]) for r in rows]


@cache
def find_gpu_resource(name: str) -> GpuResource | None:
    """Return what the extended resource represents, or None where it is no GPU."""
    for pattern, vendor, form in _read_patterns():
        if match := pattern.match(name):
            share = find_share(match.groupdict().get("profile"))
            return GpuResource(name, vendor, form, share)
    return None


def select_gpus(amounts: Mapping[str, Fraction]) -> dict[GpuResource, Fraction]:
    """Return the resources among the amounts that count devices, more than zero and possible."""
    devices = ((find_gpu_resource(name), value) for name, value in amounts.items())
    return {
        r: value
        for r, value in devices
        if r is not None and r.form in COUNTED and 0 < value <= MOST_DEVICES
    }


def read_hint(amounts: Mapping[str, Fraction], form: str) -> Fraction | None:
    """Return the request per shared device: `memory_mib`, `memory_pct` or `cores_pct`."""
    for name, value in amounts.items():
        resource = find_gpu_resource(name)
        if resource is not None and resource.form == form and value > 0:
            return value
    return None
