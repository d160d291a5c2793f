"""Find the installed plugins of each protocol through entry points."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from fallow.errors import SettingsError, UsageError

PLUGIN_GROUPS = ("collectors", "analyzers", "executors", "prices")
OWN_PACKAGE = "fallow"
"""The distribution whose plugins have groups of settings of their own."""


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


def is_own(group: str, name: str) -> bool:
    """Return whether an installed plugin is one of Fallow's own."""
    point = find_installed(group).get(name)
    return point is not None and point.dist is not None and point.dist.name == OWN_PACKAGE


def list_configured(group: str, sections: Mapping[str, Any]) -> list[str]:
    """Return the other packages' plugins of a protocol that the settings `plugins` name."""
    return [name for name in find_installed(group) if name in sections and not is_own(group, name)]


def check_names(sections: Mapping[str, Any]) -> None:
    """Refuse a section of the settings `plugins` that is of no installed plugin.

    Raises:
        SettingsError: it names none of another package.
    """
    legal = {n for g in PLUGIN_GROUPS for n in find_installed(g) if not is_own(g, n)}
    for name in sections:
        if name not in legal:
            raise SettingsError(
                f"plugins.{name} is no plugin of another package that is installed",
                hint=f"installed: {', '.join(sorted(legal)) or 'none'} (fallow plugins list)",
            )


def build(
    group: str, name: str, sections: Mapping[str, Mapping[str, Any]], **arguments: Any
) -> Any:
    """Return an instance of another package's plugin.

    A class with `Settings` (a pydantic model) takes its section of `plugins` as the first argument.

    Raises:
        UsageError: no plugin of that name is installed.
        SettingsError: the section has values that its `Settings` refuses, or the class has none.
    """
    plugin, section = load(group, name), sections.get(name) or {}
    model = getattr(plugin, "Settings", None)
    if model is None:
        if section:
            raise SettingsError(
                f"plugins.{name} has settings, and the {group.removesuffix('s')} takes none",
                hint=f"plugins: {{{name}: {{}}}}",
            )
        return plugin(**arguments)
    try:
        return plugin(model(**section), **arguments)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(("plugins", name, *map(str, first["loc"])))
        raise SettingsError(
            f"setting {place!r}: {first['msg']}", hint=f"legal: {', '.join(model.model_fields)}"
        ) from None
