"""Scaling efficiency: the share of a distributed job's GPU-hours that is lost with its size.

step_sample, allocation ─► paces.sql ─► families of several sizes ─► (1 - efficiency) of the hours
with a known throughput, of the ledger's `low` and `productive` ones
"""

from collections.abc import Iterator, Mapping
from typing import Any

from analyzers.scaling.families import JobThroughput, compare_sizes
from analyzers.scaling.findings import build_finding, build_subject
from analyzers.scaling.rows import PACES, read_paces, read_silent_jobs
from analyzers.work import read_costs
from analyzers.workload_rows import Owner
from capacity.workload_kinds import is_gang
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.service_levels import ScalingSettings
from fallow.window import Window

KINDS = (
    "PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "JobSet",
    "LeaderWorkerSet", "RayCluster", "RayJob",
)  # fmt: skip


class ScalingAnalyzer:
    """Find distributed jobs with a much lower throughput per GPU than smaller ones."""

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.settings = settings or ScalingSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return jobs that scale badly, the most GPU-hours first."""
        by_owner: dict[Owner, list[JobThroughput]] = {}
        for pace in compare_sizes(read_paces(views, window))[0]:
            by_owner.setdefault(pace.row.owner, []).append(pace)
        slow = {
            owner: paces
            for owner, paces in by_owner.items()
            if min(pace.efficiency for pace in paces) < self.settings.efficiency
        }
        if not slow:
            return []
        money = read_costs(views, window)
        findings = [
            build_finding(owner, paces, money, self.settings, window)
            for owner, paces in slow.items()
        ]
        return sorted((f for f in findings if f is not None), key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the jobs with only one size, and those without a reported throughput."""
        unjudged = [
            Unjudged(
                build_subject(row),
                row.hours * float(row.gpus),
                (f"its like was seen on {row.gpus} GPUs only: efficiency needs two sizes",),
                window,
            )
            for row in compare_sizes(read_paces(views, window))[1]
            if row.gpus > 1 and is_gang(row.workload_kind)
        ]
        for silent in read_silent_jobs(views, window, list(KINDS)):
            about = Subject(silent.cluster, "", "Fleet", silent.cluster)
            why = (
                f"{silent.jobs} distributed jobs tell no throughput: name their metric in "
                "prometheus.step_metrics"
            )
            unjudged.append(Unjudged(about, 0.0, (why,), window))
        return unjudged

    def proof(self, finding: Finding) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield the throughput by size, of all jobs: the family's are among them."""
        title = "how fast each job went on how many GPUs (median of its whole hours)"
        yield title, PACES, finding.window.bounds()
