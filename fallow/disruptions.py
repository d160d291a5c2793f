"""Judge how many pods a disruption budget lets go at once."""

from collections.abc import Mapping

import msgspec


def count_allowed(status: Mapping[str, object], generation: int | None) -> int | None:
    """Return how many disruptions a budget's status allows; None = it does not count its pods.

    Such a status is of an earlier spec, or of no pods.
    Source: kubernetes, pkg/registry/core/pod/storage/eviction.go (checkAndDecrement).
    """
    seen, pods = _read_count(status, "observedGeneration"), _read_count(status, "expectedPods")
    if (seen or 0) < (generation or 0) or not pods:
        return None
    return _read_count(status, "disruptionsAllowed")


def _read_count(status: Mapping[str, object], name: str) -> int | None:
    """Return a number of a status, 0 where it has none; None = it is no number."""
    count = status.get(name) or 0
    return count if isinstance(count, int) else None


class CoveringBudget(msgspec.Struct, frozen=True):
    """A disruption budget, and how many of the pods that it covers would go."""

    name: str
    """Its namespace and name: `ml/keep`."""
    allowed: int | None
    """How many it lets go now; None = not known: its controller has not counted."""
    pods: int = 1

    @property
    def excess(self) -> str:
        """Why so many pods must not go, a colon, and what that means; empty = they may."""
        if self.allowed is None:
            return f"PDB {self.name}: how many disruptions it allows is not known"
        if self.allowed < 1:
            return f"held by PDB {self.name}: it allows no disruption"
        if self.pods > self.allowed:
            return f"held by PDB {self.name}: it allows {self.allowed} of {self.pods} disruptions"
        return ""
