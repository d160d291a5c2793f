"""Run `fallow explain`: a finding's rows, the SQL that read them, the rate and the sum."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from actions.journal import Journal, JournalState
from actions.journal.permissions import ApprovalRequest
from fallow import plugins
from fallow.action_models import list_case_ids
from fallow.errors import UsageError
from fallow.models import Finding, Recommendation
from fallow.protocols import Explainable, Views
from fallow.settings import Settings
from fallow.window import EARLIEST, Window
from runtime.operations.acting import action_history
from runtime.operations.acting.plans import get_journal_path, load_policies
from runtime.operations.analysis import analyzer_runs, findings
from runtime.operations.analysis.story import get_waste_key, sum_wastes
from runtime.operations.queries import load_sql
from runtime.rendering.tables import format_value, render
from warehouse.pricing import derive_device_rates

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

Query = tuple[str, str, str, dict[str, Any]]
"""A query's name, its purpose, its text, its parameters."""

QUERIES = {
    "evidence": "what the devices showed",
    "charged": "what the ledger charged",
}
FINDING, ACTION = "explanation", "action_explanation"
"""The nouns of the two documents."""
MOST_CLAIMS = 100
"""Claims of a finding that are queried; the others are summed in its advice."""
MOST_ROWS = 200
"""Rows of a query that are printed as text; JSON has all."""


def explain_any(
    warehouse: "Warehouse", prefix: str, settings: Settings, now: datetime
) -> tuple[str, dict[str, Any]]:
    """Return the document's noun and what an action, or else a stored finding, rests on.

    The id of a request for approval or of a plan's decision is about its finding.

    Raises:
        UsageError: no action and no finding, or several, begin with `prefix`.
    """
    path = get_journal_path(settings)
    requests: Mapping[str, ApprovalRequest] = {}
    if path.is_file():
        with Journal.open(path, lambda: now, write=False) as journal:
            record = JournalState(journal).catch_up()
            action = action_history.find_action(record, prefix)
            if action is not None:
                return ACTION, action_history.explain_action(
                    warehouse, settings, record, action, now
                )
            requests = record.approval_requests
    try:
        return FINDING, explain_finding(warehouse, prefix, settings)
    except UsageError:
        finding = _find_decided(warehouse, settings, requests, prefix)
        if finding is None:
            raise
    return FINDING, explain_finding(warehouse, finding, settings)


def _find_decided(
    views: Views, settings: Settings, requests: Mapping[str, ApprovalRequest], prefix: str
) -> str | None:
    """Return the finding of the request or of the plan's decision that begins so; None = of none.

    Decisions are not stored: their ids are those of the policies' stages for each finding.
    """
    cases = {(request.policy, request.finding) for request in requests.values()}
    policies = {policy for policy, _ in cases}
    if settings.actions.policies.exists():
        policies |= {policy.name for policy in load_policies(settings)}
    stored = views.query("SELECT id FROM finding")["id"].to_pylist()
    cases |= {(policy, finding) for policy in policies for finding in stored}
    matches = {
        finding
        for policy, finding in cases
        if any(name.startswith(prefix) for name in list_case_ids(policy, finding))
    }
    return matches.pop() if len(matches) == 1 else None


def explain_finding(views: Views, prefix: str, settings: Settings | None = None) -> dict[str, Any]:
    """Return a stored finding with its queries, their parameters and their current results.

    An analyzer returns the evidence of its findings from `proof(finding)`. For a workload's finding
    without it, the evidence is the devices' samples and the ledger's charges.

    Raises:
        UsageError: no finding, or several, begin with `prefix`.
    """
    finding = findings.read(views, prefix)
    statements = [*_list_proof_queries(finding, settings), *_claim_queries(finding)]
    queries = [
        {
            "name": name,
            "what": purpose,
            "sql": text,
            "parameters": parameters,
            "rows": views.query(text, parameters).to_pylist(),
        }
        for name, purpose, text, parameters in statements
    ]
    devices = {row["device"] for query in queries for row in query["rows"] if "device" in row}
    return {
        "finding": findings.document(finding),
        "arithmetic": describe_arithmetic(finding),
        "together": describe_repeats(views, finding),
        "savings": [describe_savings(advice) for advice in finding.recommendations],
        "rates": _read_rates(views, finding, devices),
        "queries": queries,
    }


def describe_savings(advice: Recommendation) -> str:
    """Return what a recommendation would save alone, and in addition to those before it."""
    if advice.gross_gpu_hours is None:
        return "it claims no hours of the ledger"
    alone = _format_amount(advice.gross_gpu_hours, advice.gross_usd)
    top = _format_amount(advice.marginal_gpu_hours or 0.0, advice.marginal_usd)
    bound = ""
    if advice.at_most_gpu_hours:
        most = _format_amount(advice.at_most_gpu_hours, advice.at_most_usd)
        bound = f"; of hours in use at most {most}, in no sum"
    return f"{alone} alone; {top} on top of what comes before it{bound}"


def _format_amount(hours: float, usd: Decimal | None) -> str:
    return f"{hours:,.4f} GPU-hours, " + ("no price" if usd is None else f"${usd:,.2f}")


def _list_proof_queries(finding: Finding, settings: Settings | None) -> Iterator[Query]:
    if finding.analyzer in plugins.find_installed("analyzers"):
        analyzers = analyzer_runs.load_analyzers(settings or Settings(), [finding.analyzer])
        analyzer = analyzers[finding.analyzer]
        if isinstance(analyzer, Explainable):
            for number, (title, text, parameters) in enumerate(analyzer.proof(finding)):
                yield f"proof_{number}", title, text, dict(parameters)
            return
    if finding.subject.namespace:
        for name, purpose in QUERIES.items():
            yield name, purpose, load_sql(name), _query_parameters(finding)


