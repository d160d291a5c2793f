"""`fallow report`: what was paid, what was wasted and what to do, as a file to forward."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.errors import FallowError, UsageError
from fallow.system.private_files import share_file
from fallow.texts import spell_out
from runtime.cli.options import UNTIL, WINDOW, CommandRun
from runtime.operations.accounting import windows
from runtime.operations.answers import reports
from runtime.operations.answers.reports import FORMATS

if TYPE_CHECKING:
    from runtime.operations.answers.reports import Report


def report(
    run: CommandRun,
    audience: Annotated[str, typer.Argument(help="finance | sre | team", metavar="WHOM")],
    *,
    window: Annotated[str, typer.Option(help=WINDOW.replace("7d", "30d"))] = "30d",
    until: Annotated[str | None, typer.Option(help=UNTIL)] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="html | pdf | md | csv | focus; else by --file"
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="- = stdout; a folder takes a name of its own"),
    ] = None,
    old_format: Annotated[str | None, typer.Option("--format", hidden=True)] = None,
    team: Annotated[str | None, typer.Option(help="the team of the team's report")] = None,
    focus_version: Annotated[str, typer.Option(help="1.2 | 1.0")] = "1.2",
) -> None:
    """Write a report: the same numbers as the dashboard.

    Text (md, csv, focus) goes to stdout without --file; html and pdf to a file here. FOCUS is
    Parquet where FILE ends in .parquet.
    """
    _refuse_old_options(audience, format_, old_format)
    fmt = format_ or run.options.get("output") or _format_of(file)
    reports.check_options(audience=audience, fmt=fmt, team=team, focus_version=focus_version)
    settings, now = run.settings(), run.now()
    window_text = windows.end_window(window, until, now)
    with run.warehouse(settings) as warehouse:
        cluster = run.options.get("cluster")
        span = windows.find_ledger_hours(warehouse, window_text, now, cluster)
        result = reports.produce(
            warehouse,
            settings,
            audience=audience,
            window=span.window,
            fmt=fmt,
            team=team,
            cluster=cluster,
            now=now,
            focus_version=focus_version,
            parquet=fmt == "focus" and str(file).endswith(".parquet"),
        )
    for line in span.notes:
        run.say(line)
    _write_report(run, result, file, fmt)


def _refuse_old_options(audience: str, output: str | None, old_format: str | None) -> None:
    """Refuse `--format FORMAT` and `-o FILE` of before 0.1.0 (`fallow/renamed.csv`)."""
    command_line = ["fallow", "report", audience]
    is_file = output is not None and output not in FORMATS and _is_file_name(output)
    if old_format is not None:
        command_line += ["-o", old_format, *(["--file", str(output)] if is_file else [])]
        raise UsageError("--format is called -o since 0.1.0", hint=shlex.join(command_line))
    if is_file:
        command_line += ["--file", str(output)]
        raise UsageError(
            f"-o {output!r} is a file: since 0.1.0 -o is the format ({' | '.join(FORMATS)}), and "
            "--file names the file",
            hint=shlex.join(command_line),
        )


def _is_file_name(text: str) -> bool:
    return text == "-" or "." in text or "/" in text or Path(text).exists()


def _format_of(file: str | None) -> str:
    endings = {".htm": "html", ".parquet": "focus"}
    ending = Path(file or "").suffix.lower()
    format_name = endings.get(ending, ending.removeprefix("."))
    return format_name if format_name in FORMATS else "html"


def _write_report(run: CommandRun, report: "Report", file: str | None, fmt: str) -> None:
    if file == "-" or (file is None and fmt in ("md", "csv", "focus")):
        if fmt == "pdf" and sys.stdout.isatty():
            raise UsageError("a PDF is not for a terminal", hint="--file FILE, or | into a program")
        try:
            body = report.body
            if report.media_type.startswith("text/"):
                body = spell_out(body.decode(), in_lines=True).encode()
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader of the pipe has ended: stop here
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    path = Path(file or report.name)
    if path.is_dir():
        path /= report.name
    try:
        path.write_bytes(report.body)
        share_file(path)
    except OSError as error:
        raise FallowError(
            f"cannot write {path}: {error.strerror or error}",
            hint="--file FILE names another place, --file - is stdout",
        ) from error
    run.say(f"{report.title}: {path} ({len(report.body):,} bytes)")
    run.say(report.summary)
