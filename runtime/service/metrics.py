"""Export Fallow's own metrics. `metrics.csv` has each metric, its labels, and its processes.

No workload, pod or team is a label: details belong to the warehouse.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from analyzers.reliability.incidents.records import Incident, Step
from analyzers.reliability.incidents.tables import list_classes
from capacity.queue.records import WayKind
from dashboards.figures.anomalies import BudgetState, TeamBudget
from fallow import __version__
from fallow.action_models import LedgerEntry, Result, SavingKind
from fallow.case_identity import get_judged_part
from fallow.models import Evidence, Finding
from fallow.protocols import WatchCounts
from fallow.resources import read_table
from fallow.window import Window
from runtime.operations.doctor.unknown_names import list_kinds
from runtime.operations.queries import load_sql
from runtime.service.delivery.outbox import RESULTS
from runtime.service.roles import PARTS, ServiceJob, ServiceRole
from warehouse import audits, maintenance
from warehouse.coverage import count_unseen_gpus
from warehouse.orphans import count_orphans
from warehouse.unknown_names import read_unknown_names

if TYPE_CHECKING:
    from actions.loop.protocols import NoticeProof, TurnReport
    from capacity.queue.records import QueuedWorkload
    from fallow.plugin_runs import PluginRun
    from runtime.operations.acting.actor_turns import CanaryStatus
    from runtime.operations.ingestion.ingest_queue import QueueState
    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse
    from warehouse.shards import ShardState

disable_created_metrics()  # type: ignore[no-untyped-call]  # would add an unused series per counter

SHARE_WINDOW = timedelta(hours=24)
"""Window of the reported states of the fleet: a day, so that no single hour dominates it."""
TARGET_WINDOW = timedelta(hours=1)
GATES = ("frozen", "breaker", "lease", "evidence")
STEPS = ("acted", "notified", "kept a snapshot", "held", "refused")
NOTICES = ("delivered", "failed", "waiting")
STATES = ("up", "down")
WAITING = ("blocked", "unblocked")
NO_WAY = "none"
"""Label of waiting workloads of which no way in holds."""
MEDIA = ("memory", "disk")
_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class MetricSpec(msgspec.Struct, frozen=True):
    """A metric as `metrics.csv` describes it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    role: ServiceRole
    meaning: str

    def exported(self) -> tuple[str, ...]:
        """Return the names under which Prometheus stores it."""
        if self.kind == "counter":
            return (f"{self.name}_total",)
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


@cache
def list_metrics() -> tuple[MetricSpec, ...]:
    """Return every metric there is."""
    return tuple(
        MetricSpec(
            row["name"],
            row["kind"],
            tuple(row["labels"].split()),
            ServiceRole(row["role"].split()[0]),
            row["meaning"],
        )
        for row in read_table("runtime.service", "metrics.csv")
    )


