"""`fallow import ...`: bring in files, dumps and a Prometheus's history."""

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from collectors.exposition_file import import_exposition
from collectors.kube.dump import import_kubectl
from collectors.openb import EPOCH, import_openb
from collectors.samples_file import import_samples
from fallow.errors import UsageError
from fallow.rejections import Rejection
from fallow.settings.prices import UsdPerHour, check_price_time
from fallow.window import parse_duration, parse_timestamp
from runtime.cli.options import CommandRun
from runtime.operations.ingestion.imports import Importer, count_inventory
from runtime.rendering.finding_tables import show_progress

FILE = typer.Argument(metavar="FILE", help="file to read", show_default=False)


def samples(  # noqa: PLR0917  (options)
    run: CommandRun,
    file: Annotated[Path, FILE],
    columns: Annotated[
        str, typer.Option(help="ours=theirs, comma-separated: workload=pod_ip,ts=time,...")
    ],
    interval: Annotated[str, typer.Option(help="scrape interval, such as 57s")],
    rate: Annotated[
        str | None, typer.Option(metavar="USD", help="price of a GPU-hour in this cluster")
    ] = None,
    valid_from: Annotated[
        str | None, typer.Option(help="from when on --rate holds, such as 2026-11-01")
    ] = None,
    restate: Annotated[
        bool, typer.Option("--restate", help="--rate changes months that have ended, too")
    ] = False,
) -> None:
    """Import any table of samples (Parquet or CSV).

    Without --valid-from a first --rate holds for all hours, a later one for those without a price.
    """
    settings = run.own_settings("fallow import samples")
    pairs = _parse_columns(columns)
    seconds = parse_duration(interval).total_seconds()
    price = _parse_rate(rate)
    holds = _parse_valid_from(valid_from, price, run.now())
    refused: list[Rejection] = []
    batches = import_samples(file, pairs, seconds, settings.cluster, refused)
    importer = Importer(settings, run.now(), is_restating=restate, is_named=_is_named(run))
    summary = importer.import_batches(batches, price, refused, valid_from=holds)
    _report_refused(run, refused, importer)
    run.data([summary], noun="import")


def openb(
    run: CommandRun,
    nodes: Annotated[Path, typer.Option(metavar="FILE", help="node list (CSV)")],
    pods: Annotated[Path, typer.Option(metavar="FILE", help="pod list (CSV)")],
    placement: Annotated[
        Path | None, typer.Option(metavar="FILE", help="which pod stands on which node (CSV)")
    ] = None,
) -> None:
    """Import a cluster in the form of Alibaba's openb traces and print what it holds."""
    settings = run.own_settings("fallow import openb")
    batches = list(import_openb(nodes, pods, placement, settings.cluster))
    summary = Importer(settings, run.now()).import_batches(batches)
    run.say(f"the trace's times are relative: its second 0 is imported as {EPOCH:%Y-%m-%d}")
    run.say(f"{summary['added']} rows stored, {summary['duplicates']} were there already")
    run.data(count_inventory(batches), noun="inventory")


def kubectl(run: CommandRun, file: Annotated[Path, FILE]) -> None:
    """Import a dump of `kubectl get nodes,pods -A -o json`."""
    settings = run.own_settings("fallow import kubectl")
    batches = list(import_kubectl(file, settings.cluster, run.now()))
    summary = Importer(settings, run.now()).import_batches(batches)
    run.say(f"{summary['added']} rows stored, {summary['duplicates']} were there already")
    run.data(count_inventory(batches), noun="inventory")


def exposition(
    run: CommandRun,
    file: Annotated[Path, FILE],
    interval: Annotated[str, typer.Option(help="scrape interval")] = "30s",
) -> None:
    """Import a text in the Prometheus exposition format, with or without timestamps."""
    settings = run.own_settings("fallow import exposition")
    seconds = parse_duration(interval).total_seconds()
    refused: list[Rejection] = []
    batches = import_exposition(file, settings.cluster, run.now(), seconds, refused)
    importer = Importer(settings, run.now(), is_named=_is_named(run))
    summary = importer.import_batches(batches, refused=refused)
    _report_refused(run, refused, importer)
    run.data([summary], noun="import")


def prometheus(
    run: CommandRun,
    url: Annotated[str | None, typer.Option(help="base URL, without /api/v1")] = None,
    since: Annotated[
        str, typer.Option("--window", "--since", help="30d, a time, or START/END")
    ] = "30d",
    step: Annotated[str | None, typer.Option(help="resolution of the queries, such as 60s")] = None,
) -> None:
    """Import the history of a Prometheus; interrupted, it resumes where it stopped."""
    settings = run.own_settings(
        "fallow import prometheus", prometheus__url=url, prometheus__step=step
    )
    with show_progress() as progress:
        importer = Importer(settings, run.now(), is_named=_is_named(run))
        summary = importer.backfill(since, progress)
    run.data([summary], noun="import")


def _is_named(run: CommandRun) -> bool:
    return run.options.get("cluster") is not None


def _report_refused(run: CommandRun, refused: list[Rejection], importer: Importer) -> None:
    """Say what is odd, which rows were left out, and how they are imported if they are right."""
    for note in importer.notes:
        run.say(note)
    if refused:
        count, first = sum(row.count for row in refused), min(refused)
        run.say(
            f"{count} rows refused (old), such as of {first.name}: {first.reason}. "
            "If the time is right, import them from a file of their own"
        )


def _parse_columns(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    wrong = [ours + sign + theirs for ours, sign, theirs in pairs if not (ours and sign and theirs)]
    if wrong or not pairs:
        raise UsageError(
            f"--columns wants ours=theirs pairs, not {', '.join(wrong) or 'nothing'!r}",
            hint="--columns workload=pod_ip,ts=ts,gpu_util_pct=duty,mem_used_bytes=mem",
        )
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def _parse_valid_from(text: str | None, price: Decimal | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    if price is None:
        raise UsageError("--valid-from is of no price", hint="--rate names it")
    try:
        at = check_price_time(parse_timestamp(text, now=now))
    except ValueError as error:
        raise UsageError(f"--valid-from {text}: {error}") from error
    if at > now:
        raise UsageError(f"--valid-from {text} is in the future", hint="a price that holds already")
    return at


def _parse_rate(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        return TypeAdapter[Decimal](UsdPerHour).validate_python(text)
    except ValidationError as error:
        raise UsageError(
            f"--rate {text!r} is not a price: {error.errors()[0]['msg']}",
            hint="USD per GPU-hour, such as 1.861",
        ) from error
