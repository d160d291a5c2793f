"""Parse MIG layouts such as `2x3g.40gb+1x1g.10gb`, with the ids that the driver assigns."""

import re
from functools import cache

import msgspec

from fallow.errors import UsageError
from simulator.cluster.scheduler.mig import get_profile, lay_out

FIRST_ID = {7: 0, 4: 2, 3: 1, 2: 3, 1: 7}
"""First GPU instance id that drivers assign to a profile of so many compute slices (transcripts of
`nvidia-smi mig -lgi`: 3g has 1 and 2, 1g has 7 to 13)."""
_PART = re.compile(r"(?:(\d+)x)?(\d+g\.\d+gb)")


class InstanceLayout(msgspec.Struct, frozen=True):
    """One instance on a GPU."""

    profile: str
    number: int
    """GPU instance id (`GPU_I_ID` of the exporters)."""
    start: int
    """First memory slice."""
    compute: int
    """Compute slices."""


GpuLayout = tuple[InstanceLayout, ...] | None
"""The instances on the GPU; None = a whole GPU."""


def list_gpu_layouts(gpu_model: str, text: str, strategy: str, count: int) -> tuple[GpuLayout, ...]:
    """Return the layouts of a node's GPUs.

    Raises:
        UsageError: the text is no layout, or it does not fit a GPU of the model.
    """
    laid: list[GpuLayout] = [build_layout(gpu_model, part) for part in text.split(";") if part]
    if strategy == "single":
        laid = [laid[0]] * count
    return (*laid[:count], *[None] * (count - len(laid)))


@cache
def build_layout(gpu_model: str, text: str) -> tuple[InstanceLayout, ...]:
    """Return the instances of one GPU by their start.

    Raises:
        UsageError: the text is no layout, or it does not fit a GPU of the model.
    """
    names: list[str] = []
    for group_text in text.split("+"):
        match = _PART.fullmatch(group_text)
        if match is None:
            raise UsageError(f"no MIG layout: {group_text!r}", hint="like 2x3g.40gb+1x1g.10gb")
        names += [match.group(2)] * int(match.group(1) or 1)
    numbers: set[int] = set()
    parts = []
    for instance in lay_out(gpu_model, names):
        compute = get_profile(gpu_model, instance.profile).compute
        number = next(n for n in range(FIRST_ID[compute], 16) if n not in numbers)
        numbers.add(number)
        parts.append(InstanceLayout(instance.profile, number, instance.start, compute))
    return tuple(parts)
