"""`fallow explain`: the rows a finding rests on, the SQL that read them, the rate, the sum."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fallow.nouns import Finding
from fallow.seams import Views
from runtime import findings
from runtime.output import render, shown
from runtime.queries import sql

QUERIES = {
    "evidence": "what the devices showed",
    "charged": "what the ledger charged",
}


def explanation(views: Views, prefix: str) -> dict[str, Any]:
    """Return a stored finding with its queries, their parameters and what they answer now.

    Raises:
        UsageError: no finding, or several, begin with `prefix`.
    """
    finding = findings.read(views, prefix)
    parameters = _parameters(finding)
    queries = [
        {
            "name": name,
            "what": what,
            "sql": sql(name),
            "parameters": parameters,
            "rows": views.query(sql(name), parameters).to_pylist(),
        }
        for name, what in QUERIES.items()
    ]
    devices = {row["device"] for row in queries[0]["rows"]}
    return {
        "finding": findings.document(finding),
        "arithmetic": arithmetic(finding),
        "rates": _rates(views, finding, devices),
        "queries": queries,
    }


def _rates(views: Views, finding: Finding, devices: set[str]) -> list[dict[str, Any]]:
    """Return which rate priced each device when, and where it was read."""
    from warehouse.pricing import device_rates  # noqa: PLC0415  (the engine loads in 0.3 s)

    rows = device_rates(views, finding.window).to_pylist()
    kept = ("device", "from_at", "to_at", "loaded_usd_h", "source", "reference", "as_of")
    return [
        {name: row[name] for name in kept}
        for row in rows
        if row["cluster"] == finding.subject.cluster and row["device"] in devices
    ]


def arithmetic(finding: Finding) -> str:
    """Write how GPU-hours and rate make the dollars."""
    hours = f"{finding.gpu_hours:,.4f} GPU-hours"
    if finding.usd is None:
        return f"{hours} x no price found = no dollars"
    rate = float(finding.usd) / finding.gpu_hours if finding.gpu_hours else 0.0
    return f"{hours} x ${rate:,.4f} per GPU-hour = ${finding.usd:,.2f}"


def spoken(told: Mapping[str, Any]) -> str:
    """Write an explanation for eyes."""
    document = told["finding"]
    subject = document["subject"]
    start = datetime.fromisoformat(document["window"]["start"])
    end = datetime.fromisoformat(document["window"]["end"])
    workload = f"{subject['namespace']}/{subject['workload_kind']}/{subject['workload']}"
    sure = f"{document['confidence']:.2f}"
    lines = [
        f"finding   {document['id']}  ({document['analyzer']}: {document['kind']})",
        f"workload  {workload} in cluster {subject['cluster']}",
        f"owner     {subject.get('team') or 'nobody named'}",
        f"window    {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC",
        f"verdict   {document['verdict']}, {document['evidence']}, confidence {sure}",
        f"waste     {told['arithmetic']}",
        "",
        "evidence",
        *(f"  {name}: {_said(value)}" for name, value in document["details"].items()),
    ]
    for query in told["queries"]:
        lines += ["", query["what"], *_indented(render(query["rows"], "table", noun="rows"))]
        lines += ["  read by:", *_indented(query["sql"], "    ")]
        lines += [f"    ${name} = {shown(value)}" for name, value in query["parameters"].items()]
    lines += ["", "the rate", *_indented(render(told["rates"], "table", noun="rates"))]
    for advice in document["recommendations"]:
        lines += ["", f"do: {advice['verb']} {advice['target']}", f"  {advice['why']}"]
        if advice.get("undo"):
            lines.append(f"  undo: {advice['undo']}")
        if advice.get("caution"):
            lines.append(f"  caution: {advice['caution']}")
    return "\n".join(lines) + "\n"


def _parameters(finding: Finding) -> dict[str, Any]:
    subject = finding.subject
    return {
        "cluster": subject.cluster,
        "namespace": subject.namespace,
        "workload_kind": subject.workload_kind,
        "workload": subject.workload,
        "since": finding.window.start,
        "until": finding.window.end,
    }


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_said(inner) for inner in value)
    return shown(value)


def _indented(text: str, by: str = "  ") -> list[str]:
    return [f"{by}{line}" for line in text.rstrip().splitlines()]
