"""Assemble the command line: a table of commands, whose modules load when a command runs.

`fallow --help` reads the table alone; a command's module imports what the command needs.
"""

from importlib import import_module
from itertools import groupby
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from fallow.resources import read_table
from runtime.cli.options import add_group, command, root_options

EPILOG = """\
Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 refused by policy or budget;
4 findings exist (only with --fail-on-findings); 75 temporary, try again.

stdout is data (-o table, json, csv or md), stderr is diagnostics."""


class CommandEntry(NamedTuple):
    """A line of `commands.csv`: a command, a group, or a group's command (two words)."""

    name: str
    module: str
    function: str
    """Of a group: the class of its parser, if it has one of its own."""
    noun: str
    output: str
    """`own`: the command has its own -o."""
    section: str
    summary: str
    """Empty for a group's command: its docstring has it."""


def read_entries() -> dict[str, CommandEntry]:
    """Return the table of commands by name, those of a group after it."""
    return {row["name"]: CommandEntry(**row) for row in read_table("runtime.cli", "commands.csv")}


def read_commands() -> dict[str, CommandEntry]:
    """Return the commands and groups by name, in the order of the help."""
    return {name: entry for name, entry in read_entries().items() if " " not in name}


class CommandTable(TyperGroup):
    """The root group: its commands are names and summaries until one of them runs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.entries = read_commands()
        self.commands = {
            entry.name: TyperCommand(entry.name, callback=None, help=entry.summary)
            for entry in self.entries.values()
        }

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands in their sections, each summary cut to the terminal's width."""
        longest = max(map(len, self.entries))
        limit = formatter.width - 4 - longest
        for section, entries in groupby(self.entries.values(), key=lambda entry: entry.section):
            listed = [
                (e.name.ljust(longest), self.commands[e.name].get_short_help_str(limit))
                for e in entries
            ]
            with formatter.section(section):
                formatter.write_dl(listed)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Find the command that the words name, and load it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self.entries:
            command = load_command(self.entries[name])
        return name, command, rest


def build() -> typer.Typer:
    """Return the command line.

    Plain help: the formatted help costs 0.2 s of imports at every --help.
    """
    app = typer.Typer(
        cls=CommandTable,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root_options(app, EPILOG)
    return app


def build_whole() -> TyperGroup:
    """Return the command line with every command loaded: for reference pages and tests."""
    root = typer.main.get_group(build())
    root.commands = {name: load_command(entry) for name, entry in read_commands().items()}
    return root


def load_command(entry: CommandEntry) -> Any:
    """Return one command, or a group with its commands, from its module."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    root_options(app, EPILOG)  # a module with one command makes a group too
    module = import_module(f"runtime.cli.{entry.module}")
    inner = [e for name, e in read_entries().items() if name.startswith(f"{entry.name} ")]
    group = app
    if inner:
        parser = getattr(module, entry.function) if entry.function else None
        group = add_group(app, entry.name, entry.summary, group_class=parser)
    for each in inner or [entry]:
        wrapped = command(getattr(module, each.function), output=not each.output, noun=each.noun)
        group.command(each.name.rpartition(" ")[2])(wrapped)
    return typer.main.get_group(app).commands[entry.name]
