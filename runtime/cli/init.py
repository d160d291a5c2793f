"""`fallow init`: check sources, and write a first settings file."""

import json
import shlex
import sys
from pathlib import Path
from string import Template
from tempfile import NamedTemporaryFile
from typing import Annotated

import msgspec
import typer

from fallow.errors import UsageError
from fallow.resources import read_text
from fallow.settings import Settings, load
from runtime.cli.options import CommandRun
from runtime.operations.doctor import checks

OFF = "# "
EXAMPLE_URL, EXAMPLE_PRICE = "http://prometheus:9090", "2.50"


class FirstAnswers(msgspec.Struct, frozen=True):
    """What a first settings file is made of; "" and None = not there."""

    cluster: str
    prometheus: str
    kubernetes: str | None
    """The kubeconfig's context, "" = its current one; None = the API is not read."""
    usd_per_gpu_hour: str


def init(  # noqa: PLR0917  (options)
    run: CommandRun,
    file: Annotated[Path, typer.Argument(metavar="FILE")] = Path("fallow.yaml"),
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="a Prometheus, without /api/v1")
    ] = None,
    kubernetes: Annotated[
        bool | None, typer.Option("--kubernetes/--no-kubernetes", help="read the Kubernetes API")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="of the kubeconfig [its current one]")
    ] = None,
    usd_per_gpu_hour: Annotated[
        str | None, typer.Option(metavar="USD", help="one price for every GPU [list prices]")
    ] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for what no option says")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="write it though it exists or a check fails")
    ] = False,
) -> int:
    """Write a first settings file, and say what its sources have.

    On a terminal it asks for what no option says. Where a check fails nothing is written.
    """
    if file.is_dir():
        place = shlex.quote(str(file / "fallow.yaml"))
        raise UsageError(f"{file} is a folder", hint=f"name the file: fallow init {place}")
    if file.exists() and not force:
        raise UsageError(f"{file} exists already", hint="--force replaces it, or edit it")
    is_asking = not yes and sys.stdin.isatty()

    def answer(typed: str | None, question: str, default: str = "") -> str:
        if typed is not None or not is_asking:
            return default if typed is None else typed
        text = typer.prompt(question, default=default, show_default=bool(default), err=True)
        return str(text).strip()

    reads_api = kubernetes if kubernetes is not None else context is not None
    if kubernetes is None and context is None and is_asking:
        reads_api = typer.confirm("Read the Kubernetes API?", default=True, err=True)
    answers = FirstAnswers(
        cluster=answer(run.options.get("cluster"), "Name of the cluster", "default"),
        prometheus=answer(prometheus, "URL of a Prometheus (empty = none)"),
        kubernetes=answer(context, "Context of the kubeconfig (empty = current)")
        if reads_api
        else None,
        usd_per_gpu_hour=answer(usd_per_gpu_hour, "USD per GPU-hour (empty = list prices)"),
    )
    rows = checks.check_sources_and_prices(_load_answers(answers), run.now())
    run.data(rows, noun="checks")
    code = checks.exit_code(rows)
    if code and not force:
        run.say(f"{file} is not written, for a check failed: mend it and try again, or add --force")
        return code
    try:
        file.write_text(write_settings(answers), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror or error}",
            hint="name a file in a folder that exists",
        ) from error
    unknown = [row["check"] for row in rows if row["status"] not in {"ok", "off"}]
    run.say(f"{file} is written; fallow up collects, and shows it at http://127.0.0.1:8501")
    if unknown:
        run.say(f"unknown or less exact until mended: {', '.join(dict.fromkeys(unknown))}")
    return code


def _load_answers(answers: FirstAnswers) -> Settings:
    """Return the settings of these answers; an error names the option that it is about."""
    flags = {
        "cluster": answers.cluster,
        "prometheus.url": answers.prometheus or None,
        "kubernetes.enabled": answers.kubernetes is not None,
        "kubernetes.context": answers.kubernetes or None,
        "prices.usd_per_gpu_hour": answers.usd_per_gpu_hour or None,
    }
    with NamedTemporaryFile(suffix=".yaml") as empty:  # in place of the file that is replaced
        return load(file=Path(empty.name), flags=flags).settings


def write_settings(answers: FirstAnswers) -> str:
    """Return the commented settings file of these answers."""
    api, price, url = answers.kubernetes, answers.usd_per_gpu_hour, answers.prometheus
    context = f", context: {_quote(api)}" if api else ""
    return Template(read_text("runtime.cli", "first_settings.yaml")).substitute(
        cluster=_quote(answers.cluster),
        prometheus=f"prometheus: {{url: {_quote(url or EXAMPLE_URL)}}}",
        prometheus_off="" if url else OFF,
        kubernetes=f"kubernetes: {{enabled: true{context}}}",
        kubernetes_off=OFF if api is None else "",
        prices=f"prices: {{usd_per_gpu_hour: {price or EXAMPLE_PRICE}}}",
        prices_off="" if price else OFF,
    )


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
