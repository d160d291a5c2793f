"""Where MIG instances may lie on a board (`mig_profiles.csv`), and what a layout strands.

The axis is memory slices: 8 on the large boards, 4 on an A30; a layout's used slices are a bit
mask. Source of the table: `nvidia-smi mig -lgipp` on A100 and H100 boards, names from NVIDIA
mig-parted; the starts of H200, B200 and GB200 are inferred from the same profile ids.
"""

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from fallow.errors import UsageError
from simulator.cluster.scheduler.requests import WHOLE, Instance, MigBoard


class Profile(msgspec.Struct, frozen=True):
    """One GPU instance profile of one model."""

    name: str
    profile_id: int
    starts: tuple[int, ...]
    size: int
    """Memory slices."""
    compute: int
    """Compute slices; the sum over a board is at most the 7g (A30: 4g) profile's."""
    most: int
    """Instances on one board."""

    def mask(self, start: int) -> int:
        """Return the slices of an instance that starts there, as bits."""
        return ((1 << self.size) - 1) << start


@cache
def models() -> dict[str, dict[str, Profile]]:
    """Return the profiles of every canonical GPU model that knows MIG."""
    text = files("simulator.cluster.scheduler").joinpath("mig_profiles.csv").read_text("utf-8")
    known: dict[str, dict[str, Profile]] = {}
    for row in csv.DictReader(text.splitlines()):
        for model, name in zip(row["gpu_models"].split(), row["profiles"].split(), strict=True):
            known.setdefault(model, {})[name] = Profile(
                name,
                int(row["profile_id"]),
                tuple(int(start) for start in row["starts"].split()),
                int(row["size"]),
                int(row["compute"]),
                int(row["most"]),
            )
    return known


def profiles(gpu_model: str) -> dict[str, Profile]:
    """Return the profiles of a model, smallest first.

    Raises:
        UsageError: the model knows no MIG.
    """
    try:
        return models()[gpu_model]
    except KeyError:
        raise UsageError(
            f"no MIG profiles for GPU model {gpu_model!r}", hint=f"known: {', '.join(models())}"
        ) from None


def profile(gpu_model: str, name: str) -> Profile:
    """Return one profile of a model.

    Raises:
        UsageError: the model knows no MIG, or not this profile.
    """
    known = profiles(gpu_model)
    if name not in known:
        raise UsageError(
            f"{gpu_model} has no MIG profile {name!r}", hint=f"it has: {', '.join(known)}"
        )
    return known[name]


def used(gpu_model: str, instances: Iterable[Instance]) -> int:
    """Return the memory slices that instances lie on, as bits.

    Raises:
        UsageError: a start that is not legal, slices used twice, or too many of a profile.
    """
    taken = 0
    counts: dict[str, int] = {}
    for instance in instances:
        kind = profile(gpu_model, instance.profile)
        if instance.start not in kind.starts:
            starts = ", ".join(map(str, kind.starts))
            raise UsageError(
                f"{instance.profile} cannot start at slice {instance.start} of a {gpu_model}",
                hint=f"legal starts: {starts}",
            )
        counts[kind.name] = counts.get(kind.name, 0) + 1
        if taken & kind.mask(instance.start) or counts[kind.name] > kind.most:
            raise UsageError(f"{instance.profile} at {instance.start} has no room on its board")
        taken |= kind.mask(instance.start)
    return taken


@cache
def open_starts(gpu_model: str, taken: int, name: str) -> tuple[int, ...]:
    """Return the starts where one more instance may lie; empty when the model lacks the profile."""
    kind = models().get(gpu_model, {}).get(name)
    if kind is None:
        return ()
    return tuple(start for start in kind.starts if not taken & kind.mask(start))


def room(gpu_model: str, board: MigBoard, name: str) -> tuple[int, ...]:
    """Return the starts at which a board can serve one more instance of a profile."""
    if board.fixed:
        return tuple(i.start for i in board.instances if i.profile == name and not i.held)
    kind = models().get(gpu_model, {}).get(name)
    held = sum(i.profile == name for i in board.instances)
    if kind is None or held >= kind.most:
        return ()
    starts = open_starts(gpu_model, used(gpu_model, board.instances), name)
    return starts[: kind.most - held] if kind.most < len(kind.starts) else starts


def spare(gpu_model: str, board: MigBoard) -> int:
    """Return the milli-GPU, by memory slices, that no pod holds and some pod could."""
    kinds = profiles(gpu_model)
    slices = max(kind.size for kind in kinds.values())
    if board.fixed:
        free = sum(kinds[i.profile].size for i in board.instances if not i.held)
    else:
        free = slices - used(gpu_model, board.instances).bit_count()
    return free * WHOLE // slices


def hold(board: MigBoard, instance: Instance) -> MigBoard:
    """Return the board with an instance held, cut first where the board is not fixed."""
    rest = tuple(i for i in board.instances if i.start != instance.start)
    held = Instance(instance.profile, instance.start, held=True)
    return MigBoard(tuple(sorted((*rest, held), key=lambda i: i.start)), board.fixed)


def give_back(board: MigBoard, instance: Instance) -> MigBoard:
    """Return the board without that holder; where it is not fixed, without the instance."""
    rest = tuple(i for i in board.instances if i.start != instance.start)
    kept = (Instance(instance.profile, instance.start),) if board.fixed else ()
    return MigBoard(tuple(sorted((*rest, *kept), key=lambda i: i.start)), board.fixed)


def lay_out(gpu_model: str, names: Sequence[str]) -> tuple[Instance, ...]:
    """Return legal places for a board's profiles (`3g.40gb`, `2g.20gb`, ...), by start.

    Raises:
        UsageError: an unknown model or profile, or a set that no layout holds.
    """
    kinds = sorted((profile(gpu_model, name) for name in names), key=lambda kind: -kind.size)
    over = [kind.name for kind in kinds if sum(k.name == kind.name for k in kinds) > kind.most]
    found = None if over else _search(kinds, 0)
    if found is None:
        raise UsageError(
            f"a {gpu_model} board cannot hold {'+'.join(names)}",
            hint="see simulator/cluster/scheduler/mig_profiles.csv for legal starts and sizes",
        )
    return tuple(sorted(found, key=lambda instance: instance.start))


def _search(kinds: Sequence[Profile], taken: int) -> list[Instance] | None:
    if not kinds:
        return []
    first, rest = kinds[0], kinds[1:]
    for start in first.starts:
        if not taken & first.mask(start):
            found = _search(rest, taken | first.mask(start))
            if found is not None:
                return [Instance(first.name, start), *found]
    return None


@cache
def stranded(gpu_model: str, taken: int) -> float:
    """Return the free memory slices of a board that the expected next instance cannot use.

    The fragmentation measure (`fragmentation.py`) with slices for GPUs: a profile strands the
    free slices that no further instances of it could lie on; the mean over the model's profiles
    (a `+me` twin lies where its namesake does and is left out).
    """
    kinds = [kind for kind in profiles(gpu_model).values() if not kind.name.endswith("+me")]
    slices = max(kind.size for kind in kinds)
    free = slices - (taken & ((1 << slices) - 1)).bit_count()
    lost = 0
    for kind in kinds:
        usable = min(len(open_starts(gpu_model, taken, kind.name)), kind.most) * kind.size
        lost += free - usable
    return lost / len(kinds)
