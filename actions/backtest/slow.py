"""The past of any analyzer, by asking it at every moment: exact, and as slow as that sounds."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from actions.backtest.asof import AsOf
from actions.facts.ground import micros
from fallow import continuity
from fallow.continuity import Kin, Stretch, kin_of, stretch_of
from fallow.nouns import Finding
from fallow.seams import Analyzer, Views
from fallow.window import Window

OVER = timedelta(minutes=10)
"""An idle stretch that ended longer ago is over."""


class Remembered:
    """What an analyzer said at each moment, one after the other."""

    def __init__(self, rows: pa.Table, findings: Sequence[Finding]) -> None:
        self.rows, self._findings = rows, findings

    def finding(self, row: int) -> Finding:
        """Return the finding of a row."""
        return self._findings[row]


def remembered(
    analyzer: Analyzer,
    views: Views,
    window: Window,
    moments: Sequence[datetime],
    longest: timedelta | None = None,
) -> Remembered:
    """Ask an analyzer at every moment for [window.start, moment), with rows of before it only.

    `longest`: so much of it at most, as it is asked live; None = all. A finding whose start moves
    on with the window is the same case (`fallow.continuity`). Idle stretches that are over are left
    out. Every row has a mark of its own.
    """
    found: list[tuple[int, int, Finding]] = []
    cases: dict[str, int] = {}
    stored: dict[Kin, dict[str, Stretch]] = defaultdict(dict)
    for k, at in enumerate(moments):
        if at <= window.start:
            continue
        since = window.start if longest is None else max(window.start, at - longest)
        findings = [
            finding
            for finding in analyzer.find(AsOf(views, at), Window(since, at))
            if finding.verdict == "wasteful" or finding.window.end >= at - OVER
        ]
        known = {kin: [*stored[kin].values()] for kin in map(kin_of, findings)}
        for finding in continuity.resolve(findings, known):
            stored[kin_of(finding)][finding.id] = stretch_of(finding)
            found.append((cases.setdefault(finding.id, len(cases)), k, finding))
    found.sort(key=lambda row: row[:2])
    return Remembered(pa.table(_columns(found)), [f for _, _, f in found])


def _columns(found: Sequence[tuple[int, int, Finding]]) -> dict[str, Any]:
    findings = [f for _, _, f in found]
    return {
        "case": pa.array([case for case, _, _ in found], pa.int64()),
        "k": pa.array([k for _, k, _ in found], pa.int64()),
        "mark": pa.array(range(len(found)), pa.int64()),
        "cluster": pa.array([f.subject.cluster for f in findings], pa.string()),
        "namespace": pa.array([f.subject.namespace for f in findings], pa.string()),
        "workload_kind": pa.array([f.subject.workload_kind for f in findings], pa.string()),
        "workload": pa.array([f.subject.workload for f in findings], pa.string()),
        "kind": pa.array([f.kind for f in findings], pa.string()),
        "evidence": pa.array([f.evidence for f in findings], pa.string()),
        "confidence": pa.array([f.confidence for f in findings], pa.float64()),
        "coverage": pa.array([_coverage(f) for f in findings], pa.float64()),
        "gpu_hours": pa.array([f.gpu_hours for f in findings], pa.float64()),
        "usd": pa.array([None if f.usd is None else float(f.usd) for f in findings], pa.float64()),
        "start": pa.array([micros(f.window.start) for f in findings], pa.int64()),
        "end": pa.array([micros(f.window.end) for f in findings], pa.int64()),
    }


def _coverage(finding: Finding) -> float | None:
    said = finding.details.get("coverage")
    return float(said) if isinstance(said, int | float) else None
