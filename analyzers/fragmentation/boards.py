"""Boards in MIG mode: what is free of them, and how much of that the next instance cannot use.

The measure with memory slices for GPUs. As a board is cut now, a profile can use the free
instances of that profile, and the rest of its free slices is stranded. Cut again around the
instances in use, wherever they lie, it could use every legal start that is left: the difference
is what another layout would give back.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from analyzers.fragmentation.mix import Demand
from analyzers.fragmentation.picture import model_name
from fallow import mig

_FREE = 1e-6


class Board(msgspec.Struct, frozen=True):
    """One GPU in MIG mode, in memory slices."""

    node: str
    parent: str
    model: str
    held: tuple[str, ...]
    free: tuple[str, ...]
    slices: int
    free_slices: int
    stranded: float
    """Free slices that the expected next instance cannot use as the board is cut."""
    stranded_recut: float
    """The same if what nobody holds were cut again."""
    layout: tuple[str, ...]
    """A full set of profiles that keeps those held and strands the least."""


def boards(rows: Sequence[dict[str, Any]], demand: Demand) -> list[Board]:
    """Return the boards whose model and profiles are known, of MIG rows of `devices.sql`."""
    of: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        of[row["node"], row["parent"]].append(row)
    found = []
    for (node, parent), instances in sorted(of.items()):
        model = _variant(model_name(instances[0]["model"]), [i["profile"] for i in instances])
        if model is None:
            continue
        held = sorted(i["profile"] for i in instances if i["held"] > _FREE)
        free = sorted(i["profile"] for i in instances if i["held"] <= _FREE)
        found.append(_board((node, parent, model), held, free, demand))
    return found


def _variant(model: str, names: Sequence[str | None]) -> str | None:
    """Return the model whose table has all the profiles; boards differ by memory."""
    known = mig.models()
    fits = [m for m in known if m.startswith(model) and all(n in known[m] for n in names)]
    return fits[0] if model and fits else None


def _board(where: tuple[str, str, str], held: list[str], free: list[str], demand: Demand) -> Board:
    model = where[2]
    kinds = mig.profiles(model)
    slices = max(kind.size for kind in kinds.values())
    left = slices - sum(kinds[name].size for name in held)
    wanted = tuple((name, weight) for name, weight in demand.profiles if name in kinds)
    if not wanted:
        wanted = tuple((name, 1.0) for name in kinds if not name.endswith("+me"))
    total = sum(weight for _, weight in wanted)
    lost = sum(w * (left - free.count(name) * kinds[name].size) for name, w in wanted) / total
    best, layout = _recut(model, tuple(held), wanted)
    return Board(*where, tuple(held), tuple(free), slices, left, lost, min(lost, best), layout)


def _recut(
    model: str, held: tuple[str, ...], wanted: tuple[tuple[str, float], ...]
) -> tuple[float, tuple[str, ...]]:
    """Try every full layout that holds what is in use; starts are not told by exporters."""
    kinds = mig.profiles(model)
    best: tuple[float, tuple[str, ...]] | None = None
    for layout in mig.maximal_layouts(model):
        names = [name for name, _ in layout]
        if Counter(held) - Counter(names):
            continue
        keep = list(held)
        taken = 0
        for name, start in layout:
            if name in keep:
                keep.remove(name)
                taken |= kinds[name].mask(start)
        key = mig.stranded(model, taken, wanted), tuple(sorted(names))
        best = key if best is None else min(best, key)
    return best or (float("inf"), held)
