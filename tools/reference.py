"""Generate the reference pages of `docs/` from the settings and the command line.

The table of kinds in `docs/actions.md`, between its two marks, is written from the executors.

    python -m tools.reference docs

A test keeps the pages equal to the generated ones.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from actions import gates
from actions.policy import keys
from actions.reclaim import reference_table
from fallow.resources import read_table
from fallow.settings import Settings
from runtime.cli.app import build_whole
from runtime.cli.options import GLOBALS
from runtime.service.metrics import list_metrics
from tools.pages import render_pages_table

SETTINGS_HEAD = """\
# Settings

Later wins: defaults, then `fallow.yaml` (or the file named by `--config` or `FALLOW_CONFIG`), then
`FALLOW_*` variables, then flags. `fallow config show` prints what is in force and from where. An
unknown key is an error that names the legal ones. Durations are written `30s`, `5m`, `1h30m`, `7d`.
A demo's home has its own file, `demo.yaml`: neither `./fallow.yaml` nor variables apply to it.

A variable is the key in capitals with two underscores for the dot: `FALLOW_IDLE__THRESHOLD=0.02`.
Other variables:

| variable | meaning |
|---|---|
| `FALLOW_CONFIG` | the settings file, in place of `./fallow.yaml` |
| `FALLOW_DEBUG` | `1`: tracebacks and debug logs, as `--debug` |
| `XDG_DATA_HOME` | the folder of `home` unless `home` is set; `~/.local/share` |
| `NO_COLOR` | no colours on a terminal |
| `COLUMNS` | characters of a line: a table leaves out the columns that do not fit |
| `NODE_NAME` | the node of the GPUs that NVML reads, unless `nvml.node` names one |
| `KUBECONFIG` | clusters and contexts; in a pod its own account |
| `AWS_*` | credentials and region where `s3` sections and `prices.aws_regions` name none |
| `RAY_AUTH_TOKEN`, `RAY_USE_TLS` | Ray's own: the token and TLS of its head (extra `ray`) |
| `OTEL_EXPORTER_OTLP_ENDPOINT` | destination of the service's spans (extra `otel`) |
| `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | the same, for spans only |
"""
CLI_HEAD = """\
# Command line

stdout is data, in the shape that `-o table|json|csv|md` names; stderr is diagnostics. JSON names
its schema (`{"schema": "fallow.findings/v1", ...}`). An error is one line with the failed
operation, its object and the legal values, and a hint; `--debug` or `FALLOW_DEBUG=1` adds the
traceback.

| exit code | meaning |
|--:|---|
| 0 | done |
| 1 | failed |
| 2 | usage or configuration |
| 3 | refused by a policy or a budget |
| 4 | findings exist (only with `--fail-on-findings`) |
| 75 | temporary: try again later |
| 130 | interrupted |
"""

METRICS_HEAD = """\
# Metrics

Metrics of `fallow up` at `/metrics` (`service.listen`, 127.0.0.1:9410 unless set). No
workload, pod, namespace or team is a label: details are in the warehouse. A process exports the
metrics of its roles ([the service](service.md)); `all` in the column below means every process.

Alerts: `deploy/prometheus/rules.yaml`, with the [runbook](runbook.md). Grafana dashboard:
`deploy/grafana/fallow.json`. Beside cost it shows utilisation, power, temperature and NVLink
traffic of the GPUs, where dcgm-exporter's metrics are in the same Prometheus. Histograms have
`_bucket`, `_count` and `_sum`.
"""

FIGURES_HEAD = """\
# Figures

Each figure has one function, which pages, commands, reports, MCP, HTTP and Python read.
`command`: where the JSON of a command has it.

| figure | unit | what it is | function | command | metric | from |
|---|---|---|---|---|---|---|
"""

KINDS = ("<!-- kinds -->", "<!-- end of kinds -->")


def render_settings() -> str:
    """Return `docs/settings.md`."""
    lines = [SETTINGS_HEAD]
    sections: dict[str, list[str]] = {}
    for key, field, default in _list_fields(Settings, ""):
        section = key.rpartition(".")[0]
        description = field.description or ""
        sections.setdefault(section, []).append(
            f"| `{key}` | {_format_default(default)} | {description} |"
        )
    for section, rows in sections.items():
        model = _find_model(section)
        meaning = (model.__doc__ or "").strip().splitlines()[0]
        lines += [f"## {section or 'top level'}", "", meaning, ""]
        lines += ["| key | default | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def render_cli() -> str:
    """Return `docs/cli.md`."""
    root: Any = build_whole()
    shared = set(GLOBALS)
    lines = [
        CLI_HEAD,
        "## Options of every command",
        "",
        *_list_options(root, shared, keep=True),
        "",
    ]
    for words, command in _list_commands(root, ()):
        lines += [f"## fallow {' '.join(words)}", "", _format_prose(command.help), ""]
        arguments = [p.display_name_raw for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(["fallow", *words, *arguments, "[OPTIONS]"])
        lines += ["```", usage, "```", ""]
        lines += [*_list_options(command, shared, keep=False), ""]
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip() + "\n"


def render_actions(page: str) -> str:
    """Return `docs/actions.md` with the table of kinds as the executors have it."""
    head, _, rest = page.partition(KINDS[0])
    _, _, tail = rest.partition(KINDS[1])
    return f"{head}{KINDS[0]}\n{reference_table.render_table()}\n{KINDS[1]}{tail}"


def render_policies(written: str) -> str:
    """Return `docs/policies.md` with the tables of gates and keys as the code has them."""
    return _replace_tables(written, {"gates": gates.render_table(), "keys": keys.render_table()})


def render_dashboards(written: str) -> str:
    """Return `docs/dashboards.md` with the tables of pages as `dashboards` has them."""
    return _replace_tables(written, {"pages": render_pages_table()})


def _replace_tables(written: str, tables: Mapping[str, str]) -> str:
    for name, table in tables.items():
        head, tail = f"<!-- {name}: written from the code -->", f"<!-- end of {name} -->"
        before, _, rest = written.partition(head)
        written = f"{before}{head}\n{table}{tail}{rest.partition(tail)[2]}"
    return written


def render_metrics() -> str:
    """Return `docs/metrics.md`."""
    lines = [METRICS_HEAD, "| metric | kind | labels | role | meaning |", "|---|---|---|---|---|"]
    for metric in list_metrics():
        (name, *_) = metric.exported() if metric.kind == "counter" else (metric.name,)
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.role} | {metric.meaning} |")
    return "\n".join(lines) + "\n"


def render_figures() -> str:
    """Return `docs/figures.md`."""
    lines = []
    for row in read_table("dashboards", "figures.csv"):
        function = row["function"] and f"{row['function']}: {row['value']}"
        names = (function, row["command"], row["metric"])
        marked = [name and f"`{name}`" for name in names]
        cells = (row["label"], row["unit"], row["meaning"], *marked, row["source"])
        lines.append(f"| {' | '.join(cells)} |")
    return FIGURES_HEAD + "\n".join(lines) + "\n"


def _list_fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo, Any]]:
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=False)
        if isinstance(default, BaseModel):
            yield from _list_fields(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field, _simplify(model, name, field)


def _simplify(model: type[BaseModel], name: str, field: FieldInfo) -> Any:
    if name == "home":
        return "`$XDG_DATA_HOME/fallow`"
    if field.default_factory is not None:
        return field.get_default(call_default_factory=True, validated_data={})
    return model().model_dump(mode="json")[name]


def _find_model(section: str) -> type[BaseModel]:
    model: BaseModel = Settings()
    for name in filter(None, section.split(".")):
        model = getattr(model, name)
    return type(model)


def _format_default(value: Any) -> str:
    if isinstance(value, str) and value.startswith("`"):
        return value
    if value is None or value in ("", [], {}):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _list_commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _list_commands(command, (*words, name))
        else:
            yield (*words, name), command


