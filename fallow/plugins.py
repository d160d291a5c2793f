"""Find the installed plugins of each seam through entry points."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fallow.errors import UsageError

SEAMS = ("collectors", "analyzers", "executors", "prices")


@cache
def installed(seam: str) -> dict[str, EntryPoint]:
    """Return the entry points of a seam by name, in name order."""
    found = entry_points(group=f"fallow.{seam}")
    return {point.name: point for point in sorted(found, key=lambda p: p.name)}


def load(seam: str, name: str) -> Any:
    """Import one plugin's class.

    Raises:
        UsageError: nothing of that name is installed.
    """
    found = installed(seam)
    if name not in found:
        raise UsageError(
            f"no {seam.removesuffix('s')} called {name!r}",
            hint=f"installed: {', '.join(found) or 'none'}",
        )
    return found[name].load()
