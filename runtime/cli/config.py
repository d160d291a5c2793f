"""`fallow config show` and `fallow plugins list`: what is in force and what is installed."""

import json
from collections.abc import Mapping
from typing import Any

from fallow.plugins import PLUGIN_GROUPS, find_installed
from runtime.cli.options import CommandRun


def show(run: CommandRun) -> None:
    """Show every setting in force and where its value came from."""
    loaded = run.loaded()
    values = _flatten(loaded.settings.model_dump(mode="json"))
    rows = [
        {"setting": key, "value": _format_cell(value), "from": loaded.origin.get(key, "default")}
        for key, value in values.items()
    ]
    run.data(rows, noun="settings")


def list_plugins(run: CommandRun) -> None:
    """List the installed collectors, analyzers, executors and price sources."""
    rows = [
        {
            "seam": seam,
            "name": name,
            "class": point.value,
            "package": point.dist.name if point.dist else None,
        }
        for seam in PLUGIN_GROUPS
        for name, point in find_installed(seam).items()
    ]
    run.data(rows, noun="plugins")


def _flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            out |= _flatten(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def _format_cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return value
