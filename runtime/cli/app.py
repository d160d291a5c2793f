"""The command line put together: one module per group of commands."""

import typer

from runtime.cli import (
    act,
    analyze,
    baseline,
    collect,
    config,
    dashboard,
    demo,
    imports,
    plan,
    policy,
    report,
    saved,
    scan,
    schedule,
    simulate,
    spend,
    warehouse,
)
from runtime.cli.options import root_options

EPILOG = """\
Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 refused by policy or budget;
4 findings exist (only with --fail-on-findings); 75 temporary, try again.

stdout is data (-o table, json, csv or md), stderr is talk."""


def build() -> typer.Typer:
    """Return the whole command line.

    Plain help: the boxed one costs 0.2 s of imports on every --help.
    """
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=True)
    root_options(app, EPILOG)
    for group in (
        demo,
        simulate,
        scan,
        imports,
        collect,
        spend,
        analyze,
        baseline,
        policy,
        plan,
        act,
        saved,
        report,
        schedule,
        dashboard,
        warehouse,
        config,
    ):
        group.register(app)
    return app
