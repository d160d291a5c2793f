"""Find the installed plugins of each protocol through entry points."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fallow.errors import UsageError

PLUGIN_GROUPS = ("collectors", "analyzers", "executors", "prices")


@cache
def find_installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a protocol by name, in name order."""
    points = entry_points(group=f"fallow.{group}")
    return {point.name: point for point in sorted(points, key=lambda p: p.name)}


def load(group: str, name: str) -> Any:
    """Import one plugin's class.

    Raises:
        UsageError: no plugin of that name is installed.
    """
    points = find_installed(group)
    if name not in points:
        raise UsageError(
            f"no {group.removesuffix('s')} called {name!r}",
            hint=f"installed: {', '.join(points) or 'none'}",
        )
    return points[name].load()
