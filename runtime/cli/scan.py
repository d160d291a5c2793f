"""`fallow scan`: one report from a Prometheus, nothing installed and nothing kept."""

from typing import Annotated

import typer

from runtime.cli.options import CommandRun
from runtime.operations.ingestion.scan import scan_prometheus
from runtime.rendering.finding_tables import show_progress, show_story


def scan(
    run: CommandRun,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="URL", help="base URL, without /api/v1")
    ] = None,
    since: Annotated[
        str, typer.Option("--window", "--since", help="7d, 36h, a time, or START/END")
    ] = "7d",
    step: Annotated[str | None, typer.Option(help="resolution of the queries, such as 60s")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="USD", help="one price per GPU-hour for every GPU")
    ] = None,
) -> None:
    """Read a Prometheus and print where every GPU-hour went. Read-only."""
    settings = run.settings(
        prometheus__url=prometheus, prometheus__step=step, prices__usd_per_gpu_hour=rate
    )
    with show_progress() as progress:
        story = scan_prometheus(settings, since=since, now=run.now(), progress=progress)
    show_story(story, run.output)
