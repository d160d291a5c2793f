"""`fallow explain`: the rows a finding rests on, the SQL that read them, the rate, the sum."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from fallow import plugins
from fallow.nouns import Finding, Recommendation
from fallow.seams import Proving, Views
from fallow.settings import Settings
from runtime import analyzing, findings
from runtime.output import render, shown
from runtime.queries import sql

Query = tuple[str, str, str, dict[str, Any]]
"""A query's name, what it asks, its text, its parameters."""

QUERIES = {
    "evidence": "what the devices showed",
    "charged": "what the ledger charged",
}
MOST_CLAIMS = 100
"""So many claims of a finding are looked up; the others are summed in its advice."""
MOST_ROWS = 200
"""So many rows of a query are printed for eyes; JSON carries all."""


def explanation(views: Views, prefix: str, settings: Settings | None = None) -> dict[str, Any]:
    """Return a stored finding with its queries, their parameters and what they answer now.

    An analyzer says what its findings rest on with `proof(finding)`; of a workload's finding
    without one, what its devices showed and what it was charged.

    Raises:
        UsageError: no finding, or several, begin with `prefix`.
    """
    finding = findings.read(views, prefix)
    asked = [*_proof(finding, settings), *_claims(finding)]
    queries = [
        {
            "name": name,
            "what": what,
            "sql": text,
            "parameters": parameters,
            "rows": views.query(text, parameters).to_pylist(),
        }
        for name, what, text, parameters in asked
    ]
    devices = {row["device"] for query in queries for row in query["rows"] if "device" in row}
    return {
        "finding": findings.document(finding),
        "arithmetic": arithmetic(finding),
        "savings": [savings(advice) for advice in finding.recommendations],
        "rates": _rates(views, finding, devices),
        "queries": queries,
    }


def savings(advice: Recommendation) -> str:
    """Write what a recommendation would save alone, and on top of those before it."""
    if advice.gross_gpu_hours is None:
        return "it claims no hours of the ledger"
    alone = _amount(advice.gross_gpu_hours, advice.gross_usd)
    top = _amount(advice.marginal_gpu_hours or 0.0, advice.marginal_usd)
    return f"{alone} alone; {top} on top of what comes before it"


def _amount(hours: float, usd: Decimal | None) -> str:
    return f"{hours:,.4f} GPU-hours, " + ("no price" if usd is None else f"${usd:,.2f}")


def _proof(finding: Finding, settings: Settings | None) -> Iterator[Query]:
    if finding.analyzer in plugins.installed("analyzers"):
        made = analyzing.chosen(settings or Settings(), [finding.analyzer])
        analyzer = made[finding.analyzer]
        if isinstance(analyzer, Proving):
            for number, (title, text, parameters) in enumerate(analyzer.proof(finding)):
                yield f"proof_{number}", title, text, dict(parameters)
            return
    if finding.subject.namespace:
        for name, what in QUERIES.items():
            yield name, what, sql(name), _parameters(finding)


def _claims(finding: Finding) -> Iterator[Query]:
    unique = dict.fromkeys(claim for advice in finding.recommendations for claim in advice.claims)
    claims = list(unique)[:MOST_CLAIMS]
    if not claims or (finding.verdict != "wasteful" and finding.subject.namespace):
        return
    columns = {
        "clusters": "cluster",
        "namespaces": "namespace",
        "kinds": "workload_kind",
        "workloads": "workload",
        "pools": "pool",
        "nodes": "node",
        "models": "model",
        "states": "state",
    }
    parameters: dict[str, Any] = {
        "since": finding.window.start,
        "until": finding.window.end,
        "claims": list(range(len(claims))),
    }
    parameters |= {n: [getattr(c, column) for c in claims] for n, column in columns.items()}
    what = "what the ledger charged for the hours that its advice claims"
    yield "claimed", what, sql("claimed"), parameters


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
    whose = (subject["namespace"], subject["workload_kind"], subject["workload"])
    workload = "/".join(filter(None, whose))
    sure = f"{document['confidence']:.2f}"
    lines = [
        f"finding   {document['id']}  ({document['analyzer']}: {document['kind']})",
        f"subject   {workload} in cluster {subject['cluster']}",
        f"owner     {subject.get('team') or 'nobody named'}",
        f"window    {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC",
        f"verdict   {document['verdict']}, {document['evidence']}, confidence {sure}",
        f"waste     {told['arithmetic']}",
        "",
        "evidence",
        *(f"  {name}: {_said(value)}" for name, value in document["details"].items()),
    ]
    for query in told["queries"]:
        rows = query["rows"]
        lines += ["", query["what"], *_indented(render(rows[:MOST_ROWS], "table", noun="rows"))]
        if len(rows) > MOST_ROWS:
            lines.append(f"  and {len(rows) - MOST_ROWS:,} more (-o json has all)")
        lines += ["  read by:", *_indented(query["sql"], "    ")]
        lines += [f"    ${name} = {shown(value)}" for name, value in query["parameters"].items()]
    if told["rates"]:
        lines += ["", "the rate", *_indented(render(told["rates"], "table", noun="rates"))]
    for advice, saved in zip(document["recommendations"], told["savings"], strict=True):
        lines += ["", f"do: {advice['verb']} {advice['target']}", f"  {advice['why']}"]
        lines.append(f"  saves ({advice['saving']}, {advice['effort']}): {saved}")
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