class SelfMetrics:
    """The fallow_* metrics of a process that has these roles, in a registry of their own."""

    def __init__(self, roles: Collection[ServiceRole] = PARTS) -> None:
        self.registry = CollectorRegistry()
        self._all: dict[str, Any] = {}
        self._watched: dict[tuple[str, str], int] = {}
        self._refused_rows = 0
        for metric in list_metrics():
            mine = metric.role is ServiceRole.all or metric.role in roles
            registry = self.registry if mine else None  # a metric of other roles is not exported
            self._all[metric.name] = _make_metric(metric, registry)
        for role in sorted(roles):
            self._of("info").labels(__version__, str(role)).set(1)
        self._begin("act_steps", STEPS)
        self._begin("act_outcomes", get_args(Result))
        self._begin("notices", NOTICES)
        self._begin("act_halted", GATES)
        self._begin("queue_rows", MEDIA)
        self._begin("report_deliveries", RESULTS)

    def record_schedule(self, jobs: Iterable[ServiceJob], now: datetime) -> None:
        """Record which jobs run, how often, and that none has run yet."""
        for job in jobs:
            self._of("job_failures").labels(job.name)
            self._of("job_period_seconds").labels(job.name).set(job.every.total_seconds())
            self._of("job_last_success_timestamp_seconds").labels(job.name).set(now.timestamp())

    def record_collectors(self, collectors: Iterable[str], now: datetime) -> None:
        """Record which collectors there are, before any ran."""
        for name in collectors:
            self._of("collect_rows").labels(name)
            self._of("collect_skipped").labels(name)
            self._of("collect_last_success_timestamp_seconds").labels(name).set(now.timestamp())

    def record_turn(self, job: str, seconds: float, now: datetime, *, well: bool) -> None:
        """Record one turn of a job."""
        self._of("job_duration_seconds").labels(job).observe(seconds)
        if well:
            self._of("job_last_success_timestamp_seconds").labels(job).set(now.timestamp())
        else:
            self._of("job_failures").labels(job).inc()

    def record_readiness(self, *, ready: bool) -> None:
        """Record the result of /readyz."""
        self._of("ready").set(ready)

    def record_collection(
        self, name: str, seconds: float, *, added: int, up: bool, now: datetime | None = None
    ) -> None:
        """Record one collection."""
        self._of("collect_duration_seconds").labels(name).observe(seconds)
        self._of("collect_rows").labels(name).inc(added)
        self._of("up").labels(name).set(up)
        if up and now is not None:
            gauge = self._of("collect_last_success_timestamp_seconds")
            gauge.labels(name).set(now.timestamp())

    def record_skipped_collection(self, name: str) -> None:
        """Record that a collector was not started because its last collection still goes on."""
        self._of("collect_skipped").labels(name).inc()

    def record_queue(self, state: "QueueState") -> None:
        """Record the rows that wait for the warehouse, and those that were refused."""
        self._of("queue_rows").labels("memory").set(state.memory_rows)
        self._of("queue_rows").labels("disk").set(state.disk_rows)
        self._of("queue_bytes").set(state.disk_bytes)
        self._of("queue_oldest_seconds").set(state.oldest_s)
        self._of("queue_refused_rows").inc(max(state.refused - self._refused_rows, 0))
        self._refused_rows = state.refused

    def record_watches(self, progress: Iterable[WatchCounts]) -> None:
        """Record what watches did so far."""
        for watch in progress:
            restarts = max(watch.streams - 1, 0)
            counts = {"events": watch.events, "restarts": restarts, "lists": watch.lists}
            for name, count in {**counts, "failures": watch.failures}.items():
                counter = self._of(f"watch_{name}").labels(watch.resource)
                before = self._watched.get((name, watch.resource), 0)
                counter.inc(max(count - before, 0))
                self._watched[name, watch.resource] = count
            self._of("watch_up").labels(watch.resource).set(watch.streams > 0 and not watch.error)

    def record_plugin_runs(self, runs: "Iterable[PluginRun]") -> None:
        """Record the results of plugins: 0 = its last run ended with an exception."""
        for run in runs:
            self._of("plugin_up").labels(run.kind, run.plugin).set(run.result != "failed")

    def record_audits(self, failures: "Sequence[AuditFailure]") -> None:
        """Record the last audits: how many rows each found."""
        for name in audits.list_audits():
            rows = sum(failure.rows for failure in failures if failure.audit == name)
            self._of("audit_failures").labels(name).set(rows)

    def forget_audits(self) -> None:
        """Export no audits: another collector does the accounting, and records them."""
        self._of("audit_failures").clear()

    def record_shards(self, states: "Iterable[ShardState]") -> None:
        """Record how many targets of each shard nobody collects."""
        gauge = self._of("shard_uncollected_targets")
        gauge.clear()
        for state in states:
            gauge.labels(str(state.shard)).set(state.uncollected)

    def record_fleet(self, warehouse: "Warehouse", cluster: str, now: datetime) -> None:
        """Record the fleet's states, and which targets were scraped."""
        until = now.replace(minute=0, second=0, microsecond=0)
        parameters = {"since": until - SHARE_WINDOW, "until": until, "cluster": cluster}
        states = warehouse.query(load_sql("shares"), parameters).to_pylist()
        whole = sum(row["gpu_seconds"] for row in states)
        # If these hours have no data, older figures would look like current ones.
        for name in ("state_share", "state_usd_per_hour"):
            self._of(name).clear()
        for name in ("gpus", "unpriced_share"):
            self._of(name).set(math.nan)
        if whole:
            hours = states[0]["hours"]
            self._of("state_share").labels("unknown").set(0)
            for row in states:
                self._of("state_share").labels(row["state"]).set(row["gpu_seconds"] / whole)
                money = float(row["usd"]) / hours
                self._of("state_usd_per_hour").labels(row["state"]).set(money)
            self._of("gpus").set(whole / hours / 3600)
            self._of("unpriced_share").set(sum(row["unpriced"] for row in states) / whole)
        window = Window(until - SHARE_WINDOW, now)
        self._of("unseen_gpus").set(count_unseen_gpus(warehouse, window, cluster))
        parameters = {
            "since": now - TARGET_WINDOW,
            "until": now + TARGET_WINDOW,
            "cluster": cluster,
        }
        self._of("targets").clear()
        self._of("targets_over_limit").clear()
        self._of("doubtful_values").clear()
        for row in warehouse.query(load_sql("targets"), parameters).to_pylist():
            for state in STATES:
                self._of("targets").labels(row["collector"], state).set(row[state])
            self._of("targets_over_limit").labels(row["collector"]).set(row["over_limit"])
            for state in ("refused", "clipped"):
                self._of("doubtful_values").labels(row["collector"], state).set(row[state])
        self._of("rejected_objects").clear()
        since = {"since": parameters["since"], "cluster": cluster}
        for row in warehouse.query(load_sql("rejected"), since).to_pylist():
            self._of("rejected_objects").labels(row["kind"]).set(row["objects"])

        self._record_unknown_names(warehouse, cluster, now)

    def _record_unknown_names(self, warehouse: "Warehouse", cluster: str, now: datetime) -> None:
        names = read_unknown_names(warehouse, now, cluster)
        groups = names.group_by("kind").aggregate([("gpus", "count"), ("gpus", "sum")])
        counts = {row["kind"]: row for row in groups.to_pylist()}
        for kind in list_kinds():
            row = counts.get(kind, {})
            self._of("unknown_names").labels(kind).set(row.get("gpus_count", 0))
            self._of("unknown_gpus").labels(kind).set(row.get("gpus_sum", 0))

    def record_findings(self, findings: Sequence[Finding], hours: float) -> None:
        """Record the last analysis; `hours` of its window are accounted."""
        self._of("findings").clear()
        self._of("waste_usd_per_hour").clear()
        for finding in findings:
            self._of("findings").labels(finding.analyzer).inc()
            # Of a case that began before the window: the part that was judged in it.
            money = float(get_judged_part(finding).usd or 0) / hours if hours else 0.0
            self._of("waste_usd_per_hour").labels(finding.analyzer).inc(money)

    def record_stalled_jobs(self, findings: Sequence[Finding] | None) -> None:
        """Record the jobs that are stalled now, by evidence; None = they could not be judged."""
        self._of("stalled_jobs").clear()
        if findings is not None:
            for evidence in get_args(Evidence):
                count = sum(finding.evidence == evidence for finding in findings)
                self._of("stalled_jobs").labels(evidence).set(count)

    def record_budgets(self, budgets: Sequence[TeamBudget]) -> None:
        """Record how many budgets of the month are in each state."""
        for state in get_args(BudgetState):
            self._of("budgets").labels(state).set(sum(b.stands == state for b in budgets))

    def record_incidents(self, incidents: Sequence[Incident]) -> None:
        """Record the recent incidents, by the class of their cause and by their step."""
        self._of("recent_incidents").clear()
        for class_ in list_classes():
            for step in get_args(Step):
                count = sum((i.verdict.class_, i.verdict.step) == (class_, step) for i in incidents)
                self._of("recent_incidents").labels(class_, step).set(count)

    def record_waiting(self, records: Sequence["QueuedWorkload"]) -> None:
        """Record who waits for GPUs, by whether somebody blocks them."""
        for state in WAITING:
            mine = [r for r in records if bool(r.blocked_by) == (state == "blocked")]
            hours = [r.hours for r in mine if r.hours is not None]
            self._of("waiting_workloads").labels(state).set(len(mine))
            self._of("waiting_gpus").labels(state).set(sum(r.gpus or 0.0 for r in mine))
            self._of("waiting_longest_seconds").labels(state).set(max(hours, default=0) * 3600)
        ways = [r.cheapest_way.kind if r.cheapest_way else NO_WAY for r in records]
        for way in (*get_args(WayKind), NO_WAY):
            self._of("waiting_ways").labels(way).set(ways.count(way))

    def record_savings(self, entries: Sequence[LedgerEntry]) -> None:
        """Record what actions saved so far, by kind."""
        for kind in get_args(SavingKind):
            mine = [entry for entry in entries if entry.kind == kind]
            self._of("saved_usd").labels(kind).set(float(sum(e.usd or 0 for e in mine)))
            self._of("saved_gpu_hours").labels(kind).set(sum(e.gpu_hours for e in mine))

    def record_delivery(self, result: str) -> None:
        """Record the result of a report to one destination."""
        self._of("report_deliveries").labels(result).inc()

    def record_backlog(self, waiting: int, oldest_s: float) -> None:
        """Record how many reports wait to be sent, and for how long the oldest has waited."""
        self._of("report_waiting").set(waiting)
        self._of("report_oldest_seconds").set(oldest_s)

    def record_actor_turn(self, report: "TurnReport") -> None:
        """Record one turn of the actor; its time is the actor's heartbeat."""
        for step in report.steps:
            self._of("act_steps").labels(step.result).inc()
        for outcome in report.closed:
            self._of("act_outcomes").labels(outcome.result).inc()
        self._of("act_open").set(len(report.open))
        halted = {reason.gate for reason in report.halted}
        for gate in GATES:
            self._of("act_halted").labels(gate).set(gate in halted)
        self._of("act_last_turn_timestamp_seconds").set(report.at.timestamp())

    def record_notices(self, proofs: "Iterable[NoticeProof]") -> None:
        """Record the results of notices: one that no channel took and none will take is failed."""
        for proof in proofs:
            waits = "failed" if proof.waits_until is None else "waiting"
            self._of("notices").labels("delivered" if proof.delivered else waits).inc()

    def record_canary(self, status: "CanaryStatus") -> None:
        """Record the canary's period, its last success, and a failed run."""
        self._of("canary_period_seconds").set(status.every.total_seconds())
        self._of("canary_last_success_timestamp_seconds").set(status.last_success.timestamp())
        if status.result is not None and not status.result.ok:
            self._of("canary_failures").inc()

    def record_journal(self, rows: int, *, broken: bool, waiting: int) -> None:
        """Record the journal's length, whether its chain is intact, and the pending approvals."""
        self._of("journal_rows").set(rows)
        self._of("journal_broken").set(broken)
        self._of("act_waiting").set(waiting)

    def record_request(self, verb: str, code: int) -> None:
        """Record one request to a write endpoint."""
        self._of("requests").labels(verb, str(code)).inc()

    def record_dashboard(self, *, up: bool) -> None:
        """Record that the dashboard was started, or ended."""
        self._of("dashboard_up").set(up)
        if up:
            self._of("dashboard_starts").inc()

    def record_tiers(self, warehouse: "Warehouse", now: datetime) -> None:
        """Record the tiers' sizes and ages, and what waits for its removal."""
        orphans = count_orphans(warehouse)
        by_wait = {"age": orphans.listed - orphans.for_person, "person": orphans.for_person}
        for wait, count in by_wait.items():
            self._of("warehouse_orphans").labels(wait).set(count)
        self._of("warehouse_behind").set(warehouse.marks.is_behind())
        rows = maintenance.read_status(warehouse).to_pylist()
        for tier in {row["tier"] for row in rows}:
            lying = [row for row in rows if row["tier"] == tier]
            self._of("warehouse_bytes").labels(tier).set(sum(row["bytes"] or 0 for row in lying))
            newest = max((row["newest"] for row in lying if row["newest"]), default=None)
            if newest is not None:
                age = (now - newest.replace(tzinfo=UTC)).total_seconds()
                self._of("data_age_seconds").labels(tier).set(age)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)

    def _of(self, name: str) -> Any:
        return self._all[f"fallow_{name}"]

    def _begin(self, name: str, values: Iterable[str]) -> None:
        """Let series begin at zero: Prometheus sees no increase in a series without a zero."""
        for value in values:
            self._of(name).labels(value)


def _make_metric(metric: MetricSpec, registry: CollectorRegistry | None) -> Any:
    if metric.kind == "histogram":
        return Histogram(
            metric.name, metric.meaning, metric.labels, registry=registry, buckets=_SECONDS
        )
    kinds: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge}
    return kinds[metric.kind](metric.name, metric.meaning, metric.labels, registry=registry)
