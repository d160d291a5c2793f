"""Fallow's own telemetry. `metrics.csv` names every metric, its labels, and whose process has it.

No workload, pod or team is a label: details belong to the warehouse.
"""

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
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

from fallow import __version__
from fallow.acting import LedgerEntry, Result, SavingKind
from fallow.continuity import judged_part
from fallow.nouns import Finding
from fallow.seams import WatchProgress
from fallow.window import Window
from runtime.delivery.book import RESULTS
from runtime.queries import sql
from runtime.roles import PARTS, Job, Role

if TYPE_CHECKING:
    from actions.loop.seams import Proof, TurnReport
    from fallow.boundary import PluginRun
    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter, which nothing here asks for

SHARES = timedelta(hours=24)
"""How far back the fleet's states are told: a day, so that no hour of it stands out."""
TARGETS = timedelta(hours=1)
GATES = ("frozen", "breaker", "lease")
STEPS = ("acted", "notified", "kept a snapshot", "held", "refused")
NOTICES = ("delivered", "failed", "waiting")
STATES = ("up", "down")
_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Named(msgspec.Struct, frozen=True):
    """A metric as `metrics.csv` describes it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    role: Role
    meaning: str

    def exported(self) -> tuple[str, ...]:
        """Return the names under which Prometheus keeps it."""
        if self.kind == "counter":
            return (f"{self.name}_total",)
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


@cache
def metrics() -> tuple[Named, ...]:
    """Return every metric there is."""
    text = files("runtime").joinpath("metrics.csv").read_text(encoding="utf-8")
    return tuple(
        Named(
            row["name"],
            row["kind"],
            tuple(row["labels"].split()),
            Role(row["role"].split()[0]),
            row["meaning"],
        )
        for row in csv.DictReader(text.splitlines())
    )


class SelfMetrics:
    """The fallow_* metrics of a process that has these roles, in a registry of their own."""

    def __init__(self, roles: Collection[Role] = PARTS) -> None:
        self.registry = CollectorRegistry()
        self._all: dict[str, Any] = {}
        self._watched: dict[tuple[str, str], int] = {}
        for one in metrics():
            mine = one.role is Role.all or one.role in roles
            registry = self.registry if mine else None  # a metric of others is told to nobody
            self._all[one.name] = _made(one, registry)
        for role in sorted(roles):
            self._of("info").labels(__version__, str(role)).set(1)
        self._begin("act_steps", STEPS)
        self._begin("act_outcomes", get_args(Result))
        self._begin("notices", NOTICES)
        self._begin("act_halted", GATES)
        self._begin("report_deliveries", RESULTS)

    def scheduled(self, jobs: Iterable[Job], now: datetime) -> None:
        """Tell which jobs run, how often, and that none has run yet."""
        for job in jobs:
            self._of("job_failures").labels(job.name)
            self._of("job_period_seconds").labels(job.name).set(job.every.total_seconds())
            self._of("job_last_success_timestamp_seconds").labels(job.name).set(now.timestamp())

    def expects(self, collectors: Iterable[str], now: datetime) -> None:
        """Tell which collectors there are, before any was asked."""
        for name in collectors:
            self._of("collect_rows").labels(name)
            self._of("collect_last_success_timestamp_seconds").labels(name).set(now.timestamp())

    def ran(self, job: str, seconds: float, now: datetime, *, well: bool) -> None:
        """Record one turn of a job."""
        self._of("job_duration_seconds").labels(job).observe(seconds)
        if well:
            self._of("job_last_success_timestamp_seconds").labels(job).set(now.timestamp())
        else:
            self._of("job_failures").labels(job).inc()

    def readied(self, *, ready: bool) -> None:
        """Record what /readyz would say."""
        self._of("ready").set(ready)

    def collected(
        self, name: str, seconds: float, *, added: int, up: bool, now: datetime | None = None
    ) -> None:
        """Record one collection."""
        self._of("collect_duration_seconds").labels(name).observe(seconds)
        self._of("collect_rows").labels(name).inc(added)
        self._of("up").labels(name).set(up)
        if up and now is not None:
            told = self._of("collect_last_success_timestamp_seconds")
            told.labels(name).set(now.timestamp())

    def watched(self, progress: Iterable[WatchProgress]) -> None:
        """Record what watches did so far."""
        for one in progress:
            restarts = max(one.streams - 1, 0)
            counts = {"events": one.events, "restarts": restarts, "lists": one.lists}
            for name, count in {**counts, "failures": one.failures}.items():
                counter = self._of(f"watch_{name}").labels(one.resource)
                before = self._watched.get((name, one.resource), 0)
                counter.inc(max(count - before, 0))
                self._watched[name, one.resource] = count
            self._of("watch_up").labels(one.resource).set(one.streams > 0 and not one.error)

    def ran_plugins(self, runs: "Iterable[PluginRun]") -> None:
        """Record what came of plugins: 0 = its last run ended with an exception."""
        for run in runs:
            self._of("plugin_up").labels(run.kind, run.plugin).set(run.result != "failed")

    def audited(self, failures: "Sequence[AuditFailure]") -> None:
        """Record the last audits: how many rows each refused."""
        from warehouse import audits  # noqa: PLC0415  (the engine loads in 0.3 s)

        for name in audits.names():
            rows = sum(failure.rows for failure in failures if failure.audit == name)
            self._of("audit_failures").labels(name).set(rows)

    def accounted(self, warehouse: "Warehouse", cluster: str, now: datetime) -> None:
        """Record what the fleet is made of, and what was looked at."""
        until = now.replace(minute=0, second=0, microsecond=0)
        asked = {"since": until - SHARES, "until": until, "cluster": cluster}
        states = warehouse.query(sql("shares"), asked).to_pylist()
        whole = sum(row["gpu_seconds"] for row in states)
        if whole:
            hours = states[0]["hours"]
            for name in ("state_share", "state_usd_per_hour"):
                self._of(name).clear()
            self._of("state_share").labels("unknown").set(0)
            for row in states:
                self._of("state_share").labels(row["state"]).set(row["gpu_seconds"] / whole)
                money = float(row["usd"]) / hours
                self._of("state_usd_per_hour").labels(row["state"]).set(money)
            self._of("gpus").set(whole / hours / 3600)
            self._of("unpriced_share").set(sum(row["unpriced"] for row in states) / whole)
        asked = {"since": now - TARGETS, "until": now + TARGETS, "cluster": cluster}
        self._of("targets").clear()
        for row in warehouse.query(sql("targets"), asked).to_pylist():
            for state in STATES:
                self._of("targets").labels(row["collector"], state).set(row[state])

    def found(self, findings: Sequence[Finding], window: Window) -> None:
        """Record the last analysis."""
        self._of("findings").clear()
        self._of("waste_usd_per_hour").clear()
        hours = window.seconds / 3600
        for finding in findings:
            self._of("findings").labels(finding.analyzer).inc()
            # Of a case that began before the window: what was judged in it.
            money = float(judged_part(finding).usd or 0) / hours
            self._of("waste_usd_per_hour").labels(finding.analyzer).inc(money)

    def saved(self, entries: Sequence[LedgerEntry]) -> None:
        """Record what acting saved so far, by kind."""
        for kind in get_args(SavingKind):
            mine = [entry for entry in entries if entry.kind == kind]
            self._of("saved_usd").labels(kind).set(float(sum(e.usd or 0 for e in mine)))
            self._of("saved_gpu_hours").labels(kind).set(sum(e.gpu_hours for e in mine))

    def delivered(self, result: str) -> None:
        """Record what came of a report to one destination."""
        self._of("report_deliveries").labels(result).inc()

    def owing(self, waiting: int, oldest_s: float) -> None:
        """Record how many reports wait to be sent, and the oldest for how long."""
        self._of("report_waiting").set(waiting)
        self._of("report_oldest_seconds").set(oldest_s)

    def acted(self, report: "TurnReport") -> None:
        """Record one turn of acting; its moment is the actor's heartbeat."""
        for taken in report.taken:
            self._of("act_steps").labels(taken.result).inc()
        for outcome in report.closed:
            self._of("act_outcomes").labels(outcome.result).inc()
        self._of("act_open").set(len(report.open))
        halted = {reason.gate for reason in report.halted}
        for gate in GATES:
            self._of("act_halted").labels(gate).set(gate in halted)
        self._of("act_last_turn_timestamp_seconds").set(report.at.timestamp())

    def noticed(self, proofs: "Iterable[Proof]") -> None:
        """Record what came of notices: one that no channel took and none will is failed."""
        for proof in proofs:
            waits = "failed" if proof.waits_until is None else "waiting"
            self._of("notices").labels("delivered" if proof.delivered else waits).inc()

    def vouched(self, rows: int, *, broken: bool, waiting: int) -> None:
        """Record how long the journal is, whether its chain holds, and who waits for approval."""
        self._of("journal_rows").set(rows)
        self._of("journal_broken").set(broken)
        self._of("act_waiting").set(waiting)

    def requested(self, what: str, code: int) -> None:
        """Record one request to a write endpoint."""
        self._of("requests").labels(what, str(code)).inc()

    def shown(self, *, up: bool) -> None:
        """Record that the dashboard was started, or ended."""
        self._of("dashboard_up").set(up)
        if up:
            self._of("dashboard_starts").inc()

    def tidied(self, warehouse: "Warehouse", now: datetime) -> None:
        """Record the tiers' sizes and ages."""
        from warehouse import maintenance  # noqa: PLC0415

        rows = maintenance.status(warehouse).to_pylist()
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
        """Let series begin at zero: an increase from nothing is none to Prometheus."""
        for value in values:
            self._of(name).labels(value)


def _made(one: Named, registry: CollectorRegistry | None) -> Any:
    if one.kind == "histogram":
        return Histogram(one.name, one.meaning, one.labels, registry=registry, buckets=_SECONDS)
    kinds: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge}
    return kinds[one.kind](one.name, one.meaning, one.labels, registry=registry)
