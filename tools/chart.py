"""Generate the Helm chart's parts from the code: schema, roles, alerts, dashboard, counters.

    python -m tools.chart deploy/helm/fallow

Charts cannot read files outside their own folder, so these files are copies inside it. A test keeps
them equal to the generated ones.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from actions import executors
from actions.rights import CANARY, OWN, build_rules, list_cluster_scoped, list_roles
from fallow.protocols import Right
from fallow.resources import read_table
from fallow.settings import Settings
from runtime.operations.acting.access_review import list_reader_rights

HEAD = "# Written by `python -m tools.chart deploy/helm/fallow` from what the code declares.\n"
ACTS = "fallow-act-"
SECRET = "password"  # noqa: S105  (what JSON Schema calls the format of a secret)
MANAGED = ("home",)
"""Settings that the chart sets itself, because it decides the mount paths."""
VALUES = "values.schema.json"


def build_schema(own: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the chart's values: `own` ones, and `settings` from pydantic.

    No secret is legal in `settings`, because it would be in a ConfigMap. Secrets are environment
    variables.
    """
    settings = Settings.model_json_schema()
    defs = settings.pop("$defs")
    for name in MANAGED:
        del settings["properties"][name]
    while secret_refs := {
        f"#/$defs/{name}" for name, definition in defs.items() if _needs_secret(definition)
    }:
        for definition in (settings, *defs.values()):
            _drop(definition, secret_refs)
        defs = {
            name: definition
            for name, definition in defs.items()
            if f"#/$defs/{name}" not in secret_refs
        }
    for definition in (settings, *defs.values()):
        _drop(definition, frozenset())
        _simplify(definition)
    whole = json.loads(json.dumps(own))
    whole["properties"]["settings"] |= {
        key: settings[key] for key in ("type", "additionalProperties", "properties")
    }
    return {**whole, "$defs": {**whole.get("$defs", {}), **dict(sorted(defs.items()))}}


def list_rights() -> dict[str, Any]:
    """Return the rules of each role, those of the cluster apart from those of namespaces."""
    every = list_roles(executors.load_executors())
    acting = {
        n.removeprefix(ACTS): _split_by_scope(r) for n, r in every.items() if n.startswith(ACTS)
    }
    return {
        "reader": build_rules(list_reader_rights()),
        "own": build_rules(OWN),
        "canary": build_rules(CANARY),
        "loop": _split_by_scope(every["fallow-actor"]),
        "annotate": _split_by_scope(every["fallow-annotate"]),
        "snapshot": _split_by_scope(every["fallow-snapshot"]),
        "restore-pods": _split_by_scope(every["fallow-restore-pods"]),
        "executors": acting,
    }


def render_counters() -> str:
    """Return the counters file of dcgm-exporter: one field for each column that we keep."""
    lines = [HEAD.rstrip(), "# Format: DCGM field, Prometheus metric type, help"]
    lines += [
        f"{row['metric']}, {row['kind']}, {row['help']}" for row in _list_rows("dcgm_counters")
    ]
    return "\n".join(lines) + "\n"


def render_pages(chart: Path) -> dict[str, str]:
    """Return the files that are written into the chart's folder, by their place in it."""
    deploy = chart.parent.parent
    own = json.loads((chart.parent / "values.own.json").read_text(encoding="utf-8"))
    named = own["properties"]["rights"]["properties"]["executors"]["items"]
    named["enum"] = sorted(list_rights()["executors"])
    return {
        VALUES: json.dumps(build_schema(own), indent=2) + "\n",
        "files/rights.yaml": HEAD + yaml.safe_dump(list_rights(), sort_keys=False),
        "files/dcgm-metrics.csv": render_counters(),
        "files/rules.yaml": (deploy / "prometheus" / "rules.yaml").read_text(encoding="utf-8"),
        "files/board.json": (deploy / "grafana" / "fallow.json").read_text(encoding="utf-8"),
    }


def _split_by_scope(role_rights: Iterable[Right]) -> dict[str, list[dict[str, Any]]]:
    """Split the rights that a RoleBinding cannot grant from those that it can (`namespaces`)."""
    wide = list_cluster_scoped()
    listed = list(role_rights)
    return {
        "namespaced": build_rules(r for r in listed if (r.group, r.resource) not in wide),
        "cluster": build_rules(r for r in listed if (r.group, r.resource) in wide),
    }


def _needs_secret(definition: dict[str, Any]) -> bool:
    needed = definition.get("required", ())
    return any(definition["properties"][name].get("format") == SECRET for name in needed)


def _drop(definition: dict[str, Any], secret_refs: Iterable[str]) -> None:
    """Remove the properties that are secrets, or that require one."""
    properties = definition.get("properties", {})
    for name, value in [*properties.items()]:
        text = json.dumps(value)
        if f'"format": "{SECRET}"' in text or any(f'"{ref}"' in text for ref in secret_refs):
            del properties[name]


def _simplify(definition: dict[str, Any]) -> None:
    """Keep what Helm's validator reads as intended: no defaults, titles or Fallow's durations."""
    definition.pop("title", None)
    for value in definition.get("properties", {}).values():
        value.pop("default", None)
        _loosen(value)


def _loosen(node: Any) -> None:
    """Loosen durations (30s instead of PT30S) and numbers (no lookahead: Go does not have it)."""
    if isinstance(node, dict):
        node.pop("title", None)
        if node.get("format") in ("duration", "path"):
            del node["format"]
        if "(?" in str(node.get("pattern", "")):
            del node["pattern"]
        for inner in node.values():
            _loosen(inner)
    elif isinstance(node, list):
        for inner in node:
            _loosen(inner)


def _list_rows(name: str) -> list[dict[str, str]]:
    return read_table("tools", f"{name}.csv")


def main(folder: str) -> None:
    """Write the files into the chart's folder."""
    for name, text in render_pages(Path(folder)).items():
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