def _claim_queries(finding: Finding) -> Iterator[Query]:
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
    purpose = "what the ledger charged for the hours that its advice claims"
    yield "claimed", purpose, load_sql("claimed"), parameters


def _read_rates(views: Views, finding: Finding, devices: set[str]) -> list[dict[str, Any]]:
    """Return which rate priced each device when, and its source."""
    rows = derive_device_rates(views, finding.window).to_pylist()
    columns = ("device", "from_at", "to_at", "loaded_usd_h", "source", "reference", "as_of")
    return join_spans(
        {name: row[name] for name in columns}
        for row in rows
        if row["cluster"] == finding.subject.cluster and row["device"] in devices
    )


def join_spans(rates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a device's spans of one rate that follow each other as one row."""
    joined: list[dict[str, Any]] = []
    for rate in sorted(rates, key=lambda row: (row["device"], row["from_at"])):
        last = joined[-1] if joined else {}
        span = {"from_at": last.get("from_at"), "to_at": rate["from_at"]}
        if last and last == rate | span:
            last["to_at"] = rate["to_at"]
        else:
            joined.append(rate)
    return joined


def describe_arithmetic(finding: Finding) -> str:
    """Return how the dollars follow from GPU-hours and rate."""
    hours = f"{finding.gpu_hours:,.4f} GPU-hours"
    if finding.usd is None:
        return f"{hours} x no price found = no dollars"
    rate = float(finding.usd) / finding.gpu_hours if finding.gpu_hours else 0.0
    return f"{hours} x ${rate:,.4f} per GPU-hour = ${finding.usd:,.2f}"


def describe_repeats(views: Views, finding: Finding) -> str | None:
    """Return which of the times a finding is that its waste was found, and their sum; None = once.

    As `fallow demo` and `fallow scan` add them up.
    """
    always = Window(EARLIEST.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    key = get_waste_key(finding)
    latest = findings.read_latest(views, always, finding.subject.cluster)
    group = sorted(
        (f for f in latest if get_waste_key(f) == key), key=lambda f: (f.window.start, f.id)
    )
    ids = [f.id for f in group]
    if len(group) == 1 or finding.id not in ids:
        return None
    (whole,) = sum_wastes(group, always)
    paid = "no price" if whole.usd is None else f"${whole.usd:,.2f}"
    place = f"{ids.index(finding.id) + 1} of {len(group)}"
    return f"{place}, together {paid}, {whole.gpu_hours:,.1f} GPU-hours"


def render_explanation(explanation: Mapping[str, Any]) -> str:
    """Return an explanation as text."""
    document = explanation["finding"]
    subject = document["subject"]
    start = datetime.fromisoformat(document["window"]["start"])
    end = datetime.fromisoformat(document["window"]["end"])
    subject_path = (subject["namespace"], subject["workload_kind"], subject["workload"])
    workload = "/".join(filter(None, subject_path))
    sure = f"{document['confidence']:.2f}"
    lines = [
        f"finding   {document['id']}  ({document['analyzer']}: {document['kind']})",
        f"subject   {workload} in cluster {subject['cluster']}",
        f"owner     {subject.get('team') or 'nobody named'}",
        f"window    {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC",
        f"verdict   {document['verdict']}, {document['evidence']}, confidence {sure}",
        f"waste     {explanation['arithmetic']}",
        *([f"time      {explanation['together']}"] if explanation["together"] else []),
        "",
        "evidence",
        *(f"  {name}: {_format_detail(value)}" for name, value in document["details"].items()),
    ]
    for query in explanation["queries"]:
        rows = query["rows"]
        lines += ["", query["what"], *_indent(render(rows[:MOST_ROWS], "table", noun="rows"))]
        if len(rows) > MOST_ROWS:
            lines.append(f"  and {len(rows) - MOST_ROWS:,} more (-o json has all)")
        lines += ["  read by:", *_indent(query["sql"], "    ")]
        lines += [
            f"    ${name} = {format_value(value)}" for name, value in query["parameters"].items()
        ]
    if explanation["rates"]:
        lines += ["", "the rate", *_indent(render(explanation["rates"], "table", noun="rates"))]
    for advice, saved in zip(document["recommendations"], explanation["savings"], strict=True):
        lines += ["", f"do: {advice['verb']} {advice['target']}", f"  {advice['why']}"]
        lines.append(f"  saves ({advice['saving']}, {advice['effort']}): {saved}")
        if advice.get("undo"):
            lines.append(f"  undo: {advice['undo']}")
        if advice.get("caution"):
            lines.append(f"  caution: {advice['caution']}")
    return "\n".join(lines) + "\n"


def _query_parameters(finding: Finding) -> dict[str, Any]:
    subject = finding.subject
    return {
        "cluster": subject.cluster,
        "namespace": subject.namespace,
        "workload_kind": subject.workload_kind,
        "workload": subject.workload,
        "since": finding.window.start,
        "until": finding.window.end,
    }


def _format_detail(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_detail(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_format_detail(inner) for inner in value)
    return format_value(value)


def _indent(text: str, by: str = "  ") -> list[str]:
    return [f"{by}{line}" for line in text.rstrip().splitlines()]
