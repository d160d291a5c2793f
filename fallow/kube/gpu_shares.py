"""Compute which part of a physical GPU an instance or a partition is, by the name of its profile.

Whoever divides GPUs asks here: extended resources, DRA devices, inventory and actions.
"""

import re
from fractions import Fraction
from functools import cache

from fallow.mig import read_models
from fallow.resources import read_table

WHOLE = Fraction(1)
MIG_SLICES = 7
"""Compute slices of a whole GPU whose profiles no table has."""
_MIG = re.compile(r"(?:^|mig-)(?P<compute>[1-9])g\.?(?P<memory>\d{1,4})gb", re.ASCII)
_PARTITION = re.compile(r"^(?P<mode>[a-z]px)_nps\d$")


@cache
def find_share(profile: str | None) -> Fraction:
    """Return the share of a GPU that `1g.10gb`, `gpu-0-mig-1g10gb-19-0` or `dpx_nps1` names.

    A text that names no instance and no partition is a whole GPU.
    """
    if profile and (match := _MIG.search(profile)):
        compute = int(match["compute"])
        name = f"{compute}g.{match['memory']}gb"
        whole = next(
            (max(p.compute for p in m.values()) for m in read_models().values() if name in m),
            MIG_SLICES,
        )
        return min(Fraction(compute, whole), WHOLE)
    if profile and (match := _PARTITION.match(profile)):
        return Fraction(1, _read_parts().get(match["mode"], 1))
    return WHOLE


def find_memory_share(share: Fraction) -> Fraction:
    """Return the memory of an instance by its compute: a 3g of seven has four slices of eight."""
    if share.denominator != MIG_SLICES:
        return share
    return Fraction(1 << (share.numerator - 1).bit_length(), 8)


@cache
def _read_parts() -> dict[str, int]:
    """Return how many compute partitions each of AMD's modes makes of a GPU."""
    rows = read_table("fallow.kube", "gpu_partitions.csv")
    return {row["mode"]: int(row["parts"]) for row in rows}
