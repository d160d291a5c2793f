"""Build the past of any analyzer by running it at every evaluation: exact, and slow."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from actions.backtest.as_of import AsOf
from capacity.placement.fleet_state import to_micros
from fallow import case_identity
from fallow.case_identity import CaseKin, StoredCase, get_kin, to_stored_case
from fallow.idle_details import read_idle_details
from fallow.models import Finding
from fallow.protocols import Analyzer, Views
from fallow.window import Window

MAX_AGE = timedelta(minutes=10)
"""An idle stretch whose finding ended longer ago than this is over."""


class StepwisePast:
    """What an analyzer found at each evaluation."""

    def __init__(self, rows: pa.Table, findings: Sequence[Finding]) -> None:
        self.rows, self._findings = rows, findings

    def finding(self, row: int) -> Finding:
        """Return the finding of a row."""
        return self._findings[row]


def replay_analyzer(
    analyzer: Analyzer,
    views: Views,
    window: Window,
    turns: Sequence[datetime],
    longest: timedelta | None = None,
) -> StepwisePast:
    """Run an analyzer at every evaluation over [window.start, evaluation), with earlier rows only.

    `longest`: the longest window, as the live service uses it; None = the whole window. A finding
    whose start moves with the window is the same case (`fallow.case_identity`). Idle stretches that
    are over are left out. Every row has its own mark, so that it counts as a change.
    """
    rows: list[tuple[int, int, Finding]] = []
    cases: dict[str, int] = {}
    stored: dict[CaseKin, dict[str, StoredCase]] = defaultdict(dict)
    for k, at in enumerate(turns):
        if at <= window.start:
            continue
        since = window.start if longest is None else max(window.start, at - longest)
        findings = [
            finding
            for finding in analyzer.find(AsOf(views, at), Window(since, at))
            if finding.verdict == "wasteful" or finding.window.end >= at - MAX_AGE
        ]
        stored_cases = {kin: [*stored[kin].values()] for kin in map(get_kin, findings)}
        for finding in case_identity.resolve(findings, stored_cases):
            stored[get_kin(finding)][finding.id] = to_stored_case(finding)
            rows.append((cases.setdefault(finding.id, len(cases)), k, finding))
    rows.sort(key=lambda row: row[:2])
    return StepwisePast(pa.table(_build_columns(rows)), [f for _, _, f in rows])


def _build_columns(rows: Sequence[tuple[int, int, Finding]]) -> dict[str, Any]:
    findings = [f for _, _, f in rows]
    return {
        "case": pa.array([case for case, _, _ in rows], pa.int64()),
        "k": pa.array([k for _, k, _ in rows], pa.int64()),
        "mark": pa.array(range(len(rows)), pa.int64()),
        "cluster": pa.array([f.subject.cluster for f in findings], pa.string()),
        "namespace": pa.array([f.subject.namespace for f in findings], pa.string()),
        "workload_kind": pa.array([f.subject.workload_kind for f in findings], pa.string()),
        "workload": pa.array([f.subject.workload for f in findings], pa.string()),
        "kind": pa.array([f.kind for f in findings], pa.string()),
        "evidence": pa.array([f.evidence for f in findings], pa.string()),
        "confidence": pa.array([f.confidence for f in findings], pa.float64()),
        "coverage": pa.array([read_idle_details(f).coverage for f in findings], pa.float64()),
        "gpu_hours": pa.array([f.gpu_hours for f in findings], pa.float64()),
        "usd": pa.array([None if f.usd is None else float(f.usd) for f in findings], pa.float64()),
        "start": pa.array([to_micros(f.window.start) for f in findings], pa.int64()),
        "end": pa.array([to_micros(f.window.end) for f in findings], pa.int64()),
    }