def _list_options(command: Any, shared: set[str], *, keep: bool) -> list[str]:
    rows = []
    for parameter in command.params:
        own = parameter.param_type_name == "option" and not parameter.name.endswith("_completion")
        own = own and not parameter.hidden
        if not own or parameter.name in ("help", "version") or (parameter.name in shared) != keep:
            continue
        default = parameter.default
        default_text = "" if default in (None, False, "") else f"`{default}`"
        names = ", ".join(f"`{name}`" for name in parameter.opts)
        needed = " (required)" if parameter.required else ""
        rows.append(f"| {names}{needed} | {default_text} | {parameter.help or ''} |")
    if not rows:
        return []
    return ["| option | default | meaning |", "|---|---|---|", *rows]


def _format_prose(text: str | None) -> str:
    return " ".join((text or "").split())


def main(folder: str) -> None:
    """Write the pages into a folder."""
    pages = {"settings.md": render_settings(), "cli.md": render_cli()}
    for name, page_of in (("policies.md", render_policies), ("dashboards.md", render_dashboards)):
        pages[name] = page_of(Path(folder, name).read_text(encoding="utf-8"))
    pages |= {"metrics.md": render_metrics(), "figures.md": render_figures()}
    for name, page in pages.items():
        Path(folder, name).write_text(page, encoding="utf-8")
    actions = Path(folder, "actions.md")
    actions.write_text(render_actions(actions.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
