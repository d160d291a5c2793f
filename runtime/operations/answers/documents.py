"""Build the bodies of JSON documents: commands print them, `fallow.connect` and MCP return them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fallow.errors import UsageError
from runtime.operations.accounting import reconcile
from runtime.operations.analysis import findings
from runtime.rendering import finding_tables

if TYPE_CHECKING:
    from analyzers.ranking import RankedFinding
    from runtime.operations.accounting.ledger_totals import SpendTable
    from runtime.operations.analysis.analyzer_runs import Analysis

CURRENCY = "USD"
EVIDENCE = ("confirmed", "suspected")


def describe_spend(table: "SpendTable", view: str) -> dict[str, Any]:
    """Return the fields beside the rows of `fallow.spend/v1`."""
    return {
        "window": table.window,
        "coverage": table.coverage,
        "currency": CURRENCY,
        "view": view,
        "total": table.total,
        "reconciliation": table.reconciliation,
    }


def check_evidence(evidence: str | None) -> None:
    """Refuse a word that is no kind of evidence; None = every kind.

    Raises:
        UsageError: it is none.
    """
    if evidence not in (None, *EVIDENCE):
        raise UsageError(f"evidence {evidence!r} is none of: {', '.join(EVIDENCE)}")


def select_findings(analysis: "Analysis", evidence: str | None) -> "list[RankedFinding]":
    """Return the ranked findings of a kind of evidence; None = all."""
    return [row for row in analysis.ranked if evidence in (None, row.finding.evidence)]


def describe_analysis(
    analysis: "Analysis", ranked: "Sequence[RankedFinding]", names: Sequence[str]
) -> dict[str, Any]:
    """Return the body of `fallow.findings/v1`; `names` are the requested analyzers."""
    body: dict[str, Any] = {
        "window": analysis.window.whole(),
        "findings": [findings.document(row.finding) for row in ranked],
        "waterfall": finding_tables.build_waterfall_document(analysis.waterfall),
        "reconciliation": reconcile.document(reconcile.compute_reconciliation(analysis.waterfall)),
        "blocks": findings.build_blocks(ranked),
        "summaries": analysis.summaries,
    }
    if len(names) == 1 and names[0] in analysis.summaries:
        body["summary"] = analysis.summaries[names[0]]
    return body
