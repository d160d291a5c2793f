"""Scaling efficiency: the share of a distributed job's GPU-hours that is lost with its size.

step_sample, allocation ─► paces.sql ─► families of several sizes ─► (1 - efficiency) of the hours
with a known throughput, of the ledger's `low` and `productive` ones
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, timedelta
from typing import Any

from analyzers.queries import OWNERS, compose_steps, load_sql
from analyzers.scaling.families import STEPS, JobThroughput, compare_sizes
from analyzers.work import Owner, WorkloadCosts, compute_per_day, compute_share, read_costs
from analyzers.workload_kinds import is_gang
from fallow.models import Evidence, Finding, Recommendation, State, Subject, Unjudged, finding_id
from fallow.protocols import Views
from fallow.service_levels import ScalingSettings
from fallow.window import Window

ANALYZER = "scaling"
WORKED: tuple[State, ...] = ("low", "productive")
KINDS = (
    "PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob", "JobSet",
    "LeaderWorkerSet", "RayCluster", "RayJob",
)  # fmt: skip
HOUR = timedelta(hours=1)


class ScalingAnalyzer:
    """Find distributed jobs with a much lower throughput per GPU than smaller ones."""

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.settings = settings or ScalingSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return jobs that scale badly, the most GPU-hours first."""
        by_owner: dict[Owner, list[JobThroughput]] = {}
        for pace in compare_sizes(self._rows(views, window))[0]:
            by_owner.setdefault(_get_owner(pace.row), []).append(pace)
        slow = {
            owner: paces
            for owner, paces in by_owner.items()
            if min(pace.efficiency for pace in paces) < self.settings.efficiency
        }
        if not slow:
            return []
        money = read_costs(views, window)
        findings = [
            self._build_finding(owner, paces, money, window) for owner, paces in slow.items()
        ]
        return sorted((f for f in findings if f is not None), key=lambda f: (-f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the jobs with only one size, and those without a reported throughput."""
        unjudged = [
            Unjudged(
                _build_subject(row),
                row["hours"] * float(row["gpus"]),
                (f"its like was seen on {row['gpus']} GPUs only: efficiency needs two sizes",),
                window,
            )
            for row in compare_sizes(self._rows(views, window))[1]
            if row["gpus"] > 1 and is_gang(row["workload_kind"])
        ]
        parameters = {**window.bounds(), "kinds": list(KINDS)}
        for row in views.query(load_sql("scaling/jobs_without_throughput"), parameters).to_pylist():
            about = Subject(row["cluster"], "", "Fleet", row["cluster"])
            why = (
                f"{row['jobs']} distributed jobs tell no throughput: name their metric in "
                "prometheus.step_metrics"
            )
            unjudged.append(Unjudged(about, 0.0, (why,), window))
        return unjudged

    def proof(self, finding: Finding) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield the throughput by size, of all jobs: the family's are among them."""
        title = "how fast each job went on how many GPUs (median of its whole hours)"
        yield title, compose_steps(OWNERS, "scaling/paces"), finding.window.bounds()

    def _rows(self, views: Views, window: Window) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = views.query(
            compose_steps(OWNERS, "scaling/paces"), window.bounds()
        ).to_pylist()
        return rows

    def _build_finding(
        self, owner: Owner, paces: list[JobThroughput], money: WorkloadCosts, window: Window
    ) -> Finding | None:
        total = money.total(owner, WORKED)
        if total is None or total.gpu_hours <= 0:
            return None
        lost = sum(p.row["gpus"] * p.row["hours"] * (1 - p.efficiency) for p in paces)
        share = min(lost / total.gpu_hours, 1 - min(p.efficiency for p in paces))
        usd = None if total.usd is None else compute_share(total.usd, share)
        worst = min(paces, key=lambda p: p.efficiency)
        row, subject = worst.row, _build_subject(worst.row)
        why = (
            f"each of its {row['gpus']} GPUs does {worst.efficiency:.0%} of what one does on "
            f"{worst.base_gpus} ({worst.unit} of family {worst.family})"
        )
        return Finding(
            id=finding_id(ANALYZER, "poor_scaling", subject, window.start),
            analyzer=ANALYZER,
            kind="poor_scaling",
            subject=subject,
            window=window,
            verdict="wasteful",
            evidence=self._evidence(paces),
            confidence=0.8 if self._evidence(paces) == "confirmed" else 0.45,
            gpu_hours=round(total.gpu_hours * share, 6),
            usd=usd,
            details={
                "why": why,
                "sizes": [_describe_pace(pace) for pace in paces],
                "share": round(share, 4),
                "hours_of": list(WORKED),
                "witnesses": {"work": worst.unit, "size": "allocation"},
                "assumed": _list_assumptions(paces),
                **({} if usd is not None else {"no_price": "part of its hours has no price"}),
            },
            recommendations=(
                Recommendation(
                    verb="make its ranks talk less, or run it smaller",
                    target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
                    why=why,
                    reversible=True,
                    undo="restore its settings and its size",
                    gpu_hours_per_day=round(total.gpu_hours * share * 86_400 / window.seconds, 4),
                    usd_per_day=compute_per_day(usd, window),
                    caution="a smaller job ends later: whoever waits for it decides",
                    saving="capacity",
                    effort="advanced",
                    claims=money.claims(owner, share, WORKED),
                ),
            ),
        )

    def _evidence(self, paces: list[JobThroughput]) -> Evidence:
        """Return the evidence.

        Confirmed needs enough hours of both sizes, a real throughput, no conflict.
        """
        least = self.settings.least_hours
        sure = all(
            pace.row["hours"] >= least
            and pace.base_hours >= least
            and pace.unit != STEPS
            and pace.row["world_size"] in {None, pace.row["gpus"]}
            for pace in paces
        )
        return "confirmed" if sure else "suspected"


def _list_assumptions(paces: list[JobThroughput]) -> list[str]:
    assumptions = ["jobs of one family train the same model alike, on whatever number of GPUs"]
    if any(pace.unit == STEPS for pace in paces):
        assumptions.append(
            "only steps are told: the batch is taken to grow with the GPUs, the least loss"
        )
    if any(pace.row["world_size"] not in {None, pace.row["gpus"]} for pace in paces):
        assumptions.append("the job counts other ranks than the GPUs that it holds")
    return assumptions


def _describe_pace(pace: JobThroughput) -> dict[str, Any]:
    row = pace.row
    return {
        "gpus": row["gpus"],
        "model": row["model"],
        "hours": row["hours"],
        "per_gpu": round(pace.per_gpu, 4),
        "smallest": {
            "gpus": pace.base_gpus,
            "hours": pace.base_hours,
            "per_gpu": round(pace.base_per_gpu, 4),
        },
        "efficiency": round(pace.efficiency, 4),
        "from": row["first_hour"].replace(tzinfo=UTC),
        "to": row["last_hour"].replace(tzinfo=UTC) + HOUR,
    }


def _get_owner(row: Mapping[str, Any]) -> Owner:
    return row["cluster"], row["namespace"], row["workload_kind"], row["workload"]


def _build_subject(row: Mapping[str, Any]) -> Subject:
    return Subject(*_get_owner(row), team=row["team"], models=(row["model"],))
