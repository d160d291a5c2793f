"""Remove advice that would harm a service level: a service that misses it is never reduced.

The finding is kept, because its hours are facts; nothing is claimed, and no action may follow.
"""

from collections.abc import Mapping, Sequence

import msgspec

from analyzers.workload_rows import Owner
from fallow.models import Finding

SHRINK = {"idle", "sizing"}
"""Analyzers whose advice reduces a workload or stops it."""


def apply_vetoes(findings: Sequence[Finding], vetoes: Mapping[Owner, str]) -> list[Finding]:
    """Return findings without the advice that a veto forbids, with the reason."""
    return [_apply_veto(finding, vetoes) for finding in findings]


def _apply_veto(finding: Finding, vetoes: Mapping[Owner, str]) -> Finding:
    about = finding.subject
    why = vetoes.get((about.cluster, about.namespace, about.workload_kind, about.workload))
    if why is None or finding.analyzer not in SHRINK:
        return finding
    details = {**finding.details, "vetoed": why}
    if "actionable" in details:
        details["actionable"] = False
    return msgspec.structs.replace(
        finding, recommendations=(), evidence="suspected", details=details
    )
