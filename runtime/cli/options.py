"""Define what every command shares: global options, settings in force, the open warehouse.

Global options may be before or after the command's name; the later one wins.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.models import ArgumentInfo

from fallow import __version__
from fallow.demo_marker import read_now, require_own_home
from fallow.errors import EmptyWarehouseError, UsageError
from fallow.texts import spell_out
from runtime.service.stop_signals import interrupt_on_signals

if TYPE_CHECKING:
    from fallow.settings import Loaded, Settings
    from warehouse.lake import Warehouse


WINDOW = "7d (until the newest hour in the ledger), month, last-month, or START/END"
UNTIL = "now, or a time: where --window 7d ends instead"
TEAM = "only this team"


class Output(StrEnum):
    """How data is written on stdout."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


GLOBALS: dict[str, Any] = {
    "config": Annotated[
        Path | None, typer.Option("--config", help="settings file [./fallow.yaml]", metavar="FILE")
    ],
    "cluster": Annotated[
        str | None, typer.Option("--cluster", help="name of the cluster", metavar="NAME")
    ],
    "home": Annotated[
        Path | None, typer.Option("--home", help="folder of the warehouse", metavar="DIR")
    ],
    "output": Annotated[Output | None, typer.Option("--output", "-o", help="shape of the data")],
    "debug": Annotated[bool, typer.Option("--debug", help="show tracebacks and debug logs")],
}


class CommandRun:
    """One run of one command: its global options, and the objects that depend on them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.output: Output = options.get("output") or Output.table
        self.debug = bool(options.get("debug"))
        self.resources = ExitStack()
        """What is closed when the command ends."""
        self._home: Path | None = None

    def loaded(self, **flags: Any) -> "Loaded":
        """Return the settings in force; `flags` are dotted keys with `__` for the dot.

        Raises:
            SettingsError: the file, the environment or a flag has a value that is not legal.
        """
        from fallow.settings import load  # noqa: PLC0415  (0.3 s that --help need not pay)

        dotted = {name.replace("__", "."): value for name, value in flags.items()}
        merged = {"cluster": self.options.get("cluster"), "home": self.options.get("home")}
        loaded = load(file=self.options.get("config"), flags={**merged, **dotted})
        self._home = loaded.settings.home
        return loaded

    def settings(self, **flags: Any) -> "Settings":
        """Return the settings in force."""
        return self.loaded(**flags).settings

    def own_settings(self, command: str, **flags: Any) -> "Settings":
        """Return the settings in force for a command that is about a real fleet only.

        Raises:
            UsageError: they are those of a demo.
        """
        settings = self.settings(**flags)
        require_own_home(settings.home, command)
        return settings

    def warehouse(
        self, settings: "Settings", *, write: bool = False
    ) -> "AbstractContextManager[Warehouse]":
        """Open the warehouse of these settings.

        Raises:
            UsageError: it is to be read, and has no data of the cluster that an option names.
        """
        from warehouse.coverage import require_cluster  # noqa: PLC0415
        from warehouse.lake import Warehouse  # noqa: PLC0415  (the engine loads in 0.3 s)

        opened = Warehouse.open(settings, write=write, clock=self.now)
        if not write:
            self.resources.enter_context(interrupt_on_signals(opened.interrupt))
            try:
                require_cluster(opened, self.options.get("cluster"))
            except BaseException:
                opened.close()
                raise
        return opened

    def now(self) -> "datetime":
        """Return the current time, UTC; where the settings are a demo's, its fleet's time."""
        return read_now(self._home) if self._home else datetime.now(UTC)

    def data(self, rows: Any, **how: Any) -> None:
        """Write rows on stdout in the requested format (`runtime.rendering.tables.write`)."""
        from runtime.rendering.tables import write  # noqa: PLC0415

        write(rows, self.output, **how)

    def text(self, text: str) -> None:
        """Write finished text on stdout."""
        from runtime.rendering.tables import write_text  # noqa: PLC0415

        write_text(text.rstrip("\n") + "\n")

    def say(self, text: str) -> None:
        """Write a line of diagnostics on stderr."""
        typer.echo(spell_out(text, in_lines=True), err=True)


def command(
    function: Callable[..., Any], *, output: bool = True, noun: str = ""
) -> Callable[..., Any]:
    """Return `function(run, ...)` as a command that also takes the global options.

    `output` False: the command has its own -o. `noun`: what the command lists; in a warehouse
    without telemetry it prints an empty list of these, and on stderr that there is none.
    """

    @functools.wraps(function)
    def call(ctx: typer.Context, **values: Any) -> Any:
        _refuse_empty(ctx, values, parameters)
        here = {key: values.pop(key, None) for key in GLOBALS if output or key != "output"}
        outer = ctx.find_root().obj or {}
        run = CommandRun({key: here.get(key) or outer.get(key) for key in GLOBALS})
        from runtime.cli.logs import configure  # noqa: PLC0415

        configure(debug=run.debug)
        try:
            with run.resources:
                return function(run, **values)
        except EmptyWarehouseError:
            if noun and run.output is not Output.table:
                run.data([], noun=noun)
            raise

    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
        *(p for p in _list_global_parameters() if output or p.name != "output"),
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    call.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    return call


def _refuse_empty(
    ctx: typer.Context, values: Mapping[str, Any], parameters: Sequence[inspect.Parameter]
) -> None:
    """Refuse an argument or option that is an empty text: a script's variable was not set."""
    for parameter in parameters:
        value = values.get(parameter.name)
        if value != parameter.default and isinstance(value, str) and not value.strip():
            (info,) = parameter.annotation.__metadata__
            option = f"--{parameter.name.rstrip('_').replace('_', '-')}"
            name = info.metavar if isinstance(info, ArgumentInfo) else option
            raise UsageError(
                f"{(name or '').strip('[]')} is empty",
                hint=f"{info.help}: {ctx.command_path} --help",
            )


def add_group(
    app: typer.Typer, name: str, text: str, *, group_class: type[TyperGroup] | None = None
) -> typer.Typer:
    """Add a group of commands; without one of them it prints its help."""

    def print_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    group = typer.Typer(cls=group_class, help=text)
    group.callback(invoke_without_command=True, help=text)(print_help)
    app.add_typer(group, name=name)
    return group


def root_options(app: typer.Typer, epilog: str) -> None:
    """Accept the global options before the command's name too."""

    def remember(ctx: typer.Context, **values: Any) -> None:
        if values.pop("version"):
            typer.echo(f"fallow {__version__}")
            raise typer.Exit
        ctx.obj = values
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())
            raise typer.Exit

    version = Annotated[bool, typer.Option("--version", help="print the version")]
    remember.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *_list_global_parameters(),
            inspect.Parameter(
                "version", inspect.Parameter.KEYWORD_ONLY, annotation=version, default=False
            ),
        ]
    )
    remember.__doc__ = "Find the GPU-hours that are paid for and not used."
    app.callback(invoke_without_command=True, epilog=epilog)(remember)


def _list_global_parameters() -> list[inspect.Parameter]:
    defaults: dict[str, Any] = {"debug": False}
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=defaults.get(name)
        )
        for name, kind in GLOBALS.items()
    ]
