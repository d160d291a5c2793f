"""Compute where MIG instances fit on a GPU (`mig_profiles.csv`), and what a layout strands.

Positions are memory slices: 8 on the large GPUs, 4 on an A30. A layout's used slices are a bit
mask. Source of the table: `nvidia-smi mig -lgipp` on A100 and H100 GPUs, names from NVIDIA
mig-parted; the starts of H200, B200 and GB200 are inferred from the same profile ids.
"""

from collections.abc import Sequence
from functools import cache

import msgspec

from fallow.errors import UsageError
from fallow.resources import read_table

Layout = tuple[tuple[str, int], ...]
"""Profiles and the slices where they start, by start."""

DOUBLE_MEMORY = 15
"""Profile id of the 1g with twice the memory, which the usual lists of layouts leave out."""


class Profile(msgspec.Struct, frozen=True):
    """One GPU instance profile of one model."""

    name: str
    profile_id: int
    starts: tuple[int, ...]
    size: int
    """Memory slices."""
    compute: int
    """Compute slices; the sum over a GPU is at most that of the 7g (A30: 4g) profile."""
    most: int
    """Instances on one GPU."""

    def mask(self, start: int) -> int:
        """Return the slices of an instance that starts there, as bits."""
        return ((1 << self.size) - 1) << start


@cache
def read_models() -> dict[str, dict[str, Profile]]:
    """Return the profiles of every canonical GPU model that has MIG."""
    by_model: dict[str, dict[str, Profile]] = {}
    for row in read_table("fallow", "mig_profiles.csv"):
        for model, name in zip(row["gpu_models"].split(), row["profiles"].split(), strict=True):
            by_model.setdefault(model, {})[name] = Profile(
                name,
                int(row["profile_id"]),
                tuple(int(start) for start in row["starts"].split()),
                int(row["size"]),
                int(row["compute"]),
                int(row["most"]),
            )
    return by_model


def list_profiles(gpu_model: str) -> dict[str, Profile]:
    """Return the profiles of a model, smallest first.

    Raises:
        UsageError: the model has no MIG.
    """
    try:
        return read_models()[gpu_model]
    except KeyError:
        raise UsageError(
            f"no MIG profiles for GPU model {gpu_model!r}",
            hint=f"known: {', '.join(read_models())}",
        ) from None


def get_profile(gpu_model: str, name: str) -> Profile:
    """Return one profile of a model.

    Raises:
        UsageError: the model has no MIG, or not this profile.
    """
    by_name = list_profiles(gpu_model)
    if name not in by_name:
        raise UsageError(
            f"{gpu_model} has no MIG profile {name!r}", hint=f"it has: {', '.join(by_name)}"
        )
    return by_name[name]


@cache
def open_starts(gpu_model: str, used: int, name: str) -> tuple[int, ...]:
    """Return the starts where one more instance fits; empty when the model lacks the profile."""
    kind = read_models().get(gpu_model, {}).get(name)
    if kind is None:
        return ()
    return tuple(start for start in kind.starts if not used & kind.mask(start))


def find_layout(gpu_model: str, names: Sequence[str]) -> Layout:
    """Return legal places for a GPU's profiles (`3g.40gb`, `2g.20gb`, ...).

    Raises:
        UsageError: an unknown model or profile, or a set that fits in no layout.
    """
    kinds = sorted((get_profile(gpu_model, name) for name in names), key=lambda kind: -kind.size)
    exceeded = [kind.name for kind in kinds if sum(k.name == kind.name for k in kinds) > kind.most]
    placements = None if exceeded else _search(kinds, 0)
    if placements is None:
        raise UsageError(
            f"a {gpu_model} GPU cannot hold {'+'.join(names)}",
            hint="see fallow/mig_profiles.csv for legal starts and sizes",
        )
    return tuple(sorted(placements, key=lambda placement: placement[1]))


def _search(kinds: Sequence[Profile], used: int) -> list[tuple[str, int]] | None:
    if not kinds:
        return []
    first, others = kinds[0], kinds[1:]
    for start in first.starts:
        if not used & first.mask(start):
            placements = _search(others, used | first.mask(start))
            if placements is not None:
                return [(first.name, start), *placements]
    return None


@cache
def list_maximal_layouts(gpu_model: str, *, double_memory: bool = True) -> tuple[Layout, ...]:
    """Return every placed layout to which no instance can be added (`+me` twins left out)."""
    kinds = [
        kind
        for kind in list_profiles(gpu_model).values()
        if not kind.name.endswith("+me") and (double_memory or kind.profile_id != DOUBLE_MEMORY)
    ]
    full: set[Layout] = set()

    def grow(layout: Layout, used: int, lowest: int) -> None:
        opened = [
            (kind, start) for kind in kinds for start in kind.starts if not used & kind.mask(start)
        ]
        if not opened:
            full.add(layout)
        # Instances are added from left to right, so that each layout occurs once.
        for kind, start in opened:
            if start >= lowest:
                grow((*layout, (kind.name, start)), used | kind.mask(start), start + 1)

    grow((), 0, 0)
    return tuple(sorted(full))


@cache
def list_multisets(gpu_model: str, *, double_memory: bool = True) -> tuple[tuple[str, ...], ...]:
    """Return the profiles of the maximal layouts, sorted, each set once."""
    layouts = list_maximal_layouts(gpu_model, double_memory=double_memory)
    return tuple(sorted({tuple(sorted(name for name, _ in layout)) for layout in layouts}))


@cache
def compute_stranded(
    gpu_model: str, used: int, demand: tuple[tuple[str, float], ...] | None = None
) -> float:
    """Return the free memory slices of a GPU that the expected next instance cannot use.

    This is the fragmentation measure (`fragmentation.py`) with slices for GPUs: a profile strands
    the free slices that no further instances of it can occupy. The result is the mean over
    `demand`, pairs of a profile and its weight. Default: the model's profiles with equal weights
    (a `+me` profile fits where the profile without `+me` does and is left out).
    """
    by_name = list_profiles(gpu_model)
    if demand is None:
        demand = tuple((name, 1.0) for name in by_name if not name.endswith("+me"))
    slices = max(kind.size for kind in by_name.values())
    free = slices - (used & ((1 << slices) - 1)).bit_count()
    lost = 0.0
    for name, weight in demand:
        usable = len(open_starts(gpu_model, used, name))
        if name in by_name:
            usable = min(usable, by_name[name].most) * by_name[name].size
        lost += weight * (free - usable)
    return lost / sum(weight for _, weight in demand)
