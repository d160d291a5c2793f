"""`fallow config show` and `fallow plugins list`: what is in force and what is installed."""

from collections.abc import Mapping
from typing import Any

import typer

from runtime.cli.frame import Run, command


def register(app: typer.Typer) -> None:
    """Add the commands."""
    config = typer.Typer(help="The settings in force.", no_args_is_help=True)
    app.add_typer(config, name="config")
    command(config, "show")(show)
    plugins = typer.Typer(help="The installed plugins.", no_args_is_help=True)
    app.add_typer(plugins, name="plugins")
    command(plugins, "list")(installed)


def show(run: Run) -> None:
    """Show every setting in force and where its value came from."""
    loaded = run.loaded()
    values = _leaves(loaded.settings.model_dump(mode="json"))
    rows = [
        {"setting": key, "value": _shown(value), "from": loaded.origin.get(key, "default")}
        for key, value in values.items()
    ]
    run.data(rows, noun="settings")


def installed(run: Run) -> None:
    """List the installed collectors, analyzers, executors and price sources."""
    from fallow.plugins import SEAMS, installed  # noqa: PLC0415

    rows = [
        {
            "seam": seam,
            "name": name,
            "class": point.value,
            "package": point.dist.name if point.dist else None,
        }
        for seam in SEAMS
        for name, point in installed(seam).items()
    ]
    run.data(rows, noun="plugins")


def _leaves(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            out |= _leaves(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def _shown(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        import json  # noqa: PLC0415

        return json.dumps(value)
    return value
