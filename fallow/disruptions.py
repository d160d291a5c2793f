"""Judge how many pods a disruption budget lets go at once."""

import msgspec


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
